// Package inventorytest generates inventories whose strings are meant to break out of commands and documents.
//
// It is for tests. The same seed always gives the same values.
package inventorytest

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/test/lane"
)

// Runs is the number of hostile values for a property test, larger in the slow lane.
var Runs = map[bool]int{false: 2_000, true: 10_000}[lane.Slow]

// pieces have a special meaning for a shell, QEMU, XML, JSON, YAML, Perl, printf, a terminal or a file
// system.
var pieces = []string{
	"-", "--", "-rf", "--help", "'", `"`, `'\''`, "`id`", "$(id)", "${IFS}", "$HOME", ";", "|", "&&", "&", ">", "<", "(", ")", "!", "~", "#", "?",
	",", ",,", "=", "key=value", "file.driver=nbd", "json:{", "nbd:unix:/x", "%s", "%n", "%2f", "%", "\\", `\n`, `\u0000`, "/", "..", "../../etc/passwd",
	"&amp;", "&lt;", "&#10;", "<!--", "-->", "]]>", "<![CDATA[", "</name>", "<?xml ", "!!binary ", "!!", "&a ", "*a", "*", "{", "}", "[", "]", "{{", "- ", ": ", " #",
	"? ", "|-", "yes", "no", "null", "on", "0x1f", "0o17", "1e3", "1:30", ".inf", "=", "2026-11-22", " ", "  ", "\u00a0", "a", "web", "vm", "Ž", "日本", "🏷", "e\u0301",
	"\u200f", "\u202e", "\u2066", "\u200b", "\ufeff", "\U000e0001", "\ufffd",
}

// lineBreaks are valid in notes, tags and attributes, but not in names.
var lineBreaks = []string{"\n", "\r\n", "\r", "\t", "\n---\n", "\n- ", "\n  ", "\u0085", "\u2028", "\u007f", "\u0096"}

// garbage is not valid anywhere.
var garbage = []string{"\x00", "\x1b[31m", "\a", "\v", "\xff\xfe", "\xc3", "\xed\xa0\x80", "\uffff", "\ufffe"}

// Line returns a random text that is valid as a name, unless it is too long.
func Line(r *rand.Rand) string { return joinRandom(r, pieces) }

// Text returns a random text that is valid as a note.
func Text(r *rand.Rand) string { return joinRandom(r, pieces, lineBreaks) }

// Garbage returns a random text that may be invalid everywhere.
func Garbage(r *rand.Rand) string { return joinRandom(r, pieces, lineBreaks, garbage) }

// joinRandom joins up to six random elements of the sets. One in 200 results is very long.
func joinRandom(r *rand.Rand, sets ...[]string) string {
	var b strings.Builder
	for range 1 + r.IntN(6) {
		set := sets[r.IntN(len(sets))]
		b.WriteString(set[r.IntN(len(set))])
	}
	if r.IntN(200) == 0 {
		b.WriteString(strings.Repeat("long ", 1<<r.IntN(12)))
	}
	return b.String()
}

// New returns the random source of a test.
func New(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 17)) }

// VM returns a VM as a hostile source may report it. Any string may have any content. Most typed values
// are valid, so that some VMs pass the checks.
func VM(r *rand.Rand) *inventory.VM {
	line := func() string {
		if r.IntN(30) == 0 {
			return Garbage(r)
		}
		return Line(r)
	}
	note := func() string {
		if r.IntN(30) == 0 {
			return Garbage(r)
		}
		return Text(r)
	}
	typed := func(valid string) string {
		if r.IntN(60) == 0 {
			return Garbage(r)
		}
		return valid
	}
	uuid := func() string {
		return typed(fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", r.Uint32(), r.Uint32()&0xffff, r.Uint32()&0xffff, r.Uint32()&0xffff, r.Uint64()&0xffffffffffff))
	}
	path := func(ending string) inventory.Path {
		if r.IntN(60) == 0 {
			return inventory.Path{Datastore: Garbage(r), File: Garbage(r)}
		}
		name := strings.NewReplacer("/", "_").Replace(Line(r))
		return inventory.Path{Datastore: strings.NewReplacer("/", "_", "]", "_").Replace(Line(r)) + "1", File: name + "x/" + name + ending}
	}
	vm := &inventory.VM{
		Ref: inventory.MoRef(typed(fmt.Sprintf("vm-%d", r.IntN(1e6)))), Name: line(), UUID: uuid(), InstanceUUID: uuid(),
		Host: inventory.MoRef(typed("host-9")), HostName: line(), Cluster: line(), Datacenter: line(), Folder: line(),
		VMX: path(".vmx"), NVRAM: path(".nvram"), Power: inventory.PoweredOff, GuestID: typed("debian12_64Guest"), GuestName: line(),
		HardwareVersion: 19, Annotation: note(), CPUs: 2, CoresPerSocket: 2, MemoryMiB: 256,
		Firmware:    inventory.Firmware(typed(string([]inventory.Firmware{inventory.BIOS, inventory.EFI}[r.IntN(2)]))),
		Controllers: []inventory.Controller{{Key: 1000, Bus: inventory.PVSCSI}},
		Attributes:  map[string]string{note(): note(), "Owner": note()},
		BootOrder:   []string{typed("disk:2000"), "net:4000"},
	}
	for range r.IntN(3) {
		vm.Tags = append(vm.Tags, inventory.Tag{Category: note(), Name: note()})
	}
	for i := range 1 + r.IntN(2) {
		p := path(".vmdk")
		vm.Disks = append(vm.Disks, inventory.Disk{
			Key: int32(2000 + i), Label: line(), Path: p, Base: p, Capacity: 1 << 20, Backing: inventory.Flat, Mode: typed("persistent"), Controller: 1000,
			Unit: i, UUID: typed(fmt.Sprintf("6000C29%x-%04x", r.IntN(16), r.IntN(1<<16))), ChangeID: inventory.ChangeID(typed("52 de c0 d9-61 d5/7")), Layers: 1,
		})
	}
	for i := range 1 + r.IntN(2) {
		vm.NICs = append(vm.NICs, inventory.NIC{
			Key: int32(4000 + i), Label: line(), Model: typed([]string{"vmxnet3", "e1000", "flexible"}[r.IntN(3)]), Network: line(),
			MAC: typed(fmt.Sprintf("00:50:56:%02x:%02x:%02x", r.IntN(256), r.IntN(256), r.IntN(256))), AddressType: typed("assigned"), StartConnected: true,
		})
	}
	return vm
}
