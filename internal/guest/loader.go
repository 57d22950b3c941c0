package guest

import (
	"encoding/binary"
	"path"
	"slices"
	"strings"
	"unicode/utf16"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/efi"
	"github.com/decamp/decamp/internal/guest/tree"
)

// EFIState returns the firmware state to transfer with a VM's disks: the entries of held whose
// partition is on them. If none of these is active, it adds a boot entry for the loader on the EFI
// system partition. If there are loaders of several vendors, it uses that of the guest's system, or
// none.
func EFIState(reports []Report, held efi.State) efi.State {
	state := efi.State{Keys: held.Keys}
	for _, e := range held.Entries {
		if slices.ContainsFunc(reports, func(r Report) bool { return r.hasPartition(e.Partition.GUID) }) {
			state.Entries = append(state.Entries, e)
		}
	}
	// Firmware ignores inactive entries.
	if !slices.ContainsFunc(state.Entries, efi.Entry.Active) {
		state.Entries = append(state.Entries, guestLoader(reports)...)
	}
	return state
}

// hasPartition reports whether the GPT of the disk has a partition with that unique GUID.
func (r Report) hasPartition(g efi.GUID) bool {
	return r.Table == GPT && slices.ContainsFunc(r.Partitions, func(p Partition) bool { return p.UUID == g.String() })
}

// guestLoader returns the boot entry for the loader of the guest's own system: the only loader, or the
// one in the folder of the system's vendor. It returns nil if neither exists.
func guestLoader(reports []Report) []efi.Entry {
	var all []efi.Entry
	system := ""
	for _, r := range reports {
		all = append(all, r.Loaders...)
		switch {
		case r.Linux != nil:
			system = r.OS.ID
		case r.Windows != nil && system == "":
			system = "Microsoft"
		}
	}
	for _, e := range all {
		if len(all) == 1 || strings.EqualFold(vendorOf(e), system) {
			return []efi.Entry{e}
		}
	}
	return nil
}

// vendorOf returns the vendor's folder in the path of a loader: debian for \EFI\debian\shimx64.efi.
func vendorOf(e efi.Entry) string {
	if parts := strings.Split(e.File, `\`); len(parts) > 2 {
		return parts[2]
	}
	return ""
}

// bootEntries returns a boot entry for each loader on a system partition; files are the loaders' paths.
// It omits those in EFI/BOOT, which firmware finds without an entry.
func (v *volume) bootEntries(files []string) []efi.Entry {
	at, ok := v.gptPartition()
	if !ok {
		return nil
	}
	var all []efi.Entry
	for _, f := range files {
		if e := (efi.Entry{Label: labelFor(v.tree, f), Partition: at, File: `\` + strings.ReplaceAll(f, "/", `\`), Attributes: efi.Active}); !strings.EqualFold(vendorOf(e), "BOOT") {
			all = append(all, e)
		}
	}
	return all
}

// gptPartition returns the volume's partition in the form of a boot entry; ok is false if the disk
// has no GPT or the volume is not a partition.
func (v *volume) gptPartition() (at efi.Partition, ok bool) {
	if v.detector.report.Table != GPT {
		return at, false
	}
	for _, p := range v.detector.report.Partitions {
		if g, err := efi.ParseGUID(p.UUID); err == nil && p.UUID == v.partition {
			return efi.Partition{Number: uint32(p.Number), Start: uint64(p.Off / disk.SectorSize), Size: uint64(p.Len / disk.SectorSize), GUID: g}, true
		}
	}
	return at, false
}

// maxCSV limits shim's list of boot entries, in bytes; it usually has one or two lines.
const maxCSV = 16 << 10

// labelFor returns the label for a loader's boot entry. It is the vendor's label in shim's
// BOOTX64.CSV, if that file exists, and otherwise derived from the path. A line of the file has
// loader, label, arguments and comment in UTF-16.
func labelFor(t *tree.Tree, file string) string {
	folder, name := path.Split(file)
	if text, err := t.ReadFile(folder+"BOOTX64.CSV", maxCSV); err == nil {
		for _, line := range strings.Split(fromUTF16(text), "\n") {
			if f := strings.Split(strings.TrimPrefix(line, "\ufeff"), ","); len(f) > 1 && strings.EqualFold(f[0], name) && f[1] != "" {
				return f[1]
			}
		}
	}
	if strings.EqualFold(name, "bootmgfw.efi") {
		return "Windows Boot Manager"
	}
	return path.Base(folder)
}

// fromUTF16 decodes little-endian UTF-16; an odd last byte is ignored.
func fromUTF16(b []byte) string {
	units := make([]uint16, len(b)/2)
	for i := range units {
		units[i] = binary.LittleEndian.Uint16(b[2*i:])
	}
	return string(utf16.Decode(units))
}
