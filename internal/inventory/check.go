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
	maxProcessors = 1 << 16 // far more than vSphere allows
	maxMemoryMiB  = 1 << 34 // far more than vSphere allows
)

// A form is the set of valid values of a string.
type form struct {
	valid func(string) bool // reports whether a value is valid
	want  string            // describes the valid values in an error message
}

// newForm returns the form of strings that match the regular expression expr. want describes them.
func newForm(expr, want string) form { return form{regexp.MustCompile(expr).MatchString, want} }

// Forms of typed strings. All other values are invalid, and no value begins with a dash.
var (
	refForm = newForm(`^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$`, "letters, digits and . _ : -") // MoRef
	// UUID of a VM
	uuidForm = newForm(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`, "8-4-4-4-12 hexadecimal digits")
	// UUID of a disk; VMware separates its bytes by blanks
	diskUUIDForm = newForm(`^[0-9A-Fa-f][0-9A-Fa-f -]{0,127}$`, "hexadecimal digits and dashes")
	// MAC address
	macForm      = newForm(`^([0-9a-f]{2}:){5}[0-9a-f]{2}$`, "six pairs of hexadecimal digits with colons")
	wordForm     = newForm(`^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$`, "letters, digits and . _ -") // keyword of the API
	changeIDForm = newForm(`^[!-,.-~][ -~]{0,255}$`, "printable ASCII characters")           // ChangeID; "*" is valid too
	// host name, IPv4 or IPv6 address
	addressForm = newForm(`^[A-Za-z0-9:][A-Za-z0-9._:%-]{0,254}$`, "a host name or an IP address")
	// device of the boot order
	bootForm     = newForm(`^((disk|net):-?[0-9]{1,10}|cdrom|floppy)$`, "disk:KEY, net:KEY, cdrom or floppy")
	firmwareForm = newForm(`^(bios|efi)$`, "bios or efi") // firmware
	// name or label
	lineForm = form{isLine, fmt.Sprintf("valid UTF-8 of at most %d bytes without control characters and line breaks", maxLine)}
	// path of folders
	pathForm = form{isPath, fmt.Sprintf("valid UTF-8 of at most %d bytes without control characters and line breaks", maxPath)}
	// note, tag or custom attribute
	textForm = form{isText, fmt.Sprintf("valid UTF-8 of at most %d bytes without control characters other than tabs and line breaks", maxText)}
)

// isXML reports whether XML 1.0 can represent r. The inventory arrives as XML, and some targets take XML.
func isXML(r rune) bool {
	return r == '\t' || r == '\n' || r == '\r' || r >= ' ' && r <= 0xd7ff || r >= 0xe000 && r <= 0xfffd || r >= 0x10000
}

// breaksLine reports whether r is a control character or a line break.
func breaksLine(r rune) bool { return unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp) }

// isText reports whether s is valid as a note: UTF-8 that XML can represent, of limited length.
func isText(s string) bool {
	return len(s) <= maxText && utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !isXML(r) })
}

// isLine reports whether s is valid as a name: one line of limited length.
func isLine(s string) bool { return len(s) <= maxLine && isPath(s) }

// isPath reports whether s is one line, with the length limit of paths.
func isPath(s string) bool {
	return len(s) <= maxPath && isText(s) && !strings.ContainsFunc(s, breaksLine)
}

// isFile reports whether s is a path below the root of a datastore, without empty elements, "." and
// "..".
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

// toPrintable returns s as one line of valid UTF-8 of limited length. Other characters become "?".
func toPrintable(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !isXML(r) || breaksLine(r) {
			return '?'
		}
		return r
	}, s[:min(len(s), maxLine)])
	return s
}

// invalidRef returns a reference that no object has, in place of an invalid one. Different references
// have different results.
func invalidRef(ref MoRef) MoRef {
	sum := sha256.Sum256([]byte(ref))
	return MoRef("invalid-" + hex.EncodeToString(sum[:8]))
}

// A checker removes invalid values and records a problem for each.
type checker struct{ problems []string }

// addProblem records an invalid value. want describes the valid ones.
func (c *checker) addProblem(what, value, want string) {
	c.problems = append(c.problems, fmt.Sprintf("%s %.80q is not valid: want %s", what, value, want))
}

// checkForm empties *v unless it is empty or has form f.
func checkForm[T ~string](c *checker, what string, v *T, f form) {
	if *v != "" && !f.valid(string(*v)) {
		c.addProblem(what, string(*v), f.want)
		*v = ""
	}
}

// checkLine empties *s unless it is a valid name.
func (c *checker) checkLine(what string, s *string) { checkForm(c, what, s, lineForm) }

// checkName replaces an invalid name by its printable characters, so that the user recognizes it.
func (c *checker) checkName(what string, s *string) {
	if !isLine(*s) {
		c.addProblem(what, *s, lineForm.want)
		*s = toPrintable(*s)
	}
}

// checkRef replaces an invalid reference by one that no object has.
func (c *checker) checkRef(what string, ref *MoRef) {
	if *ref != "" && !refForm.valid(string(*ref)) {
		c.addProblem(what, string(*ref), refForm.want)
		*ref = invalidRef(*ref)
	}
}

// checkPath empties *p unless it is valid.
func (c *checker) checkPath(what string, p *Path) {
	if !p.Valid() {
		text := p.String()
		if p.Datastore == "" {
			text = p.File
		}
		c.addProblem(what, text, "[DATASTORE] FOLDER/FILE without . and .. and control characters")
		*p = Path{}
	}
}

// checkNumber sets *n to 0 unless it is between 0 and most.
func checkNumber[T int | int64](c *checker, what string, n *T, most T) {
	if *n < 0 || *n > most {
		c.problems = append(c.problems, fmt.Sprintf("%s %d is not valid: want 0 to %d", what, *n, most))
		*n = 0
	}
}

// RemoveInvalid removes every invalid value of the VM, and returns a description of each. A VM that
// lost a value must not be migrated. The name stays readable, and an invalid reference becomes one that
// no object has.
//
// After RemoveInvalid, typed values consist of the characters of their type, names are one line of
// UTF-8, and notes, tags and attributes are UTF-8 that XML can represent. Values may still contain
// quotes, commas and any other printable character. Code that writes them into a command, a document or
// a terminal must quote them.
func (vm *VM) RemoveInvalid() (problems []string) {
	c := &checker{}
	c.checkName("name", &vm.Name)
	c.checkRef("reference", &vm.Ref)
	c.checkRef("reference of the host", &vm.Host)
	checkForm(c, "UUID", &vm.UUID, uuidForm)
	checkForm(c, "instance UUID", &vm.InstanceUUID, uuidForm)
	checkForm(c, "guest id", &vm.GuestID, wordForm)
	checkForm(c, "firmware", &vm.Firmware, firmwareForm)
	c.checkLine("host", &vm.HostName)
	c.checkLine("cluster", &vm.Cluster)
	checkForm(c, "datacenter", &vm.Datacenter, pathForm)
	checkForm(c, "folder", &vm.Folder, pathForm)
	c.checkLine("guest name", &vm.GuestName)
	checkForm(c, "notes", &vm.Annotation, textForm)
	c.checkPath("configuration file", &vm.VMX)
	c.checkPath("NVRAM file", &vm.NVRAM)
	checkNumber(c, "number of processors", &vm.CPUs, maxProcessors)
	checkNumber(c, "number of cores per socket", &vm.CoresPerSocket, maxProcessors)
	checkNumber(c, "memory in MiB", &vm.MemoryMiB, maxMemoryMiB)
	for i := range vm.BootOrder {
		checkForm(c, "boot device", &vm.BootOrder[i], bootForm)
	}
	c.checkDevices(vm)
	c.checkNotes(vm)
	return c.problems
}

// checkDevices checks controllers, disks and network cards. Their keys must be unique.
func (c *checker) checkDevices(vm *VM) {
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
		checkForm(c, "controller type", &x.Unexpected, wordForm)
	}
	for i := range vm.Disks {
		d := &vm.Disks[i]
		if *d == (Disk{}) {
			continue // Session.ListVMs counts the disks and does not describe them
		}
		name := fmt.Sprintf("disk %d: ", d.Key)
		unique("disk", d.Key)
		c.checkLine(name+"label", &d.Label)
		c.checkPath(name+"file", &d.Path)
		c.checkPath(name+"base file", &d.Base)
		checkForm(c, name+"mode", &d.Mode, wordForm)
		checkForm(c, name+"UUID", &d.UUID, diskUUIDForm)
		checkForm(c, name+"change id", &d.ChangeID, changeIDForm)
		checkNumber(c, name+"capacity", &d.Capacity, 1<<62)
	}
	for i := range vm.NICs {
		n := &vm.NICs[i]
		name := fmt.Sprintf("network card %d: ", n.Key)
		unique("network card", n.Key)
		c.checkLine(name+"label", &n.Label)
		checkForm(c, name+"model", &n.Model, wordForm)
		checkForm(c, name+"MAC address", &n.MAC, macForm)
		checkForm(c, name+"address type", &n.AddressType, wordForm)
		c.checkLine(name+"network", &n.Network)
	}
}

// checkNotes removes invalid tags and custom attributes.
func (c *checker) checkNotes(vm *VM) {
	vm.Tags = slices.DeleteFunc(vm.Tags, func(t Tag) bool {
		bad := !isText(t.Category) || !isText(t.Name)
		if bad {
			c.addProblem("tag", t.Category+"/"+t.Name, textForm.want)
		}
		return bad
	})
	for _, name := range slices.Sorted(maps.Keys(vm.Attributes)) {
		if value := vm.Attributes[name]; !isText(name) || !isText(value) {
			c.addProblem("custom attribute", name+": "+value, textForm.want)
			delete(vm.Attributes, name)
		}
	}
}

// RemoveInvalid removes every invalid value of the host, and returns a description of each.
func (h *Host) RemoveInvalid() []string {
	c := &checker{}
	c.checkRef("reference", &h.Ref)
	c.checkName("host", &h.Name)
	checkForm(c, "address", &h.Address, addressForm)
	c.checkLine("version", &h.Version)
	c.checkLine("build", &h.Build)
	return c.problems
}

// RemoveInvalid removes every invalid value of the datastore, and returns a description of each.
func (d *Datastore) RemoveInvalid() []string {
	c := &checker{}
	checkForm(c, "reference", &d.Ref, lineForm) // on a host it is SERVER:/EXPORT for NFS
	c.checkName("datastore", &d.Name)
	c.checkLine("type", &d.Type)
	checkForm(c, "datacenter", &d.Datacenter, pathForm)
	for i := range d.Hosts {
		c.checkRef("reference of a host", &d.Hosts[i])
	}
	return c.problems
}
