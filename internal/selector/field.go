package selector

import (
	"slices"
	"strconv"
	"strings"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/units"
)

// A field is something that VMs are chosen by. One of its four functions is not nil.
type field struct {
	name    string
	means   string
	example string
	fact    inventory.Fact // kind of property that the field needs

	texts func(*inventory.VM) []string
	count func(*inventory.VM) int64
	bytes func(*inventory.VM) int64
	truth func(*inventory.VM) bool
	below bool // the text is a path: = also matches objects below it
}

// fields in the order of the help.
var fields = []field{
	{name: "name", fact: inventory.OnRoll, means: "name of the VM", example: `name ~ "web*"`, texts: func(v *inventory.VM) []string { return []string{v.Name} }},
	{name: "ref", fact: inventory.OnRoll, means: "its reference", example: "ref=vm-42", texts: func(v *inventory.VM) []string { return []string{string(v.Ref)} }},
	{name: "uuid", fact: inventory.OnRoll, means: "its BIOS or instance UUID", example: "uuid ~ 4220*", texts: func(v *inventory.VM) []string { return []string{v.UUID, v.InstanceUUID} }},
	{name: "folder", fact: inventory.OnRoll, means: "the inventory folder it is in, or in one below", example: "folder=prod/web", below: true, texts: func(v *inventory.VM) []string { return []string{v.Folder} }},
	{name: "datacenter", fact: inventory.OnRoll, means: "its datacenter", example: "datacenter=DC1", texts: func(v *inventory.VM) []string { return []string{v.Datacenter} }},
	{name: "cluster", fact: inventory.OnRoll, means: "the cluster of its host", example: "cluster=prod", texts: func(v *inventory.VM) []string { return []string{v.Cluster} }},
	{name: "host", fact: inventory.OnRoll, means: "the ESXi host it is on", example: "host=esx1.example.com", texts: func(v *inventory.VM) []string { return []string{v.HostName} }},
	{name: "datastore", means: "one that its files are on", example: "datastore=ssd1", texts: datastores},
	{name: "network", means: "one that it is connected to", example: `network="VM Network"`, texts: networks},
	{name: "os", fact: inventory.FactGuest, means: "the guest, as VMware calls it, or its identifier", example: "os ~ *windows*", texts: func(v *inventory.VM) []string { return []string{v.GuestName, v.GuestID} }},
	{name: "firmware", fact: inventory.FactFirmware, means: "bios or efi", example: "firmware=efi", texts: func(v *inventory.VM) []string { return []string{string(v.Firmware)} }},
	{name: "power", fact: inventory.FactPower, means: "on, off or suspended", example: "power=off", texts: func(v *inventory.VM) []string { return []string{string(v.Power)} }},
	{name: "warning", means: "the code of one that decamp ls shows", example: "warning=vtpm", texts: warnings},
	{name: "cpus", fact: inventory.FactHardware, means: "its virtual CPUs", example: "cpus >= 8", count: func(v *inventory.VM) int64 { return int64(v.CPUs) }},
	{name: "memory", fact: inventory.FactHardware, means: "its memory", example: "memory <= 16GiB", bytes: func(v *inventory.VM) int64 { return v.MemoryMiB << 20 }},
	{name: "disks", fact: inventory.OnRoll, means: "how many it has", example: "disks=1", count: func(v *inventory.VM) int64 { return int64(len(v.Disks)) }},
	{name: "size", means: "of its disks together, as the guest sees them", example: "size < 100GiB", bytes: func(v *inventory.VM) int64 { return v.Provisioned }},
	{name: "used", means: "what its disks take on datastores", example: "used > 1TiB", bytes: func(v *inventory.VM) int64 { return v.Used }},
	{name: "snapshots", means: "how many it has", example: "snapshots=0", count: func(v *inventory.VM) int64 { return int64(v.Snapshots) }},
	{name: "poweredOn", fact: inventory.FactPower, means: "it runs", example: "!poweredOn", truth: func(v *inventory.VM) bool { return v.Power == inventory.PoweredOn }},
	{name: "template", fact: inventory.OnRoll, means: "it is a template", example: "!template", truth: func(v *inventory.VM) bool { return v.Template }},
	{name: "tools", fact: inventory.FactTools, means: "VMware Tools run in it", example: "tools", truth: func(v *inventory.VM) bool { return v.ToolsRunning }},
	{name: "cbt", fact: inventory.FactTracking, means: "its changes are tracked", example: "cbt", truth: func(v *inventory.VM) bool { return v.ChangeTracking }},
}

// Field is a field, for help texts.
type Field struct{ Name, Means, Example string }

// Fields are all fields there are.
func Fields() []Field {
	out := make([]Field, len(fields))
	for i, f := range fields {
		out[i] = Field{f.name, f.means, f.example}
	}
	return out
}

func datastores(v *inventory.VM) []string {
	names := []string{v.VMX.Datastore}
	for _, d := range v.Disks {
		names = append(names, d.Path.Datastore, d.Base.Datastore)
	}
	return names
}

func networks(v *inventory.VM) []string {
	var names []string
	for _, n := range v.NICs {
		names = append(names, n.Network)
	}
	return names
}

func warnings(v *inventory.VM) []string {
	var codes []string
	for _, w := range v.Warnings {
		codes = append(codes, w.Code)
	}
	return codes
}

// takes reports whether the field can be compared by an operator.
func (f *field) takes(op string) bool {
	switch {
	case f.texts != nil:
		return op == "=" || op == "!=" || op == "~"
	case f.truth != nil:
		return op == "=" || op == "!="
	}
	return op != "~"
}

// A value is what a field is compared with.
type value struct {
	text  string
	n     int64
	truth bool
}

// read makes a token a value of the field's kind.
func (f *field) read(t token, op string) (value, error) {
	v := value{text: t.text}
	var err error
	switch {
	case f.texts != nil:
		if op != "~" && t.kind == word && strings.ContainsAny(t.text, "*?") {
			return v, wrong(t.column, "%s is a pattern, and %s compares with the text as it is", t.text, op).remedy("write %s ~ %s, or put the text in quotes", f.name, t.text)
		}
		return v, nil
	case f.truth != nil:
		if t.text != "true" && t.text != "false" {
			return v, wrong(t.column, "%s is true or false, not %q", f.name, t.text).remedy("write for example: %s", f.example)
		}
		v.truth = t.text == "true"
		return v, nil
	case f.count != nil:
		if v.n, err = strconv.ParseInt(t.text, 10, 64); err != nil {
			return v, wrong(t.column, "%q is not a whole number", t.text).remedy("write for example: %s", f.example)
		}
		return v, nil
	}
	v.n, err = units.ParseSize(t.text)
	if digits := strings.TrimLeft(t.text, "0123456789"); err != nil || digits == "" && v.n != 0 {
		return v, wrong(t.column, "%q is not a size with its unit", t.text).remedy("write a whole number with K, M, G or T, such as 100GiB")
	}
	return v, nil
}

// A term compares a field with a value.
type term struct {
	field *field
	op    string
	value value
}

func (t term) match(vm *inventory.VM) bool {
	f := t.field
	switch {
	case f.texts != nil:
		return slices.ContainsFunc(f.texts(vm), t.fits) == (t.op != "!=")
	case f.truth != nil:
		return (f.truth(vm) == t.value.truth) == (t.op != "!=")
	case f.count != nil:
		return ordered(f.count(vm), t.op, t.value.n)
	}
	return ordered(f.bytes(vm), t.op, t.value.n)
}

func (t term) each(tell func(*field)) { tell(t.field) }

// fits reports whether one text of the VM is the term's.
func (t term) fits(have string) bool {
	want := t.value.text
	switch {
	case t.op == "~":
		return glob(strings.ToLower(want), strings.ToLower(have))
	case t.field.below && strings.HasPrefix(strings.ToLower(have), strings.ToLower(want)+"/"):
		return want != ""
	}
	return strings.EqualFold(have, want)
}

func ordered(a int64, op string, b int64) bool {
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

func (t term) String() string {
	if t.field.truth != nil && t.op == "=" && t.value.truth {
		return t.field.name
	}
	v := quote(t.value.text)
	if t.op != "~" && strings.ContainsAny(v, "*?") && v[0] != '"' {
		v = `"` + v + `"` // without quotes it would be a pattern
	}
	return t.field.name + " " + t.op + " " + v
}

// glob matches a pattern of * and ? in time that is linear in both, but for their product.
func glob(pattern, s string) bool {
	p, t := []rune(pattern), []rune(s)
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
