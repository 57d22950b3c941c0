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

// EFIState returns the state of a VM's firmware to transfer with its disks: the entries of held for
// partitions on them. If there are none, or held is unknown, it creates a boot entry for the loader on
// the EFI system partition. Of several vendors' loaders it uses that of the guest's system, or none.
func EFIState(reports []Report, held efi.State) efi.State {
	state := efi.State{Keys: held.Keys}
	for _, e := range held.Entries {
		if slices.ContainsFunc(reports, func(r Report) bool { return r.has(e.Partition.GUID) }) {
			state.Entries = append(state.Entries, e)
		}
	}
	if !slices.ContainsFunc(state.Entries, efi.Entry.Active) {
		state.Entries = append(state.Entries, ownLoader(reports)...)
	}
	return state
}

// has reports whether a partition of the disk has that GUID.
func (r Report) has(g efi.GUID) bool {
	return r.Table == GPT && slices.ContainsFunc(r.Partitions, func(p Partition) bool { return p.UUID == g.String() })
}

// ownLoader is the one that starts the guest's own system, as far as that is known.
func ownLoader(reports []Report) []efi.Entry {
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

// vendorOf is debian of \EFI\debian\shimx64.efi.
func vendorOf(e efi.Entry) string {
	if parts := strings.Split(e.File, `\`); len(parts) > 2 {
		return parts[2]
	}
	return ""
}

// loaders makes boot entries of the loaders on a system partition, which are named by their paths. Those in
// EFI/BOOT firmware finds by itself.
func (v *volume) loaders(files []string) []efi.Entry {
	at, ok := v.inGPT()
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

// inGPT returns the volume's partition, if a boot entry can name it.
func (v *volume) inGPT() (at efi.Partition, ok bool) {
	if v.d.report.Table != GPT {
		return at, false
	}
	for _, p := range v.d.report.Partitions {
		if g, err := efi.ParseGUID(p.UUID); err == nil && p.UUID == v.partition {
			return efi.Partition{Number: uint32(p.Number), Start: uint64(p.Off / disk.SectorSize), Size: uint64(p.Len / disk.SectorSize), GUID: g}, true
		}
	}
	return at, false
}

// maxCSV is for shim's list of boot entries, in bytes: one has a line or two.
const maxCSV = 16 << 10

// labelFor returns the vendor's name of its boot entry, from shim's BOOTX64.CSV. Each line of that file
// has file, label, arguments and a comment, in UTF-16.
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

func fromUTF16(b []byte) string {
	units := make([]uint16, len(b)/2)
	for i := range units {
		units[i] = binary.LittleEndian.Uint16(b[2*i:])
	}
	return string(utf16.Decode(units))
}
