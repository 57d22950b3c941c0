package convert

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/guest/extwrite"
	"github.com/decamp/decamp/internal/guest/linux"
)

const (
	firstMAC  = "00:50:56:ab:cd:01"
	secondMAC = "00:50:56:ab:cd:02"
)

// twoSeats returns two cards of one model, with the PCI addresses of VMware.
func twoSeats() []SourceNIC {
	return []SourceNIC{{firstMAC, "0000:0b:00.0", "vmxnet3"}, {secondMAC, "0000:13:00.0", "vmxnet3"}}
}

// mixedSeats returns two cards of different models.
func mixedSeats() []SourceNIC {
	return []SourceNIC{{firstMAC, "0000:0b:00.0", "vmxnet3"}, {secondMAC, "0000:02:01.0", "e1000"}}
}

func TestUnbind(t *testing.T) {
	const unit, keyfile, rules, plan = "etc/systemd/network/a.network", "etc/NetworkManager/system-connections/a", "etc/udev/rules.d/a.rules", "etc/netplan/a.yaml"
	for name, tt := range map[string]struct {
		seats      []SourceNIC
		file       string
		text, want string // content before and after; an empty want means unchanged
		notes      int    // number of notes
	}{
		"networkd by path":   {twoSeats(), unit, "# mine\n[Match]\nPath=pci-0000:13:00.0\n[Network]\nAddress=10.0.0.5/24\n", "# mine\n[Match]\nMACAddress=" + secondMAC + "\n[Network]\nAddress=10.0.0.5/24\n", 0},
		"networkd by glob":   {twoSeats(), unit, "[Match]\nPath=pci-0000:0b:*\n", "[Match]\nMACAddress=" + firstMAC + "\n", 0},
		"path and MAC":       {twoSeats(), unit, "[Match]\nPath=pci-0000:13:00.0\nMACAddress=" + secondMAC + "\n", "[Match]\nMACAddress=" + secondMAC + "\n", 0},
		"all by driver":      {twoSeats(), unit, "[Match]\nDriver=vmxnet3\n[Network]\nDHCP=yes\n", "[Match]\nDriver=virtio_net\n[Network]\nDHCP=yes\n", 0},
		"one by driver":      {mixedSeats(), unit, "[Match]\nDriver=e1000\n", "[Match]\nMACAddress=" + secondMAC + "\n", 0},
		"any driver":         {twoSeats(), unit, "[Match]\nDriver=v*\n", "", 0},
		"unknown address":    {twoSeats(), unit, "[Match]\nPath=pci-0000:99:00.0\n", "", 1},
		"another section":    {twoSeats(), unit, "[Link]\nPath=pci-0000:13:00.0\n", "", 0},
		"commented out":      {twoSeats(), unit, "[Match]\n#Path=pci-0000:13:00.0\nName=a\n", "", 0},
		"a key without file": {nil, unit, "[Match]\nPath=pci-0000:13:00.0\n", "", 1},

		"keyfile by path":   {twoSeats(), keyfile, "[connection]\ntype=ethernet\n[match]\npath=pci-0000:13:00.0;\n[ethernet]\nmtu=9000\n", "[connection]\ntype=ethernet\n[match]\n[ethernet]\nmac-address=" + strings.ToUpper(secondMAC) + "\nmtu=9000\n", 0},
		"keyfile of old":    {mixedSeats(), keyfile, "[match]\ndriver=e1000;\n[802-3-ethernet]\n", "[match]\n[802-3-ethernet]\nmac-address=" + strings.ToUpper(secondMAC) + "\n", 0},
		"keyfile, no card":  {twoSeats(), keyfile, "[match]\npath=pci-0000:0b:00.0;", "\n[ethernet]\nmac-address=" + strings.ToUpper(firstMAC) + "\n", 0},
		"keyfile by driver": {twoSeats(), keyfile, "[match]\ndriver=vmxnet3;\n", "[match]\ndriver=virtio_net;\n", 0},

		"rule by place":  {twoSeats(), rules, `SUBSYSTEM=="net", KERNELS=="0000:13:00.0", NAME="lan"` + "\n", `SUBSYSTEM=="net", ATTR{address}=="` + secondMAC + `", NAME="lan"` + "\n", 0},
		"rule by path":   {twoSeats(), rules, `SUBSYSTEM=="net", ENV{ID_PATH}=="pci-0000:0b:00.0", NAME="lan"`, `SUBSYSTEM=="net", ATTR{address}=="` + firstMAC + `", NAME="lan"`, 0},
		"rule of udev":   {twoSeats(), rules, `SUBSYSTEM=="net", DRIVERS=="?*", ATTR{address}=="` + firstMAC + `", NAME="eth0"` + "\n# " + `SUBSYSTEM=="net", DRIVERS=="vmxnet3", NAME="x"` + "\n", "", 0},
		"rule with both": {twoSeats(), rules, `SUBSYSTEM=="net", DRIVERS=="vmxnet3", ATTR{address}=="` + firstMAC + `", NAME="eth0"`, `SUBSYSTEM=="net", DRIVERS=="virtio_net", ATTR{address}=="` + firstMAC + `", NAME="eth0"`, 0},
		"rule of a disk": {twoSeats(), rules, `SUBSYSTEM=="block", KERNELS=="0000:13:00.0", NAME="x"`, "", 0},

		"netplan all": {twoSeats(), plan, "network:\n  ethernets:\n    a: # one\n      match:\n        driver: vmxnet3 # ours\n      dhcp4: true\n", "network:\n  ethernets:\n    a: # one\n      match:\n        driver: virtio_net # ours\n      dhcp4: true\n", 0},
		"netplan one": {mixedSeats(), plan, "network: {ethernets: {a: {match: {driver: 'e1000'}, set-name: lan, addresses: [10.0.0.5/24]}}}\n", "network: {ethernets: {a: {match: {macaddress: \"" + secondMAC + "\"}, set-name: lan, addresses: [10.0.0.5/24]}}}\n", 0},
		"netplan both of two": {mixedSeats(), plan, "network:\n  ethernets:\n    a:\n      match: {driver: vmxnet3}\n    b:\n      match: {driver: \"e1000\"}\n",
			"network:\n  ethernets:\n    a:\n      match: {macaddress: \"" + firstMAC + "\"}\n    b:\n      match: {macaddress: \"" + secondMAC + "\"}\n", 0},
		"netplan with MAC":  {mixedSeats(), plan, "network:\n  ethernets:\n    a:\n      match:\n        macaddress: " + secondMAC + "\n        driver: e1000\n", "network:\n  ethernets:\n    a:\n      match:\n        macaddress: " + secondMAC + "\n        driver: virtio_net\n", 0},
		"netplan by a list": {mixedSeats(), plan, "network:\n  ethernets:\n    a:\n      match:\n        driver: [vmxnet3, e1000]\n", "", 1},
		"netplan, virtio":   {mixedSeats(), plan, "network:\n  ethernets:\n    a:\n      match:\n        driver: [vmxnet3, virtio_net]\n", "", 0},
		"netplan folded":    {mixedSeats(), plan, "network:\n  ethernets:\n    a:\n      match:\n        driver: >-\n          e1000\n", "", 1},
		"no YAML":           {mixedSeats(), plan, "network: [\n", "", 1},
		"of another driver": {mixedSeats(), plan, "network:\n  ethernets:\n    a:\n      match:\n        driver: hv_netvsc\n", "", 1},
	} {
		c := &conversion{seats: tt.seats, skippedNICs: map[string]bool{}}
		rewrite := map[string]func(file, text string) string{unit: c.unbindUnit, keyfile: c.unbindKeyfile, rules: c.unbindRules, plan: c.unbindNetplan}[tt.file]
		want := tt.want
		if want == "" {
			want = tt.text
		}
		if tt.text == "[match]\npath=pci-0000:0b:00.0;" {
			want = "[match]\n" + tt.want
		}
		got := rewrite(tt.file, tt.text)
		if got != want || len(c.Notes) != tt.notes {
			t.Errorf("%s:\n%q\nwant\n%q\nnotes %q", name, got, want, c.Notes)
		}
		if again := rewrite(tt.file, got); again != got {
			t.Errorf("%s: the second run changes it to\n%q", name, again)
		}
	}
}

// A guest with several network configurations keeps its addresses: each file matches its card by MAC, the initramfs
// has the names too, and cloud-init does not overwrite the files.
func TestNetworkConfigurationKeepsItsCard(t *testing.T) {
	const gone = "00:50:56:00:00:99"
	files := debianFiles(t).and(files{
		"etc/os-release":                          "ID=debian\n",
		"etc/systemd/network/50-lan.link":         "[Match]\nPath=pci-0000:0b:00.0\n[Link]\nName=lan0\n",
		"etc/netplan/50-cloud-init.yaml":          "# This file is generated by cloud-init\nnetwork:\n  ethernets:\n    a:\n      match: {driver: vmxnet3, macaddress: '" + firstMAC + "'}\n      addresses: [10.0.0.5/24]\n",
		"etc/cloud/cloud.cfg":                     "datasource_list: [VMware]\n",
		"etc/sysconfig/network-scripts/ifcfg-old": "DEVICE=ens256\nHWADDR=" + gone + "\nIPADDR=10.0.0.9\n",
	})
	disk := makeDisk(t, part{files: files, uuid: rootUUID, size: 40, args: "-t ext4"}, part{size: 4, args: "swap"})
	result, err := convertOn(t, Options{SourceNICs: twoSeats()}, disk)
	if err != nil {
		t.Fatal(err)
	}
	root := partAt(t, disk, 1, 40)
	const lan = "[Match]\nMACAddress=" + firstMAC + "\n[Link]\nName=lan0\n"
	for path, want := range map[string]string{
		"/etc/systemd/network/50-lan.link":             lan,
		"/etc/netplan/50-cloud-init.yaml":              "# This file is generated by cloud-init\nnetwork:\n  ethernets:\n    a:\n      match: {driver: virtio_net, macaddress: '" + firstMAC + "'}\n      addresses: [10.0.0.5/24]\n",
		"/etc/cloud/cloud.cfg.d/99-decamp-network.cfg": "# Keeps the network as it was on other hardware.\nnetwork: {config: disabled}\n",
		"/etc/sysconfig/network-scripts/ifcfg-old":     "DEVICE=ens256\nHWADDR=" + gone + "\nIPADDR=10.0.0.9\n",
	} {
		if got := catFile(t, root, path); got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
	if got := unpackInitramfs(t, catFile(t, root, "/boot/initrd.img-"+release))["etc/systemd/network/50-lan.link"]; got != lan {
		t.Errorf("the link file in the initramfs is %q, want %q", got, lan)
	}
	if !slices.ContainsFunc(result.Notes, func(n string) bool { return strings.Contains(n, gone) }) {
		t.Errorf("notes %q do not report the missing card %s", result.Notes, gone)
	}
	report, err := guest.Detect(t.Context(), disk)
	if err != nil || report.Linux == nil {
		t.Fatalf("report %+v without Linux, or error %v", report, err)
	}
	for _, n := range report.Linux.NICs {
		if n.By != linux.ByMAC {
			t.Errorf("after the conversion a card is not matched by MAC: %+v", n)
		}
	}
	again, err := convertOn(t, Options{SourceNICs: twoSeats()}, disk)
	if err != nil || len(again.Changes) != 0 {
		t.Errorf("the second run changed %v, error %v", again.Changes, err)
	}
}

// existingPaths is a file system with these empty files. Writes fail.
type existingPaths struct {
	FileSystem // nil: other methods panic
	paths      []string
}

func (f existingPaths) Size(path string) (int64, error) {
	if slices.Contains(f.paths, path) {
		return 0, nil
	}
	return 0, fs.ErrNotExist
}

func (existingPaths) ReadFile(string, int64) ([]byte, error)   { return nil, fs.ErrNotExist }
func (existingPaths) Readlink(string) (string, error)          { return "", fs.ErrNotExist }
func (existingPaths) Mkdir(path string, _ extwrite.Attr) error { return errors.New("Mkdir " + path) }

// The configuration of cloud-init stays unchanged if none of its addresses is static, or if cloud-init is disabled or
// not installed.
func TestCloudInitIsUnchanged(t *testing.T) {
	static := []string{"10.0.0.5/24"}
	for name, c := range map[string]*conversion{
		"no static address": {
			nics: []linux.NIC{{Maker: "cloud-init", DHCP: true}, {Addresses: static}},
			tree: tree{{fs: existingPaths{paths: []string{"etc/cloud"}}}},
		},
		"disabled": {
			nics: []linux.NIC{{Maker: "cloud-init", Addresses: static}},
			tree: tree{{fs: existingPaths{paths: []string{"etc/cloud", "etc/cloud/cloud-init.disabled"}}}},
		},
		"not installed": {
			nics: []linux.NIC{{Maker: "cloud-init", Addresses: static}},
			tree: tree{{fs: existingPaths{}}},
		},
	} {
		if err := c.keepFromCloudInit(); err != nil || len(c.Changes) != 0 {
			t.Errorf("%s: changes %v, error %v", name, c.Changes, err)
		}
	}
}

// FuzzUnbind passes fuzzed text to all functions that rewrite configurations. They terminate, and a second run
// changes nothing.
func FuzzUnbind(f *testing.F) {
	f.Add("[Match]\nPath=pci-0000:13:00.0\n[match]\ndriver=e1000;\npath=a\n")
	f.Add(`SUBSYSTEM=="net", KERNELS=="0000:13:00.0", DRIVERS=="e1000", NAME="lan"`)
	f.Add("network:\n  ethernets:\n    a: &x\n      match: {driver: e1000}\n    b: *x\n")
	f.Fuzz(func(t *testing.T, text string) {
		c := &conversion{seats: mixedSeats(), skippedNICs: map[string]bool{}}
		for _, rewrite := range []func(file, text string) string{c.unbindUnit, c.unbindRules, c.unbindNetplan, c.unbindKeyfile} {
			if once := rewrite("a", text); rewrite("a", once) != once {
				t.Errorf("%q is rewritten to %q, and then to %q", text, once, rewrite("a", once))
			}
		}
	})
}
