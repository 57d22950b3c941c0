package guest

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/guest/budget"
	"github.com/decamp/decamp/internal/guest/budget/budgettest"
	"github.com/decamp/decamp/internal/guest/hive/hivetest"
	"github.com/decamp/decamp/internal/guest/ldm/ldmtest"
	"github.com/decamp/decamp/internal/guest/ntfs/ntfstest"
)

// These constants are the part of a SOFTWARE hive that names the Windows version.
const (
	server2019 = `[\Microsoft\Windows NT\CurrentVersion]
"ProductName"="Windows Server 2019 Standard"
"EditionID"="ServerStandard"
"CurrentBuild"="17763"
"CurrentVersion"="6.3"
"CurrentMajorVersionNumber"=dword:0000000a
"CurrentMinorVersionNumber"=dword:00000000
`
	windows11 = `[\Microsoft\Windows NT\CurrentVersion]
"ProductName"="Windows 10 Pro"
"EditionID"="Professional"
"CurrentBuild"="22631"
"CurrentMajorVersionNumber"=dword:0000000a
"CurrentMinorVersionNumber"=dword:00000000
`
	windows7 = `[\Microsoft\Windows NT\CurrentVersion]
"ProductName"="Windows 7 Professional"
"CurrentBuildNumber"="7601"
"CurrentVersion"="6.1"
`
)

// windowsService returns a service of the current control set, which is not the first one.
func windowsService(name string, start string, more ...string) string {
	return "[\\ControlSet002\\Services\\" + name + "]\n\"Start\"=dword:0000000" + start + "\n" + strings.Join(more, "\n") + "\n\n"
}

// commonSystem is the beginning of all SYSTEM hives. The first control set must not be used.
const commonSystem = `[\Select]
"Current"=dword:00000002

[\ControlSet001\Services\viostor]
"Start"=dword:00000000

[\ControlSet002\Control\Session Manager\Environment]
"PROCESSOR_ARCHITECTURE"="AMD64"

[\ControlSet002\Control\ComputerName\ComputerName]
"ComputerName"="ACCOUNTS"

`

const hiberboot = `[\ControlSet002\Control\Session Manager\Power]
"HiberbootEnabled"=dword:00000001

`

// windowsDisk describes the disk of a test: hives as text, driver names, and files.
type windowsDisk struct {
	software, system string
	drivers          []string
	files            map[string]string
	kind             string // type of the MBR partition, default: "7"
}

// image creates the disk with one partition at 1 MiB.
func (w windowsDisk) image(t *testing.T) string {
	t.Helper()
	volume := ntfstest.Volume(t, 24, func(root string) {
		ntfstest.Write(t, root, "Windows/System32/config/SOFTWARE", hivetest.New(t, w.software))
		ntfstest.Write(t, root, "Windows/System32/config/SYSTEM", hivetest.New(t, w.system))
		for _, name := range w.drivers {
			ntfstest.Write(t, root, "Windows/System32/drivers/"+name+".sys", []byte("MZ"))
		}
		for name, text := range w.files {
			ntfstest.Write(t, root, name, []byte(text))
		}
	})
	data, err := os.ReadFile(volume)
	if err != nil {
		t.Fatal(err)
	}
	path := blankDisk(t, 26)
	kind := w.kind
	if kind == "" {
		kind = "7"
	}
	runTool(t, "label: dos\nsize=24M, type="+kind+", bootable\n", "sfdisk", "-q", path)
	patchFile(t, path, 1<<20, string(data))
	return path
}

func TestWindowsVerdicts(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	pvscsi := windowsService("pvscsi", "0", `"ImagePath"=`+hivetest.ExpandText(`System32\drivers\pvscsi.sys`)) +
		windowsService("vmxnet3ndis6", "3", `"ImagePath"=`+hivetest.ExpandText(`\SystemRoot\System32\drivers\vmxnet3.sys`))
	virtio := windowsService("vioscsi", "0") + windowsService("netkvm", "3")
	awake, asleep := map[string]string{"hiberfil.sys": strings.Repeat("\x00", 8192)}, map[string]string{"hiberfil.sys": "HIBR" + strings.Repeat("x", 8192)}
	tests := []struct {
		name    string
		disk    windowsDisk
		verdict string
		codes   []string
	}{
		{"server with pvscsi", windowsDisk{software: server2019, system: commonSystem + pvscsi, drivers: []string{"pvscsi", "vmxnet3"}},
			"Windows Server 2019 Standard (10.0.17763): will boot only with the compat profile (pvscsi, vmxnet3 are kept); virtio requires virt-v2v and virtio-win", nil},
		{"card without its file", windowsDisk{software: server2019, system: commonSystem + pvscsi, drivers: []string{"pvscsi"}},
			"Windows Server 2019 Standard (10.0.17763): will boot only with the compat profile (pvscsi is kept); virtio requires virt-v2v and virtio-win", nil},
		{"virtio drivers", windowsDisk{software: windows11, system: commonSystem + virtio, drivers: []string{"vioscsi", "netkvm"}},
			"Windows 11 Pro (10.0.22631): will boot with virtio-scsi and virtio-net without changes", nil},
		{"virtio without network", windowsDisk{software: windows11, system: commonSystem + windowsService("viostor", "0"), drivers: []string{"viostor"}},
			"Windows 11 Pro (10.0.22631): will boot with virtio-blk without changes; virtio-net requires virtio-win", nil},
		{"virtio without its file", windowsDisk{software: windows11, system: commonSystem + virtio},
			"Windows 11 Pro (10.0.22631): has no boot driver for a controller of the target; virtio requires virt-v2v and virtio-win", nil},
		{"virtio overridden", windowsDisk{software: windows11, drivers: []string{"viostor", "storahci"}, system: commonSystem +
			windowsService("viostor", "0") + "[\\ControlSet002\\Services\\viostor\\StartOverride]\n\"0\"=dword:00000003\n\n" + windowsService("storahci", "0")},
			"Windows 11 Pro (10.0.22631): will boot only with the compat profile (SATA is kept); virtio requires virt-v2v and virtio-win", nil},
		{"old", windowsDisk{software: windows7, system: commonSystem + windowsService("msahci", "0") + windowsService("LSI_SAS", "0"), drivers: []string{"msahci", "lsi_sas"}},
			"Windows 7 Professional (6.1.7601): will boot only with the compat profile (LSI SAS is kept); virtio requires virt-v2v and virtio-win", nil},
		{"fast startup", windowsDisk{software: windows11, system: commonSystem + hiberboot + pvscsi, drivers: []string{"pvscsi"}, files: awake},
			"Windows 11 Pro (10.0.22631): will boot only with the compat profile (pvscsi is kept); virtio requires virt-v2v and virtio-win", []string{"fast-startup"}},
		{"fast startup without hibernation", windowsDisk{software: windows11, system: commonSystem + hiberboot + pvscsi, drivers: []string{"pvscsi"}},
			"Windows 11 Pro (10.0.22631): will boot only with the compat profile (pvscsi is kept); virtio requires virt-v2v and virtio-win", nil},
		{"hibernated", windowsDisk{software: windows11, system: commonSystem + hiberboot + pvscsi, drivers: []string{"pvscsi"}, files: asleep},
			"Windows 11 Pro (10.0.22631): is hibernated: it would resume on other hardware, and cannot be converted; shut it down completely first (powercfg /h off)",
			[]string{"hibernated"}},
		{"dynamic disk", windowsDisk{software: server2019, system: commonSystem + pvscsi, drivers: []string{"pvscsi"}, kind: "42"},
			"Windows Server 2019 Standard (10.0.17763): cannot be converted, because it is on a dynamic disk; will boot only with the compat profile (pvscsi is kept)",
			[]string{"dynamic-disk"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := detectFile(t, tt.disk.image(t))
			if codes := warningCodes(r); r.Verdict != tt.verdict || !slices.Equal(codes, tt.codes) {
				t.Errorf("%s\nwant %s\nwarnings %v, want %v", r.Verdict, tt.verdict, r.Warnings, tt.codes)
			}
		})
	}
}

// With EFI the boot configuration is on the system partition, which is FAT.
func TestBootConfigurationOnAnEFIPartition(t *testing.T) {
	esp := blankDisk(t, 40)
	runTool(t, "", "mkfs.fat", "-F", "32", esp)
	for _, folder := range []string{"::EFI", "::EFI/Microsoft", "::EFI/Microsoft/Boot"} {
		runTool(t, "", "mmd", "-i", esp, folder)
	}
	if r := detectFile(t, esp); r.Boot.BCD {
		t.Error("a partition without boot configuration: BCD is true, want false")
	}
	runTool(t, "regf", "mcopy", "-i", esp, "-", "::EFI/Microsoft/Boot/BCD")
	if r := detectFile(t, esp); !r.Boot.BCD || len(r.Warnings) != 0 {
		t.Errorf("boot %+v, warnings %v", r.Boot, r.Warnings)
	}
}

// interfaces is the network configuration of a SYSTEM hive. The MAC is in the instance ID of the card ({A}), in the
// key of its device ({B}), configured ({C}), or unknown ({E}). {D} uses DHCP.
const interfaces = `[\ControlSet002\Services\Tcpip\Parameters\Interfaces\{A}]
"EnableDHCP"=dword:00000000
"IPAddress"=IP1
"SubnetMask"=MASK
"DefaultGateway"=GATEWAY
"NameServer"="10.0.0.2,10.0.0.3"

[\ControlSet002\Services\Tcpip\Parameters\Interfaces\{B}]
"EnableDHCP"=dword:00000000
"IPAddress"=IP2

[\ControlSet002\Services\Tcpip\Parameters\Interfaces\{C}]
"EnableDHCP"=dword:00000000
"IPAddress"=IP3

[\ControlSet002\Services\Tcpip\Parameters\Interfaces\{D}]
"EnableDHCP"=dword:00000001
"DhcpIPAddress"="10.0.0.99"
"IPAddress"=IP4

[\ControlSet002\Services\Tcpip\Parameters\Interfaces\{E}]
"EnableDHCP"=dword:00000000
"IPAddress"=IP5

[\ControlSet002\Control\Network\{4D36E972-E325-11CE-BFC1-08002BE10318}\{A}\Connection]
"Name"="Ethernet0"

[\ControlSet002\Control\Class\{4d36e972-e325-11ce-bfc1-08002be10318}\0001]
"NetCfgInstanceId"="{A}"
"DriverDesc"="vmxnet3 Ethernet Adapter"
"DeviceInstanceID"="PCI\\VEN_15AD&DEV_07B0&SUBSYS_07B015AD&REV_01\\FF565000BB0895FE00"

[\ControlSet002\Control\Class\{4d36e972-e325-11ce-bfc1-08002be10318}\0002]
"NetCfgInstanceId"="{B}"
"DriverDesc"="Intel(R) 82574L Gigabit Network Connection"

[\ControlSet002\Enum\PCI\VEN_8086&DEV_10D3&SUBSYS_07D015AD&REV_00\000C29FFFF66A80700]
"Driver"="{4d36e972-e325-11ce-bfc1-08002be10318}\\0002"

[\ControlSet002\Control\Class\{4d36e972-e325-11ce-bfc1-08002be10318}\0003]
"NetCfgInstanceId"="{C}"
"NetworkAddress"="00-50-56-AA-BB-CC"
"DeviceInstanceID"="PCI\\VEN_15AD&DEV_07B0&SUBSYS_07B015AD&REV_01\\FF565000BB0895FE00"
`

func TestWindowsSystem(t *testing.T) {
	net := strings.NewReplacer("IP1", hivetest.MultiText("10.0.0.5", "10.0.0.6"), "MASK", hivetest.MultiText("255.255.255.0", "255.255.0.0"),
		"GATEWAY", hivetest.MultiText("10.0.0.1"), "IP2", hivetest.MultiText("192.168.7.1"), "IP3", hivetest.MultiText("172.16.0.9"),
		"IP4", hivetest.MultiText("10.9.9.9"), "IP5", hivetest.MultiText("10.5.5.5")).Replace(interfaces)
	r := detectFile(t, windowsDisk{
		software: server2019, drivers: []string{"pvscsi"}, files: map[string]string{"Boot/BCD": "regf"},
		system: commonSystem + windowsService("pvscsi", "0") + windowsService("VMTools", "2") + windowsService("QEMU-GA", "4") + net,
	}.image(t))
	w := r.Windows
	if w == nil {
		t.Fatalf("no Windows: %+v", r)
	}
	if r.OS != (OS{ID: WindowsID, Name: "Windows Server 2019 Standard", Version: "10.0.17763"}) || r.Boot != (Boot{BCD: true}) {
		t.Errorf("OS %+v, boot %+v", r.OS, r.Boot)
	}
	if w.Partition != 1 || w.Edition != "ServerStandard" || w.Build != 17763 || w.Arch != "x86_64" || w.Computer != "ACCOUNTS" {
		t.Errorf("system %+v", w)
	}
	if !w.VMwareTools || w.GuestAgent || w.Hibernated || w.FastStartup || w.Dynamic {
		t.Errorf("system %+v: want VMware Tools and no guest agent, which is disabled", w)
	}
	if w.Usage.Size < 23<<20 || w.Usage.Free < 10<<20 || w.Usage.Free > w.Usage.Size {
		t.Errorf("usage %+v", w.Usage)
	}
	if want := []Driver{{"pvscsi", "boot", true}}; !slices.Equal(w.Drivers, want) {
		t.Errorf("drivers %+v", w.Drivers)
	}
	want := []StaticAddress{
		{Interface: "{A}", Name: "Ethernet0", Card: "vmxnet3 Ethernet Adapter", MAC: "00:50:56:95:08:bb",
			Addresses: []string{"10.0.0.5/24", "10.0.0.6/16"}, Gateways: []string{"10.0.0.1"}, DNS: []string{"10.0.0.2", "10.0.0.3"}},
		{Interface: "{B}", Card: "Intel(R) 82574L Gigabit Network Connection", MAC: "00:0c:29:66:a8:07", Addresses: []string{"192.168.7.1"}},
		{Interface: "{C}", MAC: "00:50:56:aa:bb:cc", Addresses: []string{"172.16.0.9"}},
		{Interface: "{E}", Addresses: []string{"10.5.5.5"}},
	}
	if got, want := toJSON(t, w.Static), toJSON(t, want); got != want {
		t.Errorf("addresses\n%s, want\n%s", got, want)
	}
	if codes := warningCodes(r); !slices.Equal(codes, []string{"static-address", "static-address", "static-address", "static-address"}) {
		t.Errorf("warnings %v", r.Warnings)
	}
}

func toJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestSerialNumbersOfCards(t *testing.T) {
	for device, want := range map[string]string{
		`PCI\VEN_15AD&DEV_07B0&SUBSYS_07B015AD&REV_01\FF290C0092C195FE00`: "00:0c:29:95:c1:92",
		`PCI\VEN_8086&DEV_10D3&SUBSYS_07D015AD&REV_00\000C29FFFF66A80700`: "00:0c:29:66:a8:07",
		`PCI\VEN_15AD&DEV_07B0&SUBSYS_07B015AD&REV_01\4&2B7C36E&0&00A8`:   "", // instance ID without a serial number
		`PCI\VEN_8086&DEV_100F&SUBSYS_075015AD&REV_01\4&3AD87E0A&0&0888`:  "",
		`PCI\VEN_15AD&DEV_07B0&SUBSYS_07B015AD&REV_01\00000000000000000`:  "",
		"": "",
	} {
		if got := serialMAC(device); got != want {
			t.Errorf("%s: %q, want %q", device, got, want)
		}
	}
}

// A warning names the damage, and the report still has the remaining data.
func TestDamagedWindows(t *testing.T) {
	sound := windowsDisk{software: server2019, system: commonSystem + windowsService("pvscsi", "0"), drivers: []string{"pvscsi"}}.image(t)
	data, err := os.ReadFile(sound)
	if err != nil {
		t.Fatal(err)
	}
	hives := findAll(data, "regf") // the first hive is SOFTWARE
	if len(hives) != 2 {
		t.Fatalf("hives at %v", hives)
	}
	volume := findAll(data, "\x03\x01\x00\x00")
	tests := []struct {
		name    string
		at      int
		patch   string
		code    string
		product string
		verdict string
	}{
		{"signature", hives[0], "xxxx", "registry", "Windows", "pvscsi is kept"},
		{"root of the hive", hives[0] + 4096 + 36, "xx", "registry", "Windows", "pvscsi is kept"},
		{"written to", hives[1] + 4, "\x07", "registry-dirty", "Windows Server 2019 Standard", "pvscsi is kept"},
		{"SYSTEM without root", hives[1] + 4096 + 36, "xx", "registry", "Windows Server 2019 Standard", "cannot be read"},
		{"dirty volume", volume[0] + 2, "\x01", "ntfs-dirty", "Windows Server 2019 Standard", "pvscsi is kept"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := blankDisk(t, 26)
			patchFile(t, path, 0, string(data))
			patchFile(t, path, int64(tt.at), tt.patch)
			r := detectFile(t, path)
			if codes := warningCodes(r); !slices.Equal(codes, []string{tt.code}) || r.OS.Name != tt.product || !strings.Contains(r.Verdict, tt.verdict) {
				t.Errorf("%q, %q, warnings %v, want %s of %s", r.OS.Name, r.Verdict, r.Warnings, tt.code, tt.product)
			}
		})
	}
}

// findAll returns the offsets of text after the first sector.
func findAll(data []byte, text string) (at []int) {
	for off := 512; ; {
		i := bytes.Index(data[off:], []byte(text))
		if i < 0 {
			return at
		}
		at, off = append(at, off+i), off+i+1
	}
}

// bitLockerVolume returns the parts of a BitLocker volume that are readable without its key.
func bitLockerVolume(state uint16, protectors ...uint16) []byte {
	b := make([]byte, 4<<20)
	put := binary.LittleEndian.PutUint16
	copy(b, "\xeb\x58\x90-FVE-FS-")
	const at = 1 << 20
	binary.LittleEndian.PutUint64(b[184:], at) // offset of the second metadata copy, the first is missing
	copy(b[at:], "-FVE-FS-")
	put(b[at+10:], 2)
	put(b[at+12:], state)
	entry := b[at+64+48:]
	for _, p := range protectors {
		put(entry, 60)
		put(entry[2:], 2)
		put(entry[4:], 8)
		put(entry[8+26:], p)
		entry = entry[60:]
	}
	binary.LittleEndian.PutUint32(b[at+64:], uint32(48+60*len(protectors)))
	return b
}

func TestBitLocker(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	tests := []struct {
		name   string
		volume []byte
		want   string
	}{
		{"TPM", bitLockerVolume(4, protectRecovery, protectTPM), "bound to the virtual TPM, which is not migrated: the guest requests the recovery key"},
		{"password", bitLockerVolume(4, protectPassword, protectRecovery), "the guest requests its password"},
		{"suspended", bitLockerVolume(4, protectTPM, protectClear), "in plain text"},
		{"decrypting", bitLockerVolume(2, protectTPM), "partly encrypted; its key is bound"},
		{"decrypted", bitLockerVolume(1, protectClear), "already decrypted, only its header"},
		{"unreadable", bitLockerVolume(4)[:1<<20], "the guest requests the recovery key"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := blankDisk(t, 8)
			runTool(t, "label: dos\nsize=4M, type=7\n", "sfdisk", "-q", path)
			patchFile(t, path, 1<<20, string(tt.volume))
			r := detectFile(t, path)
			if codes := warningCodes(r); !slices.Equal(codes, []string{"bitlocker"}) {
				t.Fatalf("warnings %v", r.Warnings)
			}
			if !strings.Contains(r.Warnings[0].Text, tt.want) || !strings.Contains(r.Verdict, tt.want) {
				t.Errorf("%s\n%s\nwant %q", r.Warnings[0].Text, r.Verdict, tt.want)
			}
		})
	}
}

// dynamicDisk creates a disk with the partition table of script and a database with the volumes.
func dynamicDisk(t *testing.T, script string, d ldmtest.Disk, volumes ...ldmtest.Volume) string {
	t.Helper()
	path := blankDisk(t, 32)
	runTool(t, script, "sfdisk", "-q", path)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	ldmtest.Write(data, d, volumes)
	patchFile(t, path, 0, string(data))
	return path
}

func TestDynamicDisks(t *testing.T) {
	const mbr, end = "label: dos\nsize=30M, type=42\n", 32 << 20 / 512
	gpt := "label: gpt\nsize=1M, type=5808C8AA-7E8F-42E0-85D2-E1E90434CFB3\nsize=4M, type=AF9B60A0-1431-4F62-BC68-3311714A69AD\n"
	striped := ldmtest.Volume{Name: "Stripe1", Hint: "H:", Components: []ldmtest.Component{{Kind: 1, Parts: []ldmtest.Part{{Start: 0, Size: 512}, {Disk: 1, Size: 512}}}}}
	for name, path := range map[string]string{
		"MBR":                  dynamicDisk(t, mbr, ldmtest.Disk{Head: 6, Data: 63, Base: end - 2048}, striped),
		"MBR by its last copy": dynamicDisk(t, mbr, ldmtest.Disk{Head: end - 1, Data: 63, Base: end - 2048}, striped),
		"GPT":                  dynamicDisk(t, gpt, ldmtest.Disk{Head: 2048 + 1856, Data: 4096, Base: 2048}, striped),
	} {
		r := detectFile(t, path)
		if codes := warningCodes(r); !slices.Equal(codes, []string{"dynamic-disk"}) || !strings.Contains(r.Warnings[0].Text, "group ACCOUNTS-Dg0, with H: (striped)") {
			t.Errorf("%s: warnings %v", name, r.Warnings)
		}
	}
	broken := dynamicDisk(t, mbr, ldmtest.Disk{Head: 6, Data: 63, Base: end - 2048}, striped)
	patchFile(t, broken, (end-2048+17)*512, "xxxx")
	if codes := warningCodes(detectFile(t, broken)); !slices.Equal(codes, []string{"dynamic-database", "dynamic-disk"}) {
		t.Errorf("warnings %v", codes)
	}
}

// The dynamic volume with Windows begins within its partition.
func TestWindowsOnADynamicVolume(t *testing.T) {
	const end = 32 << 20 / 512
	volume, err := os.ReadFile(windowsDisk{software: server2019, system: commonSystem + windowsService("storahci", "0"), drivers: []string{"storahci"}}.image(t))
	if err != nil {
		t.Fatal(err)
	}
	volume = volume[1<<20 : 25<<20]
	sectors := int64(len(volume) / 512)
	path := dynamicDisk(t, "label: dos\nsize=30M, type=42\n", ldmtest.Disk{Head: 6, Data: 2048, Base: end - 2048},
		ldmtest.Volume{Name: "Volume1", Hint: "C:", Components: []ldmtest.Component{
			{Kind: 2, Parts: []ldmtest.Part{{Start: 4096, Size: sectors}}}, {Kind: 2, Parts: []ldmtest.Part{{Disk: 1, Start: 0, Size: sectors}}}}})
	patchFile(t, path, (2048+4096)*512, string(volume))
	r := detectFile(t, path)
	want := []DynamicVolume{{Name: "Volume1", Letter: "C:", Layout: "mirrored", Size: sectors * 512, Pieces: 2, FileSystem: NTFS}}
	if r.Dynamic == nil || toJSON(t, r.Dynamic.Volumes) != toJSON(t, want) {
		t.Errorf("%+v, want %+v", r.Dynamic, want)
	}
	if r.Windows == nil || !r.Windows.Dynamic || r.Windows.Partition != 1 || !strings.Contains(r.Verdict, "cannot be converted, because it is on a dynamic disk") {
		t.Errorf("Windows %+v, verdict %s", r.Windows, r.Verdict)
	}
}

// smallWindows returns an NTFS volume of 3 MiB with Windows, without a partition table.
func smallWindows(t testing.TB) []byte {
	t.Helper()
	path := ntfstest.Volume(t, 3, func(root string) {
		ntfstest.Write(t, root, "Windows/System32/config/SOFTWARE", hivetest.New(t, windows11))
		ntfstest.Write(t, root, "Windows/System32/config/SYSTEM", hivetest.New(t, commonSystem+hiberboot+windowsService("pvscsi", "0")))
		ntfstest.Write(t, root, "hiberfil.sys", make([]byte, 4096))
	}, "-c", "1024")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// detectMemory detects the guest on a disk in memory and checks the limits.
func detectMemory(t *testing.T, data []byte) Report {
	t.Helper()
	m := &memory{data: data}
	b := budgettest.New(t)
	r, err := detectAll(t.Context(), b, []disk.Source{m})
	if err != nil {
		t.Fatalf("detecting a readable disk: %v", err)
	}
	if u, l := b.Used(), budget.Examination(); m.read > u.Read || u.Peak > l.Memory || (u.Read > l.Read || u.Steps > l.Steps) && Examined(r) == nil {
		t.Errorf("%d bytes read, usage %+v exceeds the limits", m.read, u)
	}
	toJSON(t, r[0])
	return r[0]
}

// BenchmarkDetectWindows reads a registry with as many services and devices as that of a server that was updated for
// years.
func BenchmarkDetectWindows(b *testing.B) {
	var system strings.Builder
	system.WriteString(commonSystem + hiberboot + windowsService("pvscsi", "0"))
	for i := range 3000 {
		fmt.Fprintf(&system, "[\\ControlSet002\\Services\\service-%d]\n\"Start\"=dword:00000003\n\"ImagePath\"=\"C:\\\\Program Files\\\\%d.exe\"\n\n", i, i)
		fmt.Fprintf(&system, "[\\ControlSet002\\Enum\\PCI\\VEN_%04X\\1]\n\"Driver\"=\"none\"\n\n", i)
	}
	path := ntfstest.Volume(b, 256, func(root string) {
		ntfstest.Write(b, root, "Windows/System32/config/SOFTWARE", hivetest.New(b, windows11))
		ntfstest.Write(b, root, "Windows/System32/config/SYSTEM", hivetest.New(b, system.String()))
		for i := range 2000 {
			ntfstest.Write(b, root, fmt.Sprintf("Windows/System32/drivers/driver-%d.sys", i), []byte("MZ"))
		}
	})
	data, err := os.ReadFile(path)
	if err != nil {
		b.Fatal(err)
	}
	var used budget.Used
	for b.Loop() {
		spent, cancel := budget.New(b.Context(), budget.Examination())
		r, err := detectAll(b.Context(), spent, []disk.Source{&memory{data: data}})
		cancel()
		if err != nil || r[0].Windows == nil || r[0].Windows.Build != 22631 {
			b.Fatalf("%+v, %v", r, err)
		}
		used = spent.Used()
	}
	b.ReportMetric(float64(used.Read)/(1<<20), "MiB-read")
	b.ReportMetric(float64(used.Steps), "steps")
	b.ReportMetric(float64(used.Peak)/(1<<20), "MiB-held")
}

// FuzzWindows patches the hives and the volume of a Windows guest.
func FuzzWindows(f *testing.F) {
	sound := smallWindows(f)
	hives := findAll(sound, "regf")
	f.Add(hives[0]+36, []byte{1})
	f.Add(hives[1]+4096+36, bytes.Repeat([]byte{0xff}, 64))
	f.Add(0x30, []byte{9})
	f.Fuzz(func(t *testing.T, at int, patch []byte) {
		if at < 0 || at >= len(sound) {
			return
		}
		data := bytes.Clone(sound)
		copy(data[at:], patch)
		detectMemory(t, data)
	})
}

// Bits are flipped in the hives of a Windows guest. Detect still reports Windows, and some flips change the warnings.
func TestFlippedBitsInARegistry(t *testing.T) {
	sound := smallWindows(t)
	if r := detectMemory(t, sound); r.Windows == nil || !r.Windows.FastStartup {
		t.Fatalf("report %+v", r)
	}
	random := rand.New(rand.NewPCG(1, 2))
	hives := findAll(sound, "regf")
	detected, changed := 0, 0
	const rounds = 400
	for range rounds {
		data := bytes.Clone(sound)
		for range 1 + random.IntN(8) {
			data[hives[random.IntN(2)]+random.IntN(6000)] ^= 1 << random.IntN(8)
		}
		r := detectMemory(t, data)
		if r.Windows != nil {
			detected++
		}
		if len(r.Warnings) != 1 {
			changed++
		}
	}
	if detected != rounds || changed < rounds/10 {
		t.Errorf("Windows was detected in %d of %d rounds, the warnings changed in %d", detected, rounds, changed)
	}
}

func FuzzParseBitLocker(f *testing.F) {
	f.Add(bitLockerVolume(4, protectTPM)[1<<20 : 1<<20+512])
	f.Fuzz(func(t *testing.T, b []byte) {
		found, ok := parseBitLocker(b)
		if !ok && len(found.protectors) > 0 {
			t.Errorf("protectors of an invalid volume: %+v", found)
		}
		found.describeUnlock()
	})
}
