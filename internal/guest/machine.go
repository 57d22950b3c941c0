package guest

import (
	"fmt"
	"path"
	"strings"

	"github.com/decamp/decamp/internal/guest/budget"
	"github.com/decamp/decamp/internal/guest/linux"
	"github.com/decamp/decamp/internal/guest/lvm"
	"github.com/decamp/decamp/internal/guest/tree"
)

// A machine is the guest whose volumes are on all of the disks.
type machine struct {
	budget  *budget.Budget
	disks   []*detector
	volumes []*volume
	pvs     []lvm.PV
	holders []*detector // detectors of each PV's disk
	entry   bool        // EFI starts the guest by a boot entry only
}

// guest finds the root, mounts the file systems of fstab, and identifies the system.
func (m *machine) guest() {
	m.firmware()
	m.hibernated()
	root := m.root()
	if root == nil {
		m.locked()
		return
	}
	boot := m.mount(root)
	g := linux.Read(m.budget, root.tree)
	if m.budget.Err() != nil {
		return // an undetected part may still exist
	}
	r := &root.d.report
	r.Linux = &g
	j := judgement{guest: g, append: root.writable() && boot.writable(), appliance: !root.isExt() || !boot.isExt(), encrypted: m.encrypted() != nil, entry: m.entry}
	r.Verdict = j.sentence()
	for _, w := range j.warnings() {
		root.d.warn(w.Code, "%s", w.Text)
	}
	room := int64(len(g.Kernels)) * (12 << 20) // more than drivers and their lists take, packed
	if boot.usage != nil && boot.usage.Free < room {
		root.d.warn("little-room", "the file system of /boot, %s, has %d MiB left: there may be no room for drivers", boot.name, boot.usage.Free>>20)
	}
}

// root returns the first volume that has an os-release and is more than a /usr.
func (m *machine) root() *volume {
	for _, v := range m.volumes {
		if v.tree == nil || !tree.Has(v.tree, "etc") {
			continue
		}
		if text, err := osRelease(v.tree); err == nil && text != "" {
			return v
		}
	}
	return nil
}

// mount adds the other volumes that a system needs to boot to the root's tree, as fstab lists them. It
// returns the volume of /boot.
func (m *machine) mount(root *volume) (boot *volume) {
	boot = root
	for _, line := range linux.Mounts(m.budget, root.tree) {
		at := path.Clean(line.Path)
		switch at {
		case "/boot", "/boot/efi", "/efi", "/usr", "/var", "/etc":
		default:
			continue
		}
		for _, v := range m.volumes {
			if v == root || v.tree == nil || !v.is(line.Device) {
				continue
			}
			root.tree.Mount(at, v.tree.Root())
			if at == "/boot" {
				boot = v
			}
			break
		}
	}
	return boot
}

// encrypted returns the first volume that LUKS encrypts, or nil.
func (m *machine) encrypted() *volume {
	for _, v := range m.volumes {
		if v.kind == LUKS {
			return v
		}
	}
	return nil
}

// locked gives the verdict on a guest whose root cannot be looked into.
func (m *machine) locked() {
	if v := m.encrypted(); v != nil && v.d.report.Verdict == "" {
		v.d.report.Verdict = fmt.Sprintf("%s is encrypted and cannot be looked into: the compat profile will boot; needs its LUKS passphrase at boot; virtio needs virt-v2v with that: --key-file", v.name)
	}
}

// hibernated warns of swap that a guest would go on from: on other hardware it must not.
func (m *machine) hibernated() {
	for _, v := range m.volumes {
		if v.kind == Swap && isHibernated(v.r) {
			v.d.warn("hibernated", "%s holds a hibernated Linux: start it at the source and shut it down", v.name)
		}
	}
}

// firmware looks for what EFI starts by itself on the system partition.
func (m *machine) firmware() {
	for _, v := range m.volumes {
		b := &v.d.report.Boot
		if v.kind != FAT || v.tree == nil || !b.ESP {
			continue
		}
		loaders := efiLoaders(v.tree)
		v.d.report.Loaders = append(v.d.report.Loaders, v.loaders(loaders)...)
		for _, name := range []string{"BOOTX64.EFI", "BOOTAA64.EFI", "BOOTIA32.EFI"} {
			b.EFIFallback = b.EFIFallback || tree.Has(v.tree, "EFI/BOOT/"+name)
		}
		if !b.EFIFallback && len(loaders) > 0 {
			m.entry = true
			v.d.warn("efi-fallback", "%s has no EFI/BOOT/BOOTX64.EFI, which a firmware starts that does not know the guest: the boot entry for %s stays behind. --hardware virtio adds the file to a Linux", v.name, strings.Join(loaders, ", "))
		}
	}
}

// efiLoaders returns the loaders on an EFI system partition, by folder: EFI/debian/….
func efiLoaders(t *tree.Tree) []string {
	var found []string
	vendors, err := t.ReadDir("EFI")
	if err != nil {
		return nil
	}
	for _, vendor := range vendors {
		for _, name := range []string{"shimx64.efi", "grubx64.efi", "systemd-bootx64.efi", "elilo.efi", "bootmgfw.efi", "Boot/bootmgfw.efi"} {
			if p := "EFI/" + vendor.Name + "/" + name; tree.Has(t, p) {
				found = append(found, p)
				break
			}
		}
	}
	return found
}
