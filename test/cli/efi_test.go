package cli

import (
	"bytes"
	le "encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/decamp/decamp/internal/efi"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/targets/dir"
	"github.com/decamp/decamp/test/guest"
)

// utf16Text encodes s as firmware stores it: in UTF-16, with a null terminator.
func utf16Text(s string) []byte {
	var b []byte
	for _, unit := range utf16.Encode([]rune(s + "\x00")) {
		b = le.LittleEndian.AppendUint16(b, unit)
	}
	return b
}

// nvramFile returns a .nvram file of VMware with one boot entry, for a file on a partition, and the boot order.
func nvramFile(label, file string, partition efi.GUID) []byte {
	u16, u32 := le.LittleEndian.AppendUint16, le.LittleEndian.AppendUint32
	global := []byte("\x61\xdf\xe4\x8b\xca\x93\xd2\x11\xaa\x0d\x00\xe0\x98\x03\x2b\x8c")
	record := func(name string, data []byte) []byte {
		b := u32(bytes.Clone(global), 7)
		b = u32(u32(b, uint32(len(utf16Text(name))+len(data))), uint32(len(utf16Text(name))))
		return append(append(b, utf16Text(name)...), data...)
	}
	drive := append(append(append([]byte{4, 1, 42, 0, 1, 0, 0, 0}, make([]byte, 16)...), partition[:]...), 2, 2)
	path := append(append(drive, u16([]byte{4, 4}, uint16(4+len(utf16Text(file))))...), utf16Text(file)...)
	path = append(path, 0x7f, 0xff, 4, 0)
	option := append(append(u16(u32(nil, 1), uint16(len(path))), utf16Text(label)...), path...)
	vars := append(record("Boot0003", option), record("BootOrder", []byte{3, 0})...)
	store := append(u32([]byte("VMWNVRAM\x00\x00\x00\x00"), uint32(16+len(vars))), vars...)
	return append(u32([]byte("MRVN\x01\x00\x00\x00EFI_NV\x00\x00"), uint32(len(store))), store...)
}

// A migration transfers the boot entries of the firmware. If the VM has no .nvram file, it derives them from the disk.
// An invalid file does not fail the migration. decamp verify also checks the file of the boot entries.
func TestBootEntriesAreMigrated(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/usr/share/OVMF/OVMF_VARS_4M.fd"); err != nil {
		t.Skip("no OVMF; scripts/setup.sh installs it")
	}
	esp := efi.GUID{}
	config := lab.Config{VMs: []lab.VM{}}
	folder := t.TempDir()
	for name, nvram := range map[string][]byte{"known": nil, "new": nil, "odd": []byte("MRVN\x09\x00\x00\x00")} {
		vm := lab.VM{Name: name, MemoryMB: 256, Firmware: "efi", Disks: []lab.Disk{{File: guest.Image(t, guest.Entry), Controller: "pvscsi"}}}
		if name == "known" {
			esp = firstPartition(t, guest.Image(t, guest.Entry))
			nvram = nvramFile("as at the source", `\EFI\debian\grubx64.efi`, esp)
		}
		if nvram != nil {
			vm.NVRAM = filepath.Join(folder, name)
			must(t, os.WriteFile(vm.NVRAM, nvram, 0o600))
		}
		config.VMs = append(config.VMs, vm)
	}
	r := newRig(t, config).withFingerprint()
	for name, want := range map[string]struct {
		label  string
		number uint16
	}{"known": {"as at the source", 3}, "new": {"debian", 0}, "odd": {"debian", 0}} {
		out := r.migrate(name).wantExit(0)
		if odd := strings.Contains(out.stderr, "version 9 is not known"); odd != (name == "odd") {
			t.Errorf("%s: warning about the invalid file printed: %v", name, odd)
		}
		record, err := dir.ReadRecord(filepath.Join(r.vmsDir(), name))
		must(t, err)
		if record.EFI == nil || len(record.EFI.Entries) != 1 || record.NVRAM == nil {
			t.Fatalf("%s: %+v, %+v", name, record.EFI, record.NVRAM)
		}
		if e := record.EFI.Entries[0]; e.Label != want.label || e.Number != want.number || e.Partition.GUID != esp || !strings.EqualFold(e.File, `\EFI\debian\grubx64.efi`) {
			t.Errorf("%s: %+v", name, e)
		}
		vars := filepath.Join(r.vmsDir(), name, record.NVRAM.File)
		data, err := os.ReadFile(vars)
		must(t, err)
		if !bytes.Contains(data, utf16Text(want.label)) || !bytes.Contains(data, esp[:]) {
			t.Errorf("%s: the entry is not in %s", name, vars)
		}
		if name != "known" {
			continue // one VM is enough for the rest
		}
		r.run("verify", filepath.Join(r.vmsDir(), name)).wantExit(0)
		data[len(data)-1] ^= 1
		must(t, os.WriteFile(vars, data, 0o600))
		if out := r.run("verify", filepath.Join(r.vmsDir(), name)); out.code == 0 || !strings.Contains(out.stderr, "has changed since it was published") {
			t.Errorf("%s: verify does not report a changed bit: exit code %d: %s", name, out.code, out.stderr)
		}
	}
}

// firstPartition returns the GUID of the first partition of an image.
func firstPartition(t *testing.T, image string) (g efi.GUID) {
	t.Helper()
	f, err := os.Open(image)
	must(t, err)
	defer f.Close()
	_, err = f.ReadAt(g[:], 1024+16)
	must(t, err)
	return g
}
