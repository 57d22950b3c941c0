package selector

import (
	"slices"
	"strconv"
	"strings"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/units"
)

// A field is a property by which VMs are selected. Exactly one of its four functions is not nil; it
// determines the type of the field.
type field struct {
	name    string         // name in expressions; compared without regard to case
	means   string         // description for the help
	example string         // valid expression, for remedies
	fact    inventory.Fact // kind of property that the field needs

	textsOf func(*inventory.VM) []string // values of a text field; it matches if one of them does
	countOf func(*inventory.VM) int64    // value of a number field
	bytesOf func(*inventory.VM) int64    // value of a size field in bytes
	boolOf  func(*inventory.VM) bool     // value of a boolean field
	isPath  bool                         // the text is a path: = also matches objects below it
}

// fields are all fields, in the order of the help.
var fields = []field{
	{name: "name", fact: inventory.FactListed, means: "name of the VM", example: `name ~ "web*"`, textsOf: func(v *inventory.VM) []string { return []string{v.Name} }},
	{name: "ref", fact: inventory.FactListed, means: "reference, such as vm-42", example: "ref=vm-42", textsOf: func(v *inventory.VM) []string { return []string{string(v.Ref)} }},
	{name: "uuid", fact: inventory.FactListed, means: "BIOS UUID or instance UUID", example: "uuid ~ 4220*", textsOf: func(v *inventory.VM) []string { return []string{v.UUID, v.InstanceUUID} }},
	{name: "folder", fact: inventory.FactListed, means: "inventory folder, including folders below it", example: "folder=prod/web", isPath: true, textsOf: func(v *inventory.VM) []string { return []string{v.Folder} }},
	{name: "datacenter", fact: inventory.FactListed, means: "datacenter of the VM", example: "datacenter=DC1", textsOf: func(v *inventory.VM) []string { return []string{v.Datacenter} }},
	{name: "cluster", fact: inventory.FactListed, means: "cluster of its host", example: "cluster=prod", textsOf: func(v *inventory.VM) []string { return []string{v.Cluster} }},
	{name: "host", fact: inventory.FactListed, means: "ESXi host of the VM", example: "host=esx1.example.com", textsOf: func(v *inventory.VM) []string { return []string{v.HostName} }},
	{name: "datastore", means: "datastore of one of its files", example: "datastore=ssd1", textsOf: datastoreNames},
	{name: "network", means: "network of one of its NICs", example: `network="VM Network"`, textsOf: networkNames},
	{name: "os", fact: inventory.FactGuest, means: "guest operating system: VMware's name or identifier", example: "os ~ *windows*", textsOf: func(v *inventory.VM) []string { return []string{v.GuestName, v.GuestID} }},
	{name: "firmware", fact: inventory.FactFirmware, means: "bios or efi", example: "firmware=efi", textsOf: func(v *inventory.VM) []string { return []string{string(v.Firmware)} }},
	{name: "power", fact: inventory.FactPower, means: "on, off or suspended", example: "power=off", textsOf: func(v *inventory.VM) []string { return []string{string(v.Power)} }},
	{name: "warning", means: "code of a warning that decamp ls shows", example: "warning=vtpm", textsOf: warningCodes},
	{name: "cpus", fact: inventory.FactHardware, means: "number of virtual CPUs", example: "cpus >= 8", countOf: func(v *inventory.VM) int64 { return int64(v.CPUs) }},
	{name: "memory", fact: inventory.FactHardware, means: "size of its memory", example: "memory <= 16GiB", bytesOf: func(v *inventory.VM) int64 { return v.MemoryMiB << 20 }},
	{name: "disks", fact: inventory.FactListed, means: "number of disks", example: "disks=1", countOf: func(v *inventory.VM) int64 { return int64(len(v.Disks)) }},
	{name: "size", means: "total size of its disks, as the guest sees them", example: "size < 100GiB", bytesOf: func(v *inventory.VM) int64 { return v.Provisioned }},
	{name: "used", means: "space of its disks on datastores", example: "used > 1TiB", bytesOf: func(v *inventory.VM) int64 { return v.Used }},
	{name: "snapshots", means: "number of snapshots", example: "snapshots=0", countOf: func(v *inventory.VM) int64 { return int64(v.Snapshots) }},
	{name: "poweredOn", fact: inventory.FactPower, means: "the VM runs", example: "!poweredOn", boolOf: func(v *inventory.VM) bool { return v.Power == inventory.PoweredOn }},
	{name: "template", fact: inventory.FactListed, means: "the VM is a template", example: "!template", boolOf: func(v *inventory.VM) bool { return v.Template }},
	{name: "tools", fact: inventory.FactTools, means: "VMware Tools run in the guest", example: "tools", boolOf: func(v *inventory.VM) bool { return v.ToolsRunning }},
	{name: "cbt", fact: inventory.FactTracking, means: "changed block tracking is on", example: "cbt", boolOf: func(v *inventory.VM) bool { return v.ChangeTracking }},
}

// Field describes a field for help texts.
type Field struct {
	Name    string // name in expressions
	Means   string // description of the values
	Example string // valid expression with the field
}

// Fields returns all fields in the order of the help.
func Fields() []Field {
	out := make([]Field, len(fields))
	for i, f := range fields {
		out[i] = Field{f.name, f.means, f.example}
	}
	return out
}

// datastoreNames returns the datastores of all files of a VM, including base disks of snapshots. Names
// may repeat.
func datastoreNames(v *inventory.VM) []string {
	names := []string{v.VMX.Datastore}
	for _, d := range v.Disks {
		names = append(names, d.Path.Datastore, d.Base.Datastore)
	}
	return names
}

// networkNames returns the network of each NIC.
func networkNames(v *inventory.VM) []string {
	var names []string
	for _, n := range v.NICs {
		names = append(names, n.Network)
	}
	return names
}

// warningCodes returns the code of each warning.
func warningCodes(v *inventory.VM) []string {
	var codes []string
	for _, w := range v.Warnings {
		codes = append(codes, w.Code)
	}
	return codes
}

// acceptsOperator reports whether the field can be compared by an operator.
func (f *field) acceptsOperator(op string) bool {
	switch {
	case f.textsOf != nil:
		return op == "=" || op == "!=" || op == "~"
	case f.boolOf != nil:
		return op == "=" || op == "!="
	}
	return op != "~"
}

// A value is the operand of a comparison. Whether n or boolean is valid depends on the type of the
// field.
type value struct {
	text    string // text as written, for String and for text fields
	n       int64  // number or bytes
	boolean bool
}

// parseValue converts a token to a value of the field's type. It refuses text with wildcards for
// operators other than ~: the user meant a pattern.
func (f *field) parseValue(t token, op string) (value, error) {
	v := value{text: t.text}
	var err error
	switch {
	case f.textsOf != nil:
		if op != "~" && t.kind == word && strings.ContainsAny(t.text, "*?") {
			return v, newError(t.column, "%s is a pattern, and %s compares exact text", t.text, op).withRemedy("write %s ~ %s, or put the text in quotes", f.name, t.text)
		}
		return v, nil
	case f.boolOf != nil:
		if t.text != "true" && t.text != "false" {
			return v, newError(t.column, "%s is true or false, not %q", f.name, t.text).withRemedy("write for example: %s", f.example)
		}
		v.boolean = t.text == "true"
		return v, nil
	case f.countOf != nil:
		if v.n, err = strconv.ParseInt(t.text, 10, 64); err != nil {
			return v, newError(t.column, "%q is not a whole number", t.text).withRemedy("write for example: %s", f.example)
		}
		return v, nil
	}
	v.n, err = units.ParseSize(t.text)
	if digits := strings.TrimLeft(t.text, "0123456789"); err != nil || digits == "" && v.n != 0 {
		return v, newError(t.column, "%q is not a size with a unit", t.text).withRemedy("write a whole number with K, M, G or T, such as 100GiB")
	}
	return v, nil
}

// A term compares a field with a value.
type term struct {
	field *field // left side
	op    string // operator, one of comparisons
	value value  // right side
}

// matchVM reports whether the term is true for a VM. A text field with != is true if none of its values
// is equal.
func (t term) matchVM(vm *inventory.VM) bool {
	f := t.field
	switch {
	case f.textsOf != nil:
		return slices.ContainsFunc(f.textsOf(vm), t.matchesText) == (t.op != "!=")
	case f.boolOf != nil:
		return (f.boolOf(vm) == t.value.boolean) == (t.op != "!=")
	case f.countOf != nil:
		return compareInts(f.countOf(vm), t.op, t.value.n)
	}
	return compareInts(f.bytesOf(vm), t.op, t.value.n)
}

// visitFields implements node.
func (t term) visitFields(visit func(*field)) { visit(t.field) }

// matchesText reports whether one text of the VM equals the value or matches the pattern. For a path,
// objects below it are equal, too.
func (t term) matchesText(have string) bool {
	want := t.value.text
	switch {
	case t.op == "~":
		return matchGlob(strings.ToLower(want), strings.ToLower(have))
	case t.field.isPath && strings.HasPrefix(strings.ToLower(have), strings.ToLower(want)+"/"):
		return want != ""
	}
	return strings.EqualFold(have, want)
}

// compareInts reports whether a op b is true. Unknown operators are >=.
func compareInts(a int64, op string, b int64) bool {
	switch op {
	case "=":
		return a == b
	case "!=":
		return a != b
	case "<":
		return a < b
	case "<=":
		return a <= b
	case ">":
		return a > b
	}
	return a >= b
}

// String returns the term in its normal form. Text that would be read as a pattern is quoted.
func (t term) String() string {
	if t.field.boolOf != nil && t.op == "=" && t.value.boolean {
		return t.field.name
	}
	v := quoteValue(t.value.text)
	if t.op != "~" && strings.ContainsAny(v, "*?") && v[0] != '"' {
		v = `"` + v + `"` // without quotes it would be a pattern
	}
	return t.field.name + " " + t.op + " " + v
}

// matchGlob reports whether s matches a pattern with * and ?. It backtracks only to the last *, so it
// takes at most len(pattern) * len(s) steps.
func matchGlob(pattern, s string) bool {
	p, t := []rune(pattern), []rune(s)
	// i and j are positions in p and t. star is the position of the last * in p, and mark the
	// position in t up to which it has matched.
	i, j, star, mark := 0, 0, -1, 0
	for j < len(t) {
		switch {
		case i < len(p) && p[i] == '*':
			star, mark = i, j
			i++
		case i < len(p) && (p[i] == '?' || p[i] == t[j]):
			i, j = i+1, j+1
		case star >= 0: // the last * takes one more character
			mark++
			i, j = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(string(p[i:]), "*") == ""
}
