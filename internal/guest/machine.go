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

// A machine is the guest that owns all disks of a VM.
type machine struct {
	budget         *budget.Budget // limits of the whole examination
	disks          []*detector    // detectors in the order of the VM's disks
	volumes        []*volume      // all volumes, in the order of detection; physical volumes of LVM are not among them
	pvs            []lvm.PV       // physical volumes of LVM on all disks
	pvDetectors    []*detector    // detectors of the physical volumes' disks, parallel to pvs
	needsBootEntry bool           // the EFI system partition has no fallback loader, so the guest starts by a boot entry only
}

// examineGuest finds the root volume, mounts the file systems of fstab, and describes the system.
// It runs after all volumes are known.
func (m *machine) examineGuest() {
	m.examineESP()
	m.warnHibernated()
	root := m.findRoot()
	if root == nil {
		m.judgeEncrypted()
		return
	}
	// Kernels and boot loaders are usually on a separate /boot.
	boot := m.mountVolumes(root)
	g := linux.Read(m.budget, root.tree)
	if m.budget.Err() != nil {
		return // the result would be incomplete
	}
	r := &root.detector.report
	r.Linux = &g
	j := verdict{guest: g, canAppend: root.isWritable() && boot.isWritable(), needsAppliance: !root.isExt() || !boot.isExt(), hasEncrypted: m.findEncrypted() != nil, needsBootEntry: m.needsBootEntry}
	r.Verdict = j.sentence()
	for _, w := range j.listWarnings() {
		root.detector.warn(w.Code, "%s", w.Text)
	}
	room := int64(len(g.Kernels)) * (12 << 20) // more than compressed drivers and their lists need
	if boot.usage != nil && boot.usage.Free < room {
		root.detector.warn("little-room", "the file system of /boot, %s, has %d MiB free, which may be too little for drivers", boot.name, boot.usage.Free>>20)
	}
}

// findRoot returns the first volume with a folder etc and an os-release; a separate /usr has no etc. It
// returns nil if none exists.
func (m *machine) findRoot() *volume {
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

// mountVolumes adds the other volumes that a system needs to boot to the tree of the root, as listed in
// fstab. It returns the volume of /boot, which is the root itself if there is no separate one.
func (m *machine) mountVolumes(root *volume) (boot *volume) {
	boot = root
	for _, line := range linux.Mounts(m.budget, root.tree) {
		at := path.Clean(line.Path)
		switch at {
		// Other file systems, such as /home, do not affect the boot.
		case "/boot", "/boot/efi", "/efi", "/usr", "/var", "/etc":
		default:
			continue
		}
		for _, v := range m.volumes {
			if v == root || v.tree == nil || !v.matchesDevice(line.Device) {
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

// findEncrypted returns the first volume that LUKS encrypts, or nil.
func (m *machine) findEncrypted() *volume {
	for _, v := range m.volumes {
		if v.kind == LUKS {
			return v
		}
	}
	return nil
}

// judgeEncrypted sets the verdict for a guest whose root is probably encrypted.
func (m *machine) judgeEncrypted() {
	if v := m.findEncrypted(); v != nil && v.detector.report.Verdict == "" {
		v.detector.report.Verdict = fmt.Sprintf("%s is encrypted and cannot be read: will boot only with the compat profile; requests its LUKS passphrase at boot; virtio requires virt-v2v with the passphrase (--key-file)", v.name)
	}
}

// warnHibernated warns about swap areas from which the guest would resume. It must not resume on other
// hardware.
func (m *machine) warnHibernated() {
	for _, v := range m.volumes {
		if v.kind == Swap && isHibernated(v.r) {
			v.detector.warn("hibernated", "%s contains a hibernated Linux: start it at the source and shut it down", v.name)
		}
	}
}

// examineESP finds the loaders on EFI system partitions. It warns if there is no fallback loader,
// because then a new firmware does not start the guest.
func (m *machine) examineESP() {
	for _, v := range m.volumes {
		b := &v.detector.report.Boot
		// Other FAT partitions are not searched by firmware.
		if v.kind != FAT || v.tree == nil || !b.ESP {
			continue
		}
		loaders := efiLoaders(v.tree)
		v.detector.report.Loaders = append(v.detector.report.Loaders, v.bootEntries(loaders)...)
		for _, name := range []string{"BOOTX64.EFI", "BOOTAA64.EFI", "BOOTIA32.EFI"} {
			b.EFIFallback = b.EFIFallback || tree.Has(v.tree, "EFI/BOOT/"+name)
		}
		if !b.EFIFallback && len(loaders) > 0 {
			m.needsBootEntry = true
			v.detector.warn("efi-fallback", "%s has no EFI/BOOT/BOOTX64.EFI, which firmware starts if it has no boot entry: the boot entry for %s is not migrated. --hardware virtio adds the file to a Linux guest", v.name, strings.Join(loaders, ", "))
		}
	}
}

// efiLoaders returns the path of the first known loader in each folder of an EFI system partition:
// EFI/debian/shimx64.efi.
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
