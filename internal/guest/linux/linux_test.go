package linux

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"

	"github.com/decamp/decamp/internal/guest/budget/budgettest"
	"github.com/decamp/decamp/internal/guest/tree/treetest"
)

// newArchive returns a gzip-compressed cpio archive with empty files.
func newArchive(t testing.TB, names ...string) string {
	t.Helper()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	for _, name := range append(names, "TRAILER!!!") {
		fmt.Fprintf(z, "070701%088x%08x%08x", 0, len(name)+1, 0)
		z.Write(append([]byte(name), make([]byte, 1+(-(110+len(name)+1)&3))...))
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return packed.String()
}

func modulePath(name string) string { return "lib/modules/x/kernel/" + name + ".ko.xz" }

// Only reported drivers of a module list are stored, so that a long list uses little memory.
func TestModuleListsUseLittleMemory(t *testing.T) {
	var list strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&list, "kernel/m%d.ko:\n", i)
	}
	list.WriteString("kernel/virtio-blk.ko.zst: kernel/m1.ko\n")
	has := newDriverSet()
	has.addList(list.String())
	if len(has) != len(reportedDrivers()) || !reflect.DeepEqual(presentDrivers(has), []string{"virtio_blk"}) {
		t.Errorf("%d names, %v", len(has), presentDrivers(has))
	}
}

func TestKernels(t *testing.T) {
	g := Read(budgettest.New(t), treetest.Memory(map[string]string{
		"boot/vmlinuz":                              "-> vmlinuz-5.10.0-9-amd64",
		"boot/vmlinuz-5.9.0-1-amd64":                "k",
		"boot/vmlinuz-5.10.0-9-amd64":               "k",
		"boot/vmlinuz-0-rescue-1234":                "k",
		"boot/initrd.img-5.10.0-9-amd64":            newArchive(t, "conf/initramfs.conf", modulePath("virtio_blk"), modulePath("virtio_pci"), modulePath("vmw_pvscsi"), modulePath("sd_mod")),
		"boot/initramfs-5.9.0-1-amd64":              newArchive(t, "usr/lib/dracut/x", modulePath("vmw_pvscsi"), modulePath("sd_mod")),
		"lib/modules/6.12.1.fc/vmlinuz":             "k",
		"lib/modules/6.12.1.fc/initrd":              "rubbish here",
		"lib/modules/5.9.0-1-amd64/modules.builtin": "kernel/drivers/virtio/virtio_pci.ko\n",
		"lib/modules/5.9.0-1-amd64/modules.dep":     "kernel/drivers/scsi/virtio_scsi.ko.zst: kernel/a.ko\n",
		"lib/modules/5.10.0-9-amd64/modules.dep":    "kernel/drivers/net/e1000.ko:\n",
		"lib/modules/4.0.0-removed/modules.dep":     "",
	}))
	want := []Kernel{
		{Version: "6.12.1.fc", Image: "lib/modules/6.12.1.fc/vmlinuz", Initramfs: "lib/modules/6.12.1.fc/initrd", Unread: true},
		{
			Version: "5.10.0-9-amd64", Image: "boot/vmlinuz-5.10.0-9-amd64", Initramfs: "boot/initrd.img-5.10.0-9-amd64", Maker: "initramfs-tools",
			Compression: "gzip", Drivers: []string{"virtio_pci", "virtio_blk", "sd_mod", "vmw_pvscsi"},
			Installed: []string{"virtio_pci", "virtio_blk", "sd_mod", "vmw_pvscsi", "e1000"},
		},
		{
			Version: "5.9.0-1-amd64", Image: "boot/vmlinuz-5.9.0-1-amd64", Initramfs: "boot/initramfs-5.9.0-1-amd64", Maker: "dracut",
			Compression: "gzip", Drivers: []string{"virtio_pci", "sd_mod", "vmw_pvscsi"},
			Installed: []string{"virtio_pci", "virtio_scsi", "sd_mod", "vmw_pvscsi"},
		},
	}
	for i := range g.Kernels {
		if g.Kernels[i].Drivers = slices.Clip(g.Kernels[i].Drivers); len(g.Kernels[i].Drivers) == 0 {
			g.Kernels[i].Drivers = nil
		}
		if len(g.Kernels[i].Installed) == 0 {
			g.Kernels[i].Installed = nil
		}
	}
	if !reflect.DeepEqual(g.Kernels, want) {
		t.Errorf("kernels\n%+v\nwant\n%+v", g.Kernels, want)
	}
	if len(g.Problems) != 1 || !strings.Contains(g.Problems[0], "6.12.1.fc/initrd") {
		t.Errorf("problems %q", g.Problems)
	}
	for i, boots := range []struct{ scsi, blk, could bool }{{false, false, false}, {false, true, false}, {false, false, true}} {
		k := g.Kernels[i]
		if k.Boots(VirtioSCSI) != boots.scsi || k.Boots(VirtioBlk) != boots.blk || k.BootsIfRebuilt(VirtioSCSI) != boots.could {
			t.Errorf("%s: %v %v %v", k.Version, k.Boots(VirtioSCSI), k.Boots(VirtioBlk), k.BootsIfRebuilt(VirtioSCSI))
		}
	}
}

func TestKernelWithoutVersion(t *testing.T) {
	g := Read(budgettest.New(t), treetest.Memory(map[string]string{"boot/vmlinuz": "k", "boot/initrd.img": newArchive(t, "virtio_pci.ko", "virtio_scsi.ko", "sd_mod.ko")}))
	if len(g.Kernels) != 1 || !g.Kernels[0].Boots(VirtioSCSI) || g.Kernels[0].Boots(VirtioBlk) {
		t.Errorf("kernels %+v", g.Kernels)
	}
}

func TestCompareVersions(t *testing.T) {
	ordered := []string{"", "4.18.0-80.el8.x86_64", "5.9.0", "5.10.0-2-amd64", "5.10.0-13-amd64", "5.10.0-13-cloud", "6.1"}
	for i, a := range ordered {
		for j, b := range ordered {
			if got := compareVersions(a, b); got < 0 != (i < j) || got > 0 != (i > j) {
				t.Errorf("%q and %q: %d", a, b, got)
			}
		}
	}
}

func TestDiskNames(t *testing.T) {
	g := Read(budgettest.New(t), treetest.Memory(map[string]string{
		"etc/fstab":                  "# /dev/hda1 was it\nUUID=1-2 / ext4 defaults 0 1\n/dev/sdb1 /data xfs defaults 0 0\n/dev/mapper/vg-home /home ext4 x 0 0\n/dev/sr0 /media iso9660 noauto 0 0\n",
		"etc/crypttab":               "data /dev/disk/by-path/pci-0000:03:00.0-scsi-0:0:1:0-part2 none luks\n",
		"boot/grub2/grub.cfg":        "set x=1\n  linux /vmlinuz root=/dev/hda2 resume=/dev/sda5 quiet\n",
		"boot/loader/entries/a.conf": "title x\noptions root=UUID=1 ro resume=/dev/disk/by-uuid/7\n",
		"etc/default/grub":           "GRUB_CMDLINE_LINUX=\"root=/dev/disk/by-id/scsi-36000c29 net.ifnames=0\"\n",
	}))
	want := []Name{
		{"etc/fstab", 3, "/dev/sdb1", true},
		{"etc/crypttab", 1, "/dev/disk/by-path/pci-0000:03:00.0-scsi-0:0:1:0-part2", false},
		{"etc/default/grub", 1, "/dev/disk/by-id/scsi-36000c29", false},
		{"boot/grub2/grub.cfg", 2, "/dev/hda2", false},
		{"boot/grub2/grub.cfg", 2, "/dev/sda5", true},
	}
	if !slices.Equal(g.DiskNames, want) {
		t.Errorf("names\n%+v\nwant\n%+v", g.DiskNames, want)
	}
	if g.NamesStay() || g.Resume != "/dev/sda5" || !slices.Equal(g.Encrypted, []string{"data"}) || !slices.Equal(g.Loaders, []string{"grub", "bls"}) || !g.oldNames() {
		t.Errorf("guest %+v", g)
	}
	if m := Mounts(budgettest.New(t), treetest.Memory(map[string]string{"etc/fstab": "UUID=1 / ext4 x\nnone none swap\nLABEL=b /boot/ vfat\n"})); !slices.Equal(m, []Mount{{"UUID=1", "/", "ext4"}, {"LABEL=b", "/boot", "vfat"}}) {
		t.Errorf("mounts %+v", m)
	}
}

func TestNICs(t *testing.T) {
	const mac = "00:50:56:ab:cd:01"
	for name, test := range map[string]struct {
		files map[string]string
		want  []NIC
	}{
		"ifupdown": {map[string]string{
			"etc/network/interfaces": "auto lo\niface lo inet loopback\nauto ens192\niface ens192 inet static\n  address 10.0.0.5\n  netmask 255.255.240.0\n  gateway 10.0.0.1\niface ens224 inet dhcp\niface ens256 inet manual\n",
		}, []NIC{
			{Name: "ens192", Addresses: []string{"10.0.0.5/20"}, By: ByName, File: "etc/network/interfaces"},
			{Name: "ens224", DHCP: true, By: ByName, File: "etc/network/interfaces"},
		}},
		"pinned by link": {map[string]string{
			"etc/network/interfaces.d/a":  "iface lan0 inet static\naddress 10.0.0.5/24\n",
			"etc/systemd/network/10.link": "[Match]\nMACAddress=00:50:56:AB:CD:01\n[Link]\nName=lan0\n",
		}, []NIC{{Name: "lan0", MAC: mac, Addresses: []string{"10.0.0.5/24"}, By: ByMAC, File: "etc/network/interfaces.d/a"}}},
		"pinned by udev": {map[string]string{
			"etc/sysconfig/network/ifcfg-eth0":         "BOOTPROTO='static'\nIPADDR='10.0.0.5'\nPREFIXLEN='24'\n",
			"etc/udev/rules.d/70-persistent-net.rules": "# NAME=\"no\"\nSUBSYSTEM==\"net\", ATTR{address}==\"" + mac + "\", ATTR{type}==\"1\", KERNEL==\"eth*\", NAME=\"eth0\"\n",
		}, []NIC{{Name: "eth0", MAC: mac, Addresses: []string{"10.0.0.5/24"}, By: ByMAC, File: "etc/sysconfig/network/ifcfg-eth0"}}},
		"netplan": {map[string]string{
			"etc/netplan/50.yaml": "network:\n  ethernets:\n    ens160:\n      dhcp4: true\n    lan:\n      match: {macaddress: '" + strings.ToUpper(mac) + "'}\n      set-name: ens192\n      addresses: [10.0.0.5/24, {'10.0.0.6/24': {label: x}}]\n    all:\n      match: {name: 'en*'}\n      dhcp6: yes\n",
		}, []NIC{
			{Name: "en*", DHCP: true, By: ByAny, File: "etc/netplan/50.yaml"},
			{Name: "ens160", DHCP: true, By: ByName, File: "etc/netplan/50.yaml"},
			{Name: "ens192", MAC: mac, Addresses: []string{"10.0.0.5/24", "10.0.0.6/24"}, By: ByMAC, File: "etc/netplan/50.yaml"},
		}},
		"NetworkManager": {map[string]string{
			"etc/NetworkManager/system-connections/a.nmconnection": "[connection]\nid=a\ntype=ethernet\ninterface-name=ens192\n[ipv4]\nmethod=manual\naddress1=10.0.0.5/24,10.0.0.1\n",
			"etc/NetworkManager/system-connections/b":              "[connection]\ntype=802-3-ethernet\n[802-3-ethernet]\nmac-address=00:50:56:AB:CD:01\n[ipv4]\nmethod=auto\n",
			"etc/NetworkManager/system-connections/c":              "[connection]\ntype=wifi\n[ipv4]\nmethod=auto\n",
		}, []NIC{
			{Name: "ens192", Addresses: []string{"10.0.0.5/24"}, By: ByName, File: "etc/NetworkManager/system-connections/a.nmconnection"},
			{MAC: mac, DHCP: true, By: ByMAC, File: "etc/NetworkManager/system-connections/b"},
		}},
		"ifcfg": {map[string]string{
			"etc/sysconfig/network-scripts/ifcfg-lo":     "DEVICE=lo\nIPADDR=127.0.0.1\n",
			"etc/sysconfig/network-scripts/ifcfg-ens192": "DEVICE=ens192\nBOOTPROTO=none\nIPADDR=10.0.0.5\nPREFIX=24\nHWADDR=00:50:56:AB:CD:01\n",
			"etc/sysconfig/network-scripts/ifcfg-ens224": "BOOTPROTO=dhcp\n",
		}, []NIC{
			{Name: "ens192", MAC: mac, Addresses: []string{"10.0.0.5/24"}, By: ByMAC, File: "etc/sysconfig/network-scripts/ifcfg-ens192"},
			{Name: "ens224", DHCP: true, By: ByName, File: "etc/sysconfig/network-scripts/ifcfg-ens224"},
		}},
		"networkd": {map[string]string{
			"etc/systemd/network/a.network": "[Match]\nName=ens192\n[Network]\nAddress=10.0.0.5/24\n",
			"etc/systemd/network/b.network": "[Match]\nMACAddress=" + mac + "\n[Network]\nDHCP=yes\n",
		}, []NIC{
			{Name: "ens192", Addresses: []string{"10.0.0.5/24"}, By: ByName, File: "etc/systemd/network/a.network"},
			{MAC: mac, DHCP: true, By: ByMAC, File: "etc/systemd/network/b.network"},
		}},
		"counted": {map[string]string{
			"etc/network/interfaces": "iface eth0 inet dhcp\niface br0 inet dhcp\n",
			"boot/grub/grub.cfg":     "linux /vmlinuz net.ifnames=0 quiet\n",
		}, []NIC{{Name: "eth0", DHCP: true, By: ByAny, File: "etc/network/interfaces"}}},
		"by hardware": {map[string]string{
			"etc/netplan/a.yaml":                           "network:\n  ethernets:\n    a: {match: {driver: vmxnet3}, set-name: lan0, dhcp4: true}\n    b: {match: {driver: [e1000], macaddress: '" + mac + "'}, addresses: [10.0.0.5/24]}\n    c: {match: {driver: '*', macaddress: '" + mac + "'}, dhcp4: true}\n",
			"etc/systemd/network/a.network":                "[Match]\nPath=pci-0000:0b:00.0\n[Network]\nAddress=10.0.0.6/24\n",
			"etc/systemd/network/b.network":                "[Match]\nDriver=virtio_net\n[Network]\nDHCP=yes\n",
			"etc/NetworkManager/system-connections/a.conf": "# made by cloud-init\n[connection]\ntype=ethernet\n[match]\ndriver=vmxnet3;\n[ipv4]\nmethod=auto\n",
		}, []NIC{
			{MAC: mac, Addresses: []string{"10.0.0.5/24"}, By: ByHardware, Match: "driver e1000", File: "etc/netplan/a.yaml"},
			{MAC: mac, DHCP: true, By: ByMAC, File: "etc/netplan/a.yaml"},
			{Name: "lan0", DHCP: true, By: ByHardware, Match: "driver vmxnet3", File: "etc/netplan/a.yaml"},
			{DHCP: true, By: ByHardware, Match: "driver vmxnet3", Maker: "cloud-init", File: "etc/NetworkManager/system-connections/a.conf"},
			{Addresses: []string{"10.0.0.6/24"}, By: ByHardware, Match: "path pci-0000:0b:00.0", File: "etc/systemd/network/a.network"},
			{DHCP: true, By: ByAny, Match: "driver virtio_net", File: "etc/systemd/network/b.network"},
		}},
		"below others": {map[string]string{
			"etc/network/interfaces":                                 "iface br0 inet static\n  bridge_ports ens192 none\n  address 10.0.0.5/24\niface ens224.7 inet dhcp\niface lan inet dhcp\n  bond-slaves ens225\n",
			"etc/netplan/a.yaml":                                     "network:\n  ethernets: {ens161: {}, ens162: {}}\n  bonds: {bond0: {interfaces: [ens161]}}\n  vlans: {v7: {id: 7, link: bond0}}\n",
			"etc/systemd/network/a.network":                          "[Match]\nName=ens256\n[Network]\nBond=bond1\n",
			"etc/NetworkManager/system-connections/a":                "[connection]\ntype=vlan\ninterface-name=vlan9\n[vlan]\nparent=ens257\n",
			"etc/NetworkManager/system-connections/b":                "[connection]\ntype=ethernet\ninterface-name=ens258\nmaster=team0\n",
			"etc/sysconfig/network-scripts/ifcfg-ens259":             "DEVICE=ens259\nMASTER=bond2\nSLAVE=yes\n",
			"etc/sysconfig/network/ifcfg-br3":                        "BRIDGE_PORTS='ens260 ens261'\nIPADDR=10.0.0.6/24\n",
			"etc/sysconfig/network/ifcfg-a-long-name-with-ids:0:1:2": "BOOTPROTO=none\n",
		}, []NIC{
			{Name: "ens192", By: ByName, Under: []string{"br0"}, File: "etc/network/interfaces"},
			{Name: "ens224", DHCP: true, By: ByName, Under: []string{"ens224.7"}, File: "etc/network/interfaces"},
			{Name: "ens225", By: ByName, Under: []string{"lan"}, File: "etc/network/interfaces"},
			{Name: "ens161", By: ByName, Under: []string{"bond0"}, File: "etc/netplan/a.yaml"},
			{Name: "ens257", By: ByName, Under: []string{"vlan9"}, File: "etc/NetworkManager/system-connections/a"},
			{Name: "ens258", By: ByName, Under: []string{"team0"}, File: "etc/NetworkManager/system-connections/b"},
			{Name: "ens259", By: ByName, Under: []string{"bond2"}, File: "etc/sysconfig/network-scripts/ifcfg-ens259"},
			{Name: "ens260", By: ByName, Under: []string{"br3"}, File: "etc/sysconfig/network/ifcfg-br3"},
			{Name: "ens261", By: ByName, Under: []string{"br3"}, File: "etc/sysconfig/network/ifcfg-br3"},
			{Name: "ens256", By: ByName, Under: []string{"bond1"}, File: "etc/systemd/network/a.network"},
		}},
		"broken": {map[string]string{"etc/netplan/50.yaml": "network: [\n"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := Read(budgettest.New(t), treetest.Memory(test.files)).NICs
			if len(got) != len(test.want) || len(got) > 0 && !reflect.DeepEqual(got, test.want) {
				t.Errorf("%+v\nwant\n%+v", got, test.want)
			}
		})
	}
}

func TestAgents(t *testing.T) {
	g := Read(budgettest.New(t), treetest.Memory(map[string]string{"usr/bin/vmtoolsd": "x", "usr/sbin/qemu-ga": "x", "etc/selinux/config": "# SELINUX=no\nSELINUX=enforcing\nSELINUXTYPE=targeted\n"}))
	if !g.VMwareTools || !g.GuestAgent || g.SELinux != "enforcing" {
		t.Errorf("guest %+v, want VMware Tools, the guest agent and SELinux", g)
	}
	if g = Read(budgettest.New(t), treetest.Memory(nil)); g.VMwareTools || g.GuestAgent || g.SELinux != "" || len(g.Kernels) != 0 {
		t.Errorf("empty tree: %+v", g)
	}
}

// FuzzRead parses fuzzed text as every configuration file.
func FuzzRead(f *testing.F) {
	f.Add("iface a inet static\naddress 1\nnetmask 255.0.0.0\n")
	f.Add("network:\n  ethernets:\n    a: {addresses: [1]}\n")
	f.Add("[Match]\nMACAddress=1\n[Link]\nName=b")
	f.Add("070701")
	f.Fuzz(func(t *testing.T, text string) {
		files := map[string]string{}
		for _, path := range []string{
			"etc/fstab", "etc/crypttab", "etc/network/interfaces", "etc/netplan/a.yaml", "etc/NetworkManager/system-connections/a",
			"etc/sysconfig/network-scripts/ifcfg-a", "etc/systemd/network/a.network", "etc/systemd/network/a.link", "etc/udev/rules.d/a.rules",
			"boot/grub/grub.cfg", "boot/vmlinuz-1", "boot/initrd.img-1", "lib/modules/1/modules.dep",
		} {
			files[path] = text
		}
		b, memory := budgettest.New(t), treetest.Memory(files)
		defer budgettest.Charged(t, b)()
		g := Read(b, memory)
		if len(g.DiskNames) > maxNames {
			t.Errorf("%d names", len(g.DiskNames))
		}
	})
}
