package inventory

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The longest texts that a VM may have, in bytes.
const (
	maxLine = 1 << 10   // names and labels; vSphere allows names of 80 characters
	maxText = 256 << 10 // notes, tags and custom attributes
	maxPath = 16 << 10  // paths of folders in the inventory, and of files on a datastore
)

// maxProcessors and maxMemoryMiB are far above what vSphere allows.
const (
	maxProcessors = 1 << 16
	maxMemoryMiB  = 1 << 34
)

// A form is the set of valid values of a string.
type form struct {
	valid func(string) bool
	want  string // describes the valid values in an error message
}

func pattern(expr, want string) form { return form{regexp.MustCompile(expr).MatchString, want} }

// Forms of typed strings. Only what is listed is valid, and no value begins with a dash.
var (
	refForm      = pattern(`^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$`, "letters, digits and . _ : -")
	uuidForm     = pattern(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`, "8-4-4-4-12 hexadecimal digits")
	diskUUIDForm = pattern(`^[0-9A-Fa-f][0-9A-Fa-f -]{0,127}$`, "hexadecimal digits and dashes")
	macForm      = pattern(`^([0-9a-f]{2}:){5}[0-9a-f]{2}$`, "six pairs of hexadecimal digits with colons")
	wordForm     = pattern(`^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$`, "letters, digits and . _ -")
	changeIDForm = pattern(`^[!-,.-~][ -~]{0,255}$`, "printable ASCII characters")
	addressForm  = pattern(`^[A-Za-z0-9:][A-Za-z0-9._:%-]{0,254}$`, "a host name or an IP address")
	bootForm     = pattern(`^((disk|net):-?[0-9]{1,10}|cdrom|floppy)$`, "disk:KEY, net:KEY, cdrom or floppy")
	firmwareForm = pattern(`^(bios|efi)$`, "bios or efi")
	lineForm     = form{isLine, fmt.Sprintf("valid UTF-8 of at most %d bytes without control characters and line breaks", maxLine)}
	placeForm    = form{isPlace, fmt.Sprintf("valid UTF-8 of at most %d bytes without control characters and line breaks", maxPath)}
	textForm     = form{isText, fmt.Sprintf("valid UTF-8 of at most %d bytes without control characters other than tabs and line breaks", maxText)}
)

// isXML reports whether XML 1.0 can represent r. The inventory arrives as XML, and some targets take XML.
func isXML(r rune) bool {
	return r == '\t' || r == '\n' || r == '\r' || r >= ' ' && r <= 0xd7ff || r >= 0xe000 && r <= 0xfffd || r >= 0x10000
}

// breaksLine reports whether r is a control character or a line break.
func breaksLine(r rune) bool { return unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp) }

func isText(s string) bool {
	return len(s) <= maxText && utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !isXML(r) })
}

func isLine(s string) bool { return len(s) <= maxLine && isPlace(s) }

// isPlace reports whether s is one line, as a path of names is.
func isPlace(s string) bool {
	return len(s) <= maxPath && isText(s) && !strings.ContainsFunc(s, breaksLine)
}

// isFile reports whether s names a file below the root of a datastore.
func isFile(s string) bool {
	element := func(e string) bool { return e != "" && e != "." && e != ".." && isLine(e) }
	return len(s) <= maxPath && !slices.ContainsFunc(strings.Split(s, "/"), func(e string) bool { return !element(e) })
}

// Valid reports whether p is empty, or names a file below the root of a datastore.
func (p Path) Valid() bool {
	if p == (Path{}) {
		return true
	}
	ds := p.Datastore
	return ds != "" && ds != "." && ds != ".." && isLine(ds) && !strings.ContainsAny(ds, "/]") && isFile(p.File)
}

// printable returns s as one line of valid UTF-8 of bounded length. Other characters become "?".
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !isXML(r) || breaksLine(r) {
			return '?'
		}
		return r
	}, s[:min(len(s), maxLine)])
	return s
}

// standIn is a reference that no object has, in place of one that is not valid. Different references
// have different ones.
func standIn(ref MoRef) MoRef {
	sum := sha256.Sum256([]byte(ref))
	return MoRef("invalid-" + hex.EncodeToString(sum[:8]))
}

// A checker removes values that are not valid and records a problem for each.
type checker struct{ problems []string }

func (c *checker) problem(what, value, want string) {
	c.problems = append(c.problems, fmt.Sprintf("%s %.80q is not valid: want %s", what, value, want))
}

// check empties *v unless it is empty or of the form.
func check[T ~string](c *checker, what string, v *T, f form) {
	if *v != "" && !f.valid(string(*v)) {
		c.problem(what, string(*v), f.want)
		*v = ""
	}
}

func (c *checker) line(what string, s *string) { check(c, what, s, lineForm) }

// name keeps what can be printed of a name that is not valid, so that people recognize it.
func (c *checker) name(what string, s *string) {
	if !isLine(*s) {
		c.problem(what, *s, lineForm.want)
		*s = printable(*s)
	}
}

func (c *checker) ref(what string, ref *MoRef) {
	if *ref != "" && !refForm.valid(string(*ref)) {
		c.problem(what, string(*ref), refForm.want)
		*ref = standIn(*ref)
	}
}

func (c *checker) path(what string, p *Path) {
	if !p.Valid() {
		text := p.String()
		if p.Datastore == "" {
			text = p.File
		}
		c.problem(what, text, "[DATASTORE] FOLDER/FILE without . and .. and control characters")
		*p = Path{}
	}
}

func number[T int | int64](c *checker, what string, n *T, most T) {
	if *n < 0 || *n > most {
		c.problems = append(c.problems, fmt.Sprintf("%s %d is not valid: want 0 to %d", what, *n, most))
		*n = 0
	}
}

// RemoveInvalid removes every value of the VM that is not valid, and returns a description of each. A VM
// that lost a value must not be moved. The name stays readable, and an invalid reference becomes one
// that no object has.
//
// After RemoveInvalid, typed values consist of the characters of their type, names are one line of UTF-8,
// and notes, tags and attributes are UTF-8 that XML can represent. Values may still hold quotes, commas and any
// other printable character: code that writes them into a command, a document or a terminal quotes them.
func (vm *VM) RemoveInvalid() (problems []string) {
	c := &checker{}
	c.name("name", &vm.Name)
	c.ref("reference", &vm.Ref)
	c.ref("reference of the host", &vm.Host)
	check(c, "UUID", &vm.UUID, uuidForm)
	check(c, "instance UUID", &vm.InstanceUUID, uuidForm)
	check(c, "guest id", &vm.GuestID, wordForm)
	check(c, "firmware", &vm.Firmware, firmwareForm)
	c.line("host", &vm.HostName)
	c.line("cluster", &vm.Cluster)
	check(c, "datacenter", &vm.Datacenter, placeForm)
	check(c, "folder", &vm.Folder, placeForm)
	c.line("guest name", &vm.GuestName)
	check(c, "notes", &vm.Annotation, textForm)
	c.path("configuration file", &vm.VMX)
	c.path("NVRAM file", &vm.NVRAM)
	number(c, "number of processors", &vm.CPUs, maxProcessors)
	number(c, "number of cores per socket", &vm.CoresPerSocket, maxProcessors)
	number(c, "memory in MiB", &vm.MemoryMiB, maxMemoryMiB)
	for i := range vm.BootOrder {
		check(c, "boot device", &vm.BootOrder[i], bootForm)
	}
	c.devices(vm)
	c.inscriptions(vm)
	return c.problems
}

// devices checks controllers, disks and network cards.
func (c *checker) devices(vm *VM) {
	taken := map[int32]bool{}
	unique := func(what string, key int32) {
		if taken[key] {
			c.problems = append(c.problems, fmt.Sprintf("%s %d has the key of another device", what, key))
		}
		taken[key] = true
	}
	for i := range vm.Controllers {
		x := &vm.Controllers[i]
		unique("controller", x.Key)
		check(c, "controller type", &x.Unexpected, wordForm)
	}
	for i := range vm.Disks {
		d := &vm.Disks[i]
		if *d == (Disk{}) {
			continue // Session.Roll counts the disks and does not describe them
		}
		name := fmt.Sprintf("disk %d: ", d.Key)
		unique("disk", d.Key)
		c.line(name+"label", &d.Label)
		c.path(name+"file", &d.Path)
		c.path(name+"base file", &d.Base)
		check(c, name+"mode", &d.Mode, wordForm)
		check(c, name+"UUID", &d.UUID, diskUUIDForm)
		check(c, name+"change id", &d.ChangeID, changeIDForm)
		number(c, name+"capacity", &d.Capacity, 1<<62)
	}
	for i := range vm.NICs {
		n := &vm.NICs[i]
		name := fmt.Sprintf("network card %d: ", n.Key)
		unique("network card", n.Key)
		c.line(name+"label", &n.Label)
		check(c, name+"model", &n.Model, wordForm)
		check(c, name+"MAC address", &n.MAC, macForm)
		check(c, name+"address type", &n.AddressType, wordForm)
		c.line(name+"network", &n.Network)
	}
}

// inscriptions checks tags and custom attributes. Those that are not valid are left out.
func (c *checker) inscriptions(vm *VM) {
	vm.Tags = slices.DeleteFunc(vm.Tags, func(t Tag) bool {
		bad := !isText(t.Category) || !isText(t.Name)
		if bad {
			c.problem("tag", t.Category+"/"+t.Name, textForm.want)
		}
		return bad
	})
	for _, name := range slices.Sorted(maps.Keys(vm.Attributes)) {
		if value := vm.Attributes[name]; !isText(name) || !isText(value) {
			c.problem("custom attribute", name+": "+value, textForm.want)
			delete(vm.Attributes, name)
		}
	}
}

// RemoveInvalid removes every value of the host that is not valid, and returns a description of each.
func (h *Host) RemoveInvalid() []string {
	c := &checker{}
	c.ref("reference", &h.Ref)
	c.name("host", &h.Name)
	check(c, "address", &h.Address, addressForm)
	c.line("version", &h.Version)
	c.line("build", &h.Build)
	return c.problems
}

// RemoveInvalid removes every value of the datastore that is not valid, and returns a description of each.
func (d *Datastore) RemoveInvalid() []string {
	c := &checker{}
	check(c, "reference", &d.Ref, lineForm) // on a host it is SERVER:/EXPORT for NFS
	c.name("datastore", &d.Name)
	c.line("type", &d.Type)
	check(c, "datacenter", &d.Datacenter, placeForm)
	for i := range d.Hosts {
		c.ref("reference of a host", &d.Hosts[i])
	}
	return c.problems
}
