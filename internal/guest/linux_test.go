package guest

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/rawfile"
	"github.com/decamp/decamp/internal/efi"
	"github.com/decamp/decamp/internal/guest/budget"
	"github.com/decamp/decamp/internal/guest/linux"
	"github.com/decamp/decamp/internal/guest/tree/treetest"
	tinyguest "github.com/decamp/decamp/test/guest"
)

// newInitramfs returns a gzip-compressed cpio archive with empty modules of the given names.
func newInitramfs(t testing.TB, modules ...string) string {
	t.Helper()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	for _, m := range modules {
		writeNewc(z, "usr/lib/modules/6.1.0/kernel/"+m+".ko")
	}
	writeNewc(z, "conf/initramfs.conf")
	writeNewc(z, "TRAILER!!!")
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return packed.String()
}

func writeNewc(w io.Writer, name string) {
	fmt.Fprintf(w, "070701%088x%08x%08x%s", 0, len(name)+1, 0, name+strings.Repeat("\x00", 1+(-(110+len(name)+1)&3)))
}

const (
	rootUUID = "6f3f8ab1-0000-4000-8000-000000000001"
	bootUUID = "6f3f8ab1-0000-4000-8000-000000000002"
	modsDep  = "kernel/virtio_pci.ko:\nkernel/virtio_scsi.ko:\nkernel/sd_mod.ko:\n"
	netByMAC = "network:\n  ethernets:\n    a: {match: {macaddress: 00:50:56:00:00:01}, set-name: ens192, addresses: [10.0.0.5/24]}\n"
	byName   = "iface ens192 inet static\naddress 10.0.0.5/24\n"
)

// linuxFiles returns the files of a Linux guest whose initramfs has the given modules.
func linuxFiles(t testing.TB, modules ...string) map[string]string {
	return map[string]string{
		"etc/os-release":                "ID=seed\nVERSION_ID=3\n",
		"etc/fstab":                     "UUID=" + rootUUID + " / ext4 defaults 0 1\nUUID=" + bootUUID + " /boot ext4 defaults 0 2\n",
		"boot/vmlinuz-6.1.0":            "kernel",
		"boot/initrd.img-6.1.0":         newInitramfs(t, modules...),
		"boot/grub/grub.cfg":            "linux /vmlinuz-6.1.0 root=UUID=" + rootUUID + "\n",
		"lib/modules/6.1.0/modules.dep": modsDep,
	}
}

// withFiles adds pairs of path and content to files.
func withFiles(files map[string]string, pairs ...string) map[string]string {
	for i := 0; i < len(pairs); i += 2 {
		files[pairs[i]] = pairs[i+1]
	}
	return files
}

// writeFolder writes files to a new folder. cut changes their paths or excludes them.
func writeFolder(t testing.TB, files map[string]string, cut func(path string) (string, bool)) string {
	t.Helper()
	dir := t.TempDir()
	for path, text := range files {
		path, ok := cut(path)
		if !ok {
			continue
		}
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func everyPath(path string) (string, bool) { return path, true }

// extDisk creates an MBR disk with one ext4 partition that has the files.
func extDisk(t *testing.T, files map[string]string) string {
	path := blankDisk(t, 24)
	runTool(t, "label: dos\nstart=2048, size=40000, type=83\n", "sfdisk", "-q", path)
	runTool(t, "", "mke2fs", "-q", "-t", "ext4", "-U", rootUUID, "-L", "top", "-E", "offset=1048576", "-d", writeFolder(t, files, everyPath), path, "20000k")
	return path
}

func TestVerdicts(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	virtio := []string{"virtio_pci", "virtio_scsi", "sd_mod"}
	for name, test := range map[string]struct {
		files   map[string]string
		verdict string
		codes   []string
	}{
		"virtio":     {linuxFiles(t, virtio...), "will boot with virtio-scsi without changes", nil},
		"by MAC":     {withFiles(linuxFiles(t, virtio...), "etc/netplan/a.yaml", netByMAC), "will boot with virtio-scsi without changes; keeps ens192 by MAC", nil},
		"sda stays":  {withFiles(linuxFiles(t, virtio...), "etc/fstab", "/dev/sda1 / ext4\n"), "will boot with virtio-scsi without changes", nil},
		"blk only":   {linuxFiles(t, "virtio_pci", "virtio_blk"), "will boot with virtio-blk without changes", nil},
		"hda":        {withFiles(linuxFiles(t, virtio...), "etc/fstab", "/dev/hda1 / ext4\n"), "will boot with virtio-scsi after linux-append", []string{"disk-name"}},
		"no virtio":  {linuxFiles(t, "vmw_pvscsi", "sd_mod"), "will boot with virtio-scsi after linux-append", nil},
		"no drivers": {withFiles(linuxFiles(t, "vmw_pvscsi"), "lib/modules/6.1.0/modules.dep", ""), "will boot only with the compat profile: boot/vmlinuz-6.1.0 has no driver for virtio-scsi", nil},
		"no kernel":  {map[string]string{"etc/os-release": "ID=x\n"}, "will boot only with the compat profile: no kernel was found", nil},
		"by name": {withFiles(linuxFiles(t, virtio...), "etc/network/interfaces", byName),
			"will boot with virtio-scsi without changes; ens192 must be bound to the MAC by linux-append", []string{"nic-name"}},
		"by driver": {withFiles(linuxFiles(t, virtio...), "etc/systemd/network/a.network", "[Match]\nDriver=vmxnet3\n[Network]\nAddress=10.0.0.5/24\n"),
			"will boot with virtio-scsi without changes; etc/systemd/network/a.network must select its card by another property than driver vmxnet3, by linux-append", []string{"nic-hardware"}},
		"rubbish": {withFiles(linuxFiles(t), "boot/initrd.img-6.1.0", "rubbish"),
			"will boot only with the compat profile: boot/initrd.img-6.1.0 is not supported", []string{"initramfs"}},
		"crypttab": {withFiles(linuxFiles(t, virtio...), "etc/crypttab", "data UUID=5 none luks\n"),
			"will boot with virtio-scsi without changes; requests its LUKS passphrase at boot", nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := detectFile(t, extDisk(t, test.files))
			codes := slices.DeleteFunc(warningCodes(r), func(c string) bool { return c == "little-room" })
			if r.Verdict != test.verdict || !slices.Equal(codes, test.codes) {
				t.Errorf("%q, warnings %v\nwant %q, %q", r.Verdict, r.Warnings, test.verdict, test.codes)
			}
			p := r.Partitions[0]
			if p.FSUUID != rootUUID || p.Label != "top" || p.Usage == nil || p.Usage.Free <= 0 || p.Usage.Size != 20000<<10 {
				t.Errorf("partition %+v, usage %+v", p, p.Usage)
			}
		})
	}
}

func TestVerdictsOfTheTestGuests(t *testing.T) {
	for name, want := range map[tinyguest.Name]string{
		tinyguest.BIOS:     "will boot with virtio-scsi without changes",
		tinyguest.UEFI:     "will boot with virtio-scsi without changes",
		tinyguest.NoVirtio: "will boot with virtio-scsi after linux-append",
		tinyguest.Vendor:   "will boot with virtio-scsi after linux-append; EFI firmware finds its loader only after linux-append",
	} {
		if r := detectFile(t, tinyguest.Image(t, name)); r.Verdict != want {
			t.Errorf("%s: %q, want %q", name, r.Verdict, want)
		}
	}
}

// A separate /boot is found by each form of device name in fstab. A warning reports its little free space.
func TestSeparateBoot(t *testing.T) {
	for _, boot := range []string{"UUID=" + bootUUID, "/dev/disk/by-uuid/" + bootUUID, "/dev/sda1"} {
		checkSeparateBoot(t, boot)
	}
}

func checkSeparateBoot(t *testing.T, spec string) {
	all := withFiles(linuxFiles(t, "virtio_pci", "virtio_scsi", "sd_mod"), "etc/fstab", "UUID="+rootUUID+" / ext4\n"+spec+" /boot ext4 defaults 0 2\n")
	root := writeFolder(t, all, func(path string) (string, bool) { return path, !strings.HasPrefix(path, "boot/") })
	boot := writeFolder(t, all, func(path string) (string, bool) { return strings.CutPrefix(path, "boot/") })
	path := blankDisk(t, 64)
	runTool(t, "label: gpt\nstart=2048, size=20480, type=linux\nstart=22528, size=40960, type=linux\n", "sfdisk", "-q", path)
	runTool(t, "", "mke2fs", "-q", "-t", "ext4", "-U", bootUUID, "-E", "offset=1048576", "-d", boot, path, "10m")
	runTool(t, "", "mke2fs", "-q", "-t", "ext4", "-U", rootUUID, "-E", "offset=11534336", "-d", root, path, "20m")
	r := detectFile(t, path)
	if r.Verdict != "will boot with virtio-scsi without changes" || !slices.Equal(warningCodes(r), []string{"little-room"}) {
		t.Errorf("%s: verdict %q, warnings %v", spec, r.Verdict, r.Warnings)
	}
	if r.Linux == nil || len(r.Linux.Kernels) != 1 || !slices.Equal(r.Linux.Loaders, []string{"grub"}) {
		t.Errorf("Linux %+v, want one kernel and grub", r.Linux)
	}
}

func TestXFSGuest(t *testing.T) {
	dir := writeFolder(t, withFiles(linuxFiles(t, "vmw_pvscsi"), "boot/grub/grub.cfg", "linux /vmlinuz resume=/dev/sda2\n"), everyPath)
	proto := filepath.Join(t.TempDir(), "proto")
	if err := os.WriteFile(proto, []byte("/none\n0 0\nd--755 0 0\n"+protoOf(t, dir)+"$\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	path := blankDisk(t, 320)
	runTool(t, "", "mkfs.xfs", "-q", "-L", "top", "-p", proto, path)
	r := detectFile(t, path)
	want := "will boot with virtio-scsi after linux-append in an appliance"
	if r.WholeDisk != XFS || r.OS.ID != "seed" || r.Verdict != want || r.Linux.Resume != "/dev/sda2" {
		t.Errorf("%+v, %+v, warnings %v", r, r.Linux, r.Warnings)
	}
}

// The root is found in the subvolumes that distributions use.
func TestBtrfsGuest(t *testing.T) {
	for _, top := range []string{"", "@", "root"} {
		dir := writeFolder(t, linuxFiles(t, "virtio_pci", "virtio_scsi", "sd_mod"), func(path string) (string, bool) { return filepath.Join(top, path), true })
		path := blankDisk(t, 160)
		runTool(t, "", "mkfs.btrfs", "-q", "-L", "top", "--rootdir", dir, path)
		r := detectFile(t, path)
		if r.WholeDisk != Btrfs || r.OS.ID != "seed" || r.Verdict != "will boot with virtio-scsi without changes" || len(r.Warnings) != 0 {
			t.Errorf("%q: %+v, %q, warnings %v", top, r.OS, r.Verdict, r.Warnings)
		}
	}
}

// protoOf returns the description of a folder for mkfs.xfs -p.
func protoOf(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var p strings.Builder
	for _, e := range entries {
		if path := filepath.Join(dir, e.Name()); e.IsDir() {
			fmt.Fprintf(&p, "%s d--755 0 0\n%s$\n", e.Name(), protoOf(t, path))
		} else {
			fmt.Fprintf(&p, "%s ---644 0 0 %s\n", e.Name(), path)
		}
	}
	return p.String()
}

func TestLockedGuest(t *testing.T) {
	path := blankDisk(t, 16)
	runTool(t, "label: dos\nstart=2048, type=83\n", "sfdisk", "-q", path)
	patchFile(t, path, 1<<20, "LUKS\xba\xbe\x00\x02")
	r := detectFile(t, path)
	if want := "partition 1 is encrypted and cannot be read: will boot only with the compat profile; requests its LUKS passphrase at boot; virtio requires virt-v2v with the passphrase (--key-file)"; r.Verdict != want {
		t.Errorf("verdict %q, want %q", r.Verdict, want)
	}
	if len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0].Text, "(LUKS2)") {
		t.Errorf("warnings %v, want one about LUKS2", r.Warnings)
	}
}

// A disk without partitions that is encrypted with LUKS is reported like an encrypted partition.
func TestLockedDisk(t *testing.T) {
	const uuid = "0b5dd5c6-31b2-4d4a-9d3e-6a3b0c1f2e4d"
	path := blankDisk(t, 16)
	patchFile(t, path, 0, "LUKS\xba\xbe\x00\x02")
	patchFile(t, path, 168, uuid)
	r := detectFile(t, path)
	if r.Table != None || r.WholeDisk != LUKS || r.WholeUUID != uuid || !strings.HasPrefix(r.Verdict, "the whole disk is encrypted and cannot be read") {
		t.Errorf("report %+v", r)
	}
	if len(r.Warnings) != 1 || r.Warnings[0].Code != "encrypted" || !strings.Contains(r.Warnings[0].Text, "the whole disk is encrypted (LUKS2)") {
		t.Errorf("warnings %v, want one about LUKS2", r.Warnings)
	}
}

func TestHibernatedLinux(t *testing.T) {
	path := blankDisk(t, 16)
	runTool(t, "", "mkswap", path)
	if r := detectFile(t, path); r.WholeDisk != Swap || len(r.Warnings) != 0 {
		t.Errorf("report %+v, want swap without warnings", r)
	}
	patchFile(t, path, 4096-10, "S1SUSPEND\x00")
	if r := detectFile(t, path); r.WholeDisk != Swap || !slices.Equal(warningCodes(r), []string{"hibernated"}) {
		t.Errorf("report %+v, want swap with the warning hibernated", r)
	}
}

// lvmDisks returns two disks with a volume root, which is an ext4 file system with the files. In the images of
// lvm/testdata/make.sh each block of the volume contains its number, as lvm2 maps it. lvmDisks replaces each numbered
// block with that block of the file system.
func lvmDisks(t *testing.T, files map[string]string) []disk.Source {
	t.Helper()
	fs := blankDisk(t, 8)
	runTool(t, "", "mke2fs", "-q", "-t", "ext4", "-b", "4096", "-U", rootUUID, "-d", writeFolder(t, files, everyPath), fs)
	data, err := os.ReadFile(fs)
	if err != nil {
		t.Fatal(err)
	}
	var disks []disk.Source
	for n := range 2 {
		pv := treetest.Unpacked(t, fmt.Sprintf("lvm/testdata/pv%d.img.gz", n))
		for at := 0; at < len(pv); at += 4096 {
			var block int
			if k, _ := fmt.Sscanf(string(pv[at:at+16]), "root %d", &block); k == 1 {
				copy(pv[at:at+4096], data[block*4096:])
			}
		}
		disks = append(disks, &memory{data: pv})
	}
	return disks
}

func TestGuestOnLVMOverTwoDisks(t *testing.T) {
	content := withFiles(linuxFiles(t, "virtio_pci", "virtio_scsi", "sd_mod"), "etc/fstab", "/dev/mapper/decamptest-root / ext4\n")
	disks := lvmDisks(t, content)
	for name, order := range map[string][]disk.Source{"in order": disks, "reversed": {disks[1], disks[0]}} {
		reports, err := DetectAll(t.Context(), order)
		if err != nil {
			t.Fatal(err)
		}
		r := reports[0]
		if r.OS.ID != "seed" || r.Verdict != "will boot with virtio-scsi without changes" || reports[1].Verdict != "" {
			t.Errorf("%s: OS %+v, verdict %q, warnings %v", name, r.OS, r.Verdict, r.Warnings)
		}
		if len(r.Volumes) != 3 || r.Volumes[0].FSUUID != rootUUID || r.Volumes[0].FileSystem != Ext4 || r.Volumes[0].Usage == nil || r.Volumes[2].Kind != "striped" {
			t.Errorf("%s: volumes %+v", name, r.Volumes)
		}
		if r.WholeDisk != LVM2 || reports[1].WholeDisk != LVM2 {
			t.Errorf("%s: %s and %s", name, r.WholeDisk, reports[1].WholeDisk)
		}
	}
	r, err := Detect(t.Context(), disks[0])
	if err != nil || !slices.Contains(warningCodes(r), "lvm-missing") || r.Verdict != "" {
		t.Errorf("one disk of two: %q, %v, %v", r.Verdict, r.Warnings, err)
	}
}

// A warning reports an EFI system partition without a fallback loader. The report has the loaders on it.
func TestEFIFallback(t *testing.T) {
	path := blankDisk(t, 24)
	runTool(t, "label: gpt\nstart=2048, type=uefi\n", "sfdisk", "-q", path)
	esp := blankDisk(t, 20)
	runTool(t, "", "mkfs.fat", "-n", "ESP", "-i", "12345678", esp)
	runTool(t, "", "mmd", "-i", esp, "::/EFI", "::/EFI/debian", "::/EFI/Boot")
	runTool(t, "loader", "mcopy", "-i", esp, "-", "::/EFI/debian/shimx64.efi")
	for _, want := range []struct {
		fallback bool
		codes    []string
	}{{false, []string{"efi-fallback"}}, {true, nil}} {
		data, err := os.ReadFile(esp)
		if err != nil {
			t.Fatal(err)
		}
		patchFile(t, path, 1<<20, string(data))
		r := detectFile(t, path)
		if r.Boot.EFIFallback != want.fallback || !slices.Equal(warningCodes(r), want.codes) {
			t.Errorf("boot %+v, warnings %v", r.Boot, r.Warnings)
		}
		if p := r.Partitions[0]; p.FSUUID != "1234-5678" || p.Label != "ESP" || p.Usage == nil {
			t.Errorf("partition %+v", p)
		}
		if len(r.Loaders) != 1 || r.Loaders[0].Label != "debian" || r.Loaders[0].File != `\EFI\debian\shimx64.efi` || !r.Loaders[0].Active() ||
			r.Loaders[0].Partition != (efi.Partition{Number: 1, Start: 2048, Size: uint64(r.Partitions[0].Len / 512), GUID: guidOf(t, r.Partitions[0].UUID)}) {
			t.Errorf("loaders %+v", r.Loaders)
		}
		runTool(t, "loader", "mcopy", "-o", "-i", esp, "-", "::/EFI/Boot/bootx64.efi")
	}
	csv := "\xff\xfe"
	for _, c := range "fbx64.efi,no,,\nshimx64.efi,Debian GNU/Linux,,This is the boot entry for debian\n" {
		csv += string([]byte{byte(c), 0})
	}
	runTool(t, csv, "mcopy", "-i", esp, "-", "::/EFI/debian/BOOTX64.CSV")
	data, err := os.ReadFile(esp)
	if err != nil {
		t.Fatal(err)
	}
	patchFile(t, path, 1<<20, string(data))
	if r := detectFile(t, path); len(r.Loaders) != 1 || r.Loaders[0].Label != "Debian GNU/Linux" {
		t.Errorf("loaders %+v", r.Loaders)
	}
}

func guidOf(t *testing.T, s string) efi.GUID {
	t.Helper()
	g, err := efi.ParseGUID(s)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// EFIState returns the boot entries of the firmware whose partition is on the disks. If none is active, it adds the
// loader of the operating system of the guest.
func TestEFIState(t *testing.T) {
	const here, elsewhere = "0d7a2c5e-1f7d-4f5a-9a41-4b8ae11c2f01", "0d7a2c5e-1f7d-4f5a-9a41-4b8ae11c2f02"
	entry := func(label, uuid, file string, attributes uint32) efi.Entry {
		return efi.Entry{Label: label, File: file, Attributes: attributes, Partition: efi.Partition{GUID: guidOf(t, uuid)}}
	}
	held := func(label, uuid string) efi.Entry { return entry(label, uuid, `\EFI\held.efi`, efi.Active) }
	debian, ubuntu := entry("debian", here, `\EFI\debian\shimx64.efi`, 1), entry("ubuntu", here, `\EFI\ubuntu\shimx64.efi`, 1)
	windows := entry("Windows Boot Manager", here, `\EFI\Microsoft\Boot\bootmgfw.efi`, 1)
	for name, tt := range map[string]struct {
		held    []efi.Entry
		loaders []efi.Entry
		system  string
		want    string
	}{
		"nothing":                      {},
		"held":                         {[]efi.Entry{held("b", here), held("a", here)}, []efi.Entry{debian}, "debian", "b a"},
		"held, disk missing":           {[]efi.Entry{held("b", elsewhere)}, []efi.Entry{debian}, "debian", "debian"},
		"held, not active":             {[]efi.Entry{entry("off", here, `\x.efi`, 0)}, []efi.Entry{debian}, "debian", "off debian"},
		"one loader of another vendor": {nil, []efi.Entry{debian}, "raspbian", "debian"},
		"two, one of the OS":           {nil, []efi.Entry{ubuntu, debian}, "debian", "debian"},
		"two others":                   {nil, []efi.Entry{ubuntu, debian}, "arch", ""},
		"Windows and another":          {nil, []efi.Entry{debian, windows}, WindowsID, "Windows Boot Manager"},
	} {
		r := Report{Table: GPT, Partitions: []Partition{{UUID: here}}, Loaders: tt.loaders, OS: OS{ID: tt.system}}
		switch tt.system {
		case "":
		case WindowsID:
			r.Windows = &Windows{}
		default:
			r.Linux = &linux.Guest{}
		}
		var labels []string
		for _, e := range EFIState([]Report{r}, efi.State{Entries: tt.held}).Entries {
			labels = append(labels, e.Label)
		}
		if got := strings.Join(labels, " "); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// If bytes are damaged, Detect still returns a report and reads no more than its limit.
func TestDamagedGuest(t *testing.T) {
	disks := lvmDisks(t, withFiles(linuxFiles(t, "virtio_pci", "virtio_scsi", "sd_mod"), "etc/network/interfaces", byName))
	random := rand.New(rand.NewPCG(8, 1))
	for n := range 600 {
		m := disks[n%2].(*memory)
		at := random.IntN(len(m.data) - 8)
		if n%3 != 0 { // damage a sector that is not empty
			for at &^= 511; bytes.Equal(m.data[at:][:512], make([]byte, 512)); {
				at = random.IntN(len(m.data)-512) &^ 511
			}
			at += random.IntN(504)
		}
		saved := bytes.Clone(m.data[at:][:8])
		for i := range 1 + random.IntN(8) {
			m.data[at+i] = byte(random.Uint32())
		}
		m.read = 0
		reports, err := DetectAll(t.Context(), disks)
		if err != nil || len(reports) != 2 {
			t.Fatalf("byte %d of disk %d: %v", at, n%2, err)
		}
		if m.read > budget.Examination().Read {
			t.Errorf("byte %d of disk %d: %d bytes read, want at most %d", at, n%2, m.read, budget.Examination().Read)
		}
		copy(m.data[at:], saved)
	}
	if r, err := DetectAll(t.Context(), disks); err != nil || r[0].Verdict != "will boot with virtio-scsi without changes; ens192 must be bound to the MAC by linux-append" {
		t.Errorf("undamaged again: %q, %v", r[0].Verdict, err)
	}
}

// If reads fail within a file system, Detect returns an error, not a guest without files.
func TestReadErrorsWithinFileSystems(t *testing.T) {
	src, err := rawfile.OpenSource(extDisk(t, linuxFiles(t, "virtio_pci")), rawfile.SourceOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	for _, from := range []int64{1<<20 + 2048, 1<<20 + 256<<10} {
		if _, err := Detect(t.Context(), brokenDisk{src, from}); !errors.Is(err, errBroken) {
			t.Errorf("reads fail from byte %d on: got %v, want %v", from, err, errBroken)
		}
	}
}

func TestKernelsOfTheReport(t *testing.T) {
	r := detectFile(t, extDisk(t, linuxFiles(t, "virtio_pci", "vmw_pvscsi")))
	k := r.Linux.Kernels[0]
	if k.Version != "6.1.0" || k.Maker != "initramfs-tools" || !slices.Equal(k.Drivers, []string{"virtio_pci", "vmw_pvscsi"}) || !k.BootsIfRebuilt(linux.VirtioSCSI) {
		t.Errorf("kernel %+v", k)
	}
}

// BenchmarkDetect examines a guest that the boot tests use, with a real initramfs.
func BenchmarkDetect(b *testing.B) {
	src, err := rawfile.OpenSource(tinyguest.Image(b, tinyguest.BIOS), rawfile.SourceOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer src.Close()
	for b.Loop() {
		if _, err := Detect(b.Context(), src); err != nil {
			b.Fatal(err)
		}
	}
}
