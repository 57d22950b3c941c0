package convert

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/guest/initramfs"
)

// debianFiles returns the files of a guest as Debian installs it on VMware. Its initramfs has only modules for VMware
// hardware.
func debianFiles(t testing.TB) files {
	inside := newInitramfs(files{
		"conf/modules": "# list\nvmw_pvscsi", "conf/initramfs.conf": "MODULES=dep\n", "scripts/init-top/ORDER": "",
		"usr/lib/modules/" + release + "/kernel/drivers/scsi/scsi_mod.ko":   moduleContent("scsi_mod"),
		"usr/lib/modules/" + release + "/kernel/drivers/scsi/sd_mod.ko":     moduleContent("sd_mod"),
		"usr/lib/modules/" + release + "/kernel/drivers/scsi/vmw_pvscsi.ko": moduleContent("vmw_pvscsi"),
	})
	return kernelFiles(t, ".ko").and(files{
		"etc/fstab": "# <file system>\n/dev/sda1\t/  ext4 errors=remount-ro 0 1\n/dev/sda2 none swap sw 0 0\n" +
			"/dev/sdb1 /data ext4 defaults 0 2\n/dev/disk/by-path/pci-0000:03:00.0-scsi-0:0:1:0-part1 /more ext4 defaults 0 2\n",
		"etc/default/grub":                             "GRUB_CMDLINE_LINUX=\"quiet resume=/dev/sda2\"\n",
		"etc/initramfs-tools/modules":                  "# by hand\nloop",
		"etc/initramfs-tools/conf.d/resume":            "RESUME=/dev/sda2\n",
		"boot/grub/grub.cfg":                           "set root='hd0,msdos1'\n\tlinux /boot/vmlinuz-" + release + " root=/dev/sda1 ro quiet\n\tinitrd /boot/initrd.img-" + release + "\n",
		"boot/vmlinuz-" + release:                      "kernel",
		"boot/initrd.img-" + release:                   string(pipe(t, inside, "gzip")),
		"usr/lib/systemd/systemd":                      moduleContent("systemd"),
		"usr/lib/systemd/system/open-vm-tools.service": "[Unit]\n",
		"usr/bin/vmtoolsd":                             moduleContent("vmtoolsd"),
		"etc/systemd/system/vmtoolsd.service":          "-> /lib/systemd/system/open-vm-tools.service",
		"usr/lib/none":                                 "",
		"lib/systemd":                                  "-> ../usr/lib/systemd",
	})
}

func TestLinuxAppendOnDebian(t *testing.T) {
	guest := makeDisk(t, part{files: debianFiles(t), uuid: rootUUID, size: 40, args: "-t ext4"}, part{size: 4, args: "swap"})
	result, err := convertOn(t, Options{Cards: []Card{{"00:50:56:AB:CD:01", "ens192"}, {"00:50:56:ab:cd:02", "eth1"}}}, guest)
	if err != nil {
		t.Fatal(err)
	}
	var changed []string
	for _, c := range result.Changes {
		changed = append(changed, c.Path)
		if c.Reason == "" {
			t.Errorf("%s was changed without a reason", c.Path)
		}
	}
	slices.Sort(changed)
	initrd := "boot/initrd.img-" + release
	want := []string{"boot/grub/grub.cfg", initrd, "etc/default/grub", "etc/fstab", "etc/initramfs-tools/conf.d/resume",
		"etc/initramfs-tools/modules", "etc/systemd/network/10-decamp-ens192.link", "etc/systemd/system/open-vm-tools.service"}
	if !slices.Equal(changed, want) {
		t.Errorf("changed %q, want %q", changed, want)
	}
	if notes := strings.Join(result.Notes, "\n"); !strings.Contains(notes, "/dev/sdb1") || !strings.Contains(notes, "by-path") {
		t.Errorf("notes %q do not report the unchanged devices", notes)
	}

	root := partAt(t, guest, 1, 40)
	for path, want := range map[string]string{
		"/etc/fstab": "# <file system>\nUUID=" + rootUUID + "\t/  ext4 errors=remount-ro 0 1\nUUID=" + swapUUID + " none swap sw 0 0\n" +
			"/dev/sdb1 /data ext4 defaults 0 2\n/dev/disk/by-path/pci-0000:03:00.0-scsi-0:0:1:0-part1 /more ext4 defaults 0 2\n",
		"/etc/default/grub":                          "GRUB_CMDLINE_LINUX=\"quiet resume=UUID=" + swapUUID + "\"\n",
		"/etc/initramfs-tools/modules":               "# by hand\nloop\nvirtio_pci\nvirtio_blk\nvirtio_scsi\nvirtio_net\nsd_mod\n",
		"/etc/initramfs-tools/conf.d/resume":         "RESUME=UUID=" + swapUUID + "\n",
		"/boot/grub/grub.cfg":                        "set root='hd0,msdos1'\n\tlinux /boot/vmlinuz-" + release + " root=UUID=" + rootUUID + " ro quiet\n\tinitrd /" + initrd + "\n",
		"/etc/systemd/network/10-decamp-ens192.link": "# Keeps the name of this card on other hardware.\n[Match]\nMACAddress=00:50:56:ab:cd:01\n\n[Link]\nName=ens192\n",
	} {
		if got := catFile(t, root, path); got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
	checkDebianInitramfs(t, catFile(t, root, "/"+initrd))
	again, err := convertOn(t, Options{Cards: []Card{{"00:50:56:AB:CD:01", "ens192"}}}, guest)
	if err != nil || len(again.Changes) != 0 {
		t.Errorf("the second run changed %v, error %v", again.Changes, err)
	}
}

// checkDebianInitramfs requires the old content, exactly the modules that were missing, and lists with the right
// file names.
func checkDebianInitramfs(t *testing.T, data string) {
	t.Helper()
	got := unpackInitramfs(t, data)
	if want := "# list\nvmw_pvscsi\nvirtio_pci\nvirtio_blk\nvirtio_scsi\nvirtio_net\nsd_mod\n"; got["conf/modules"] != want {
		t.Errorf("conf/modules is %q, want %q", got["conf/modules"], want)
	}
	if got["etc/systemd/network/10-decamp-ens192.link"] == "" {
		t.Error("the initramfs has no link file for the card")
	}
	dir := "lib/modules/" + release + "/"
	var added []string
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if file, ok := strings.CutPrefix(name, dir); ok && strings.HasSuffix(file, ".ko") {
			added = append(added, initramfs.Module(file))
			if got[name] != moduleContent(strings.TrimSuffix(file, ".ko")) {
				t.Errorf("content of %s is %q", name, got[name])
			}
		}
	}
	if want := []string{"virtio_blk", "net_failover", "virtio_net", "virtio_scsi", "virtio", "virtio_pci", "virtio_ring"}; !slices.Equal(added, want) {
		t.Errorf("added %q, want %q", added, want)
	}
	if got[dir+"modules.alias.bin"] != "the guest's own" || !strings.Contains(got[dir+"modules.dep"], "kernel/drivers/scsi/sd_mod.ko: kernel/drivers/scsi/scsi_mod.ko\n") {
		t.Errorf("modules.dep or modules.alias.bin differ from the guest: %q", got[dir+"modules.dep"])
	}
}

// fedoraFiles returns the files of a guest with dracut, BLS entries and a separate /boot. Its modules are
// compressed, but not in the initramfs. The end of the compressed initramfs is known only after decompression.
func fedoraFiles(t testing.TB) (root, boot files) {
	inside := newInitramfs(files{
		"usr/lib/dracut/modules.txt":                                        "",
		"usr/lib/modules/" + release + "/kernel/drivers/scsi/scsi_mod.ko":   moduleContent("scsi_mod"),
		"usr/lib/modules/" + release + "/kernel/drivers/scsi/vmw_pvscsi.ko": moduleContent("vmw_pvscsi"),
	})
	root = kernelFiles(t, ".ko.xz", "xz", "--check=crc32").and(files{
		"etc/fstab":               "/dev/sda2 / ext4 defaults 1 1\nUUID=" + bootUUID + " /boot ext4 defaults 1 2\n",
		"etc/dracut.conf":         "",
		"boot/empty":              "",
		"usr/lib/systemd/systemd": moduleContent("systemd"),
		"etc/kernel/cmdline":      "root=/dev/sda2 ro\n",
	})
	boot = files{
		"initramfs-" + release + ".img":           string(pipe(t, inside, "zstd", "-q")),
		"initramfs-" + release + "kdump.img":      "left alone",
		"loader/entries/abc-" + release + ".conf": "title Fedora\noptions root=/dev/sda2 ro\n",
		"grub2/grubenv":                           padGrubenv("# GRUB Environment Block\nkernelopts=root=/dev/sda2 ro\n"),
	}
	return root, boot
}

func padGrubenv(text string) string { return text + strings.Repeat("#", 1024-len(text)) }

func TestLinuxAppendOnFedoraWithSeparateBoot(t *testing.T) {
	root, boot := fedoraFiles(t)
	guest := makeDisk(t, part{files: boot, uuid: bootUUID, size: 16, args: "-t ext4 -b 1024"}, part{files: root, uuid: rootUUID, size: 24, args: "-t ext4"})
	if _, err := convertOn(t, Options{}, guest); err != nil {
		t.Fatal(err)
	}
	bootPart, rootPart := partAt(t, guest, 1, 16), partAt(t, guest, 17, 24)
	for path, want := range map[string]string{
		"/loader/entries/abc-" + release + ".conf": "title Fedora\noptions root=UUID=" + rootUUID + " ro\n",
		"/grub2/grubenv":                      padGrubenv("# GRUB Environment Block\nkernelopts=root=UUID=" + rootUUID + " ro\n"),
		"/initramfs-" + release + "kdump.img": "left alone",
	} {
		if got := catFile(t, bootPart, path); got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
	if got := catFile(t, rootPart, "/etc/dracut.conf.d/decamp.conf"); got != "add_drivers+=\" virtio_pci virtio_blk virtio_scsi virtio_net sd_mod \"\n" {
		t.Errorf("dracut configuration is %q", got)
	}
	got := unpackInitramfs(t, catFile(t, bootPart, "/initramfs-"+release+".img"))
	if want := "rd.driver.pre=virtio_pci,virtio_blk,virtio_scsi,virtio_net,sd_mod\n"; got["etc/cmdline.d/90-decamp.conf"] != want {
		t.Errorf("arguments of dracut are %q, want %q", got["etc/cmdline.d/90-decamp.conf"], want)
	}
	dir := "lib/modules/" + release + "/"
	if got[dir+"kernel/drivers/net/virtio_net.ko"] != moduleContent("kernel/drivers/net/virtio_net") {
		t.Error("virtio_net is missing or still compressed")
	}
	for _, want := range []string{ // uncompressed names for modules in the initramfs, compressed names for others
		"kernel/drivers/scsi/vmw_pvscsi.ko: kernel/drivers/scsi/scsi_mod.ko\n",
		"kernel/drivers/net/virtio_net.ko: kernel/drivers/net/net-failover.ko kernel/drivers/virtio/virtio_ring.ko kernel/drivers/virtio/virtio.ko\n",
		"kernel/drivers/net/other-hardware.ko.xz:\n",
	} {
		if !strings.Contains(got[dir+"modules.dep"], want) {
			t.Errorf("modules.dep has no %q: %s", want, got[dir+"modules.dep"])
		}
	}
	if again, err := convertOn(t, Options{}, guest); err != nil || len(again.Changes) != 0 {
		t.Errorf("the second run changed %v, error %v", again.Changes, err)
	}
}

// If a guest cannot be converted, LinuxAppend returns an error and changes no overlay.
func TestLinuxAppendRefuses(t *testing.T) {
	plain := debianFiles(t)
	without := func(drop string) files {
		out := files{}
		for path, text := range plain {
			if !strings.Contains(path, drop) {
				out[path] = text
			}
		}
		return out
	}
	noVirtio := plain.and(files{"lib/modules/" + release + "/modules.dep": "kernel/drivers/scsi/vmw_pvscsi.ko:\n"})
	for name, c := range map[string]struct {
		disk memory
		kind fault.Kind
		want string
	}{
		"no root":      {makeDisk(t, part{files: files{"x": ""}, uuid: rootUUID, size: 8, args: "-t ext4"}), fault.Unsupported, "no disk has a root"},
		"swap only":    {makeDisk(t, part{size: 4, args: "swap"}), fault.Unsupported, "swap"},
		"two roots":    {makeDisk(t, part{files: plain, uuid: rootUUID, size: 24, args: "-t ext4"}, part{files: plain, uuid: bootUUID, size: 24, args: "-t ext4"}), fault.Unsupported, "2 partitions"},
		"bigalloc":     {makeDisk(t, part{files: plain, uuid: rootUUID, size: 48, args: "-t ext4 -O bigalloc"}), fault.Unsupported, "bigalloc"},
		"no initramfs": {makeDisk(t, part{files: without("initrd.img"), uuid: rootUUID, size: 24, args: "-t ext4"}), fault.Unsupported, "initramfs and virtio"},
		"no virtio":    {makeDisk(t, part{files: noVirtio, uuid: rootUUID, size: 24, args: "-t ext4"}), fault.Unsupported, "initramfs and virtio"},
		"odd initramfs": {makeDisk(t, part{files: plain.and(files{"boot/initrd.img-" + release: "something else"}), uuid: rootUUID, size: 24, args: "-t ext4"}),
			fault.Unsupported, "read its archives"},
		"no boot": {makeDisk(t, part{files: plain.and(files{"etc/fstab": "UUID=nowhere /boot ext4 defaults 0 0\n"}), uuid: rootUUID, size: 24, args: "-t ext4"}),
			fault.NotFound, "/boot"},
		"full": {makeDisk(t, part{files: plain.and(files{"lib/modules/" + release + "/modules.symbols": randomText(4 << 20), "var/fill": strings.Repeat("x", 18<<20)}),
			uuid: rootUUID, size: 24, args: "-t ext4 -O ^has_journal"}), fault.Full, "free"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := convertOn(t, Options{}, c.disk)
			if !fault.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) || fault.HintOf(err) == "" {
				t.Errorf("got %v, want %q and a remedy", err, c.want)
			}
		})
	}
	if _, err := convertOn(t, Options{Cards: []Card{{"00:50:56:ab:cd:01", "../x"}}}, makeDisk(t, part{files: plain, uuid: rootUUID, size: 24, args: "-t ext4"})); !fault.Is(err, fault.Invalid) {
		t.Errorf("a card name that is a path: got %v, want an invalid error", err)
	}
}

// Without systemd, a udev rule keeps the name of a card, unless the guest has such a rule.
func TestCardsWithoutSystemd(t *testing.T) {
	old := files{}
	for path, text := range debianFiles(t) {
		if !strings.Contains(path, "systemd") {
			old[path] = text
		}
	}
	const rules = "etc/udev/rules.d/70-persistent-net.rules"
	old[rules] = "# the guest's\n" + `SUBSYSTEM=="net", ATTR{address}=="00:50:56:ab:cd:02", NAME="lan"` + "\n"
	guest := makeDisk(t, part{files: old, uuid: rootUUID, size: 40, args: "-t ext3"})
	if _, err := convertOn(t, Options{Cards: []Card{{"00:50:56:ab:cd:01", "wan"}, {"00:50:56:ab:cd:02", "lan"}}}, guest); err != nil {
		t.Fatal(err)
	}
	want := old[rules] + `SUBSYSTEM=="net", ACTION=="add", DRIVERS=="?*", ATTR{address}=="00:50:56:ab:cd:01", ATTR{type}=="1", NAME="wan"` + "\n"
	if got := catFile(t, partAt(t, guest, 1, 40), "/"+rules); got != want {
		t.Errorf("the rules are %q, want %q", got, want)
	}
}
