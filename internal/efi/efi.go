// Package efi represents the state that a UEFI firmware stores for a guest, and reads
// and writes its files.
//
// A Variable is a name, a vendor's GUID, attributes and bytes. The variable Boot0004
// holds a load option: a device path to start, and its label; BootOrder has the order
// of attempts. An Entry is a load option for a file on a partition, which is valid on
// any machine with the disk. A load option for a controller or a card of VMware is not,
// and is no Entry.
//
// VMware stores variables in the VM's .nvram file (ReadVMware), QEMU's firmware in a
// copy of its template (Store). docs/design/0013-efi-state.md describes both formats
// and their sources.
//
// The input is untrusted: parsers are bounded and fuzzed, and invalid input is an
// error.
package efi

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// GUID is a GUID in memory layout: its first three fields are little-endian (UEFI 2.10,
// appendix A).
type GUID [16]byte

// Vendors of the variables that are read here.
var (
	Global = mustGUID("8be4df61-93ca-11d2-aa0d-00e098032b8c") // vendor of UEFI's own variables, such as Boot0000 and BootOrder
	Shim   = mustGUID("605dab50-e046-4300-abb6-3dd810dd8b23") // vendor of shim, which starts Linux under Secure Boot
)

// ParseGUID parses the form with 8-4-4-4-12 hex digits.
func ParseGUID(s string) (g GUID, err error) {
	b, err := hex.DecodeString(strings.ReplaceAll(s, "-", ""))
	if err != nil || len(b) != len(g) || len(s) != 36 || strings.Count(s, "-") != 4 {
		return g, fmt.Errorf("%q is not a GUID", s)
	}
	copy(g[:], b)
	g.swapFields()
	return g, nil
}

// mustGUID is ParseGUID for constants. It panics if s is invalid.
func mustGUID(s string) GUID {
	g, err := ParseGUID(s)
	if err != nil {
		panic(err)
	}
	return g
}

// swapFields converts between memory layout and the order of the digits.
func (g *GUID) swapFields() {
	slices.Reverse(g[:4])
	slices.Reverse(g[4:6])
	slices.Reverse(g[6:8])
}

// String returns the form that ParseGUID parses.
func (g GUID) String() string {
	g.swapFields()
	return fmt.Sprintf("%x-%x-%x-%x-%x", g[:4], g[4:6], g[6:8], g[8:10], g[10:])
}

// MarshalText returns the form that ParseGUID parses, for JSON.
func (g GUID) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// UnmarshalText parses the result of MarshalText.
func (g *GUID) UnmarshalText(text []byte) (err error) {
	*g, err = ParseGUID(string(text))
	return err
}

// Attributes of a variable, UEFI 2.10, section 8.2.
const (
	NonVolatile = 1 // the variable survives a reset
	BootService = 2 // the variable is accessible to boot loaders
	Runtime     = 4 // the variable is accessible to the operating system

	authenticated = 0x10 | 0x20 // both attributes of authenticated writes; such variables contain more than the data
)

// A Variable is a variable of the firmware.
type Variable struct {
	Name       string `json:"name"`       // name, unique for its vendor
	Vendor     GUID   `json:"vendor"`     // namespace of the name
	Attributes uint32 `json:"attributes"` // bits such as NonVolatile
	Data       []byte `json:"data"`       // contents
}

// State is the part of a VM's firmware state that is valid on another machine.
type State struct {
	// Entries contains the boot entries in the order of attempts.
	Entries []Entry `json:"entries,omitempty"`

	// Keys contains the variables of shim with the keys that the machine's owner
	// trusts. It may be empty.
	Keys []Variable `json:"keys,omitempty"`
}

// Empty reports whether there is nothing to transfer. s may be nil.
func (s *State) Empty() bool { return s == nil || len(s.Entries) == 0 && len(s.Keys) == 0 }

// ownKeys lists the variables of shim that users create with mokutil. Shim creates all
// others itself.
var ownKeys = []string{"MokList", "MokSBState", "MokListTrusted"}

// StateOf returns the part of a firmware's variables that is valid on another machine.
// foreign is the number of boot entries that are not, because they name hardware of the
// source.
func StateOf(vars []Variable) (s State, foreign int) {
	options := map[uint16]Variable{}
	var order []byte
	for _, v := range vars {
		number, isBoot := bootNumber(v.Name)
		switch {
		case v.Attributes&authenticated != 0:
		case v.Vendor == Shim && slices.Contains(ownKeys, v.Name):
			s.Keys = append(s.Keys, v)
		case v.Vendor != Global:
		case v.Name == "BootOrder":
			order = v.Data
		case isBoot:
			options[number] = v
		}
	}
	// BootOrder is a list of numbers with 16 bits each. Entries that are not in it are
	// never tried.
	for ; len(order) >= 2; order = order[2:] {
		number := binary.LittleEndian.Uint16(order)
		v, there := options[number]
		delete(options, number) // an order may name it twice
		e, err := ParseOption(v.Data)
		switch e.Number = number; {
		case !there:
		case err != nil:
			foreign++
		default:
			s.Entries = append(s.Entries, e)
		}
	}
	return s, foreign
}

// bootNumber parses a name such as Boot0004. UEFI uses four upper-case hex digits;
// other names are not boot entries.
func bootNumber(name string) (uint16, bool) {
	digits, ok := strings.CutPrefix(name, "Boot")
	if !ok || len(digits) != 4 || strings.ToUpper(digits) != digits {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 16, 16)
	return uint16(n), err == nil
}

// bootName returns the name of a boot entry's variable.
func bootName(number uint16) string { return fmt.Sprintf("Boot%04X", number) }
