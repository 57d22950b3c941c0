package kubevirt

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"strings"
	"unicode/utf8"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
)

// prefix is that of decamp's own annotations.
const prefix = "decamp.github.io/"

// The annotations that say whose an object is. All three have to agree.
const (
	refNote      = prefix + "ref"           // inventory.MoRef
	instanceNote = prefix + "instance-uuid" // vCenter's
	uuidNote     = prefix + "uuid"          // SMBIOS
)

// The annotations that say more.
const (
	nameNote = prefix + "name" // as people see it
	hostNote = prefix + "host" // where it ran
	vmxNote  = prefix + "vmx"  // datastore path
	fromNote = prefix + "version"
	rootNote = prefix + "image" // of a DataVolume: the root hash of the image that is in it, or will be
)

// sourceLabel is how objects of a VM are found: a hash of its identity, as labels cannot hold all that
// may be in it. It counts only together with the annotations.
const sourceLabel = prefix + "source"

// maxNotes is how much of a VM's notes is kept, in bytes. All annotations of an object may have 256 KiB.
const maxNotes = 64 << 10

// identity is what tells vm from any other.
func identity(vm *inventory.VM) map[string]string {
	return map[string]string{refNote: string(vm.Ref), instanceNote: vm.InstanceUUID, uuidNote: vm.UUID}
}

// labels are those of all objects of vm.
func labels(vm *inventory.VM) map[string]string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s", vm.Ref, vm.InstanceUUID, vm.UUID))
	return map[string]string{sourceLabel: hex.EncodeToString(sum[:16])}
}

// made reports whether an object with these annotations was made of vm.
func made(annotations map[string]string, vm *inventory.VM) bool {
	for key, want := range identity(vm) {
		if have, ok := annotations[key]; !ok || have != want {
			return false
		}
	}
	return true
}

// annotations are those of vm's VirtualMachine.
func annotations(def targets.Definition) map[string]string {
	vm := def.VM
	notes := identity(vm)
	maps.Copy(notes, map[string]string{nameNote: valid(vm.Name), hostNote: valid(vm.HostName), vmxNote: valid(vm.VMX.String()), fromNote: def.Decamp})
	if text := valid(vm.Annotation); text != "" {
		notes["description"] = text // where consoles look for it
	}
	return notes
}

// valid is what Kubernetes stores of a text: UTF-8, and not without end.
func valid(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= maxNotes {
		return text
	}
	cut := maxNotes
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut]
}

// taken says that something of another VM, or of nobody's, has the name that vm needs.
func taken(what, name, where string, vm *inventory.VM) error {
	return fault.New(fault.Conflict, "%s %s in %s is not of VM %s", what, name, where, vm.Name).
		WithHint("rename VM %s at the source, or migrate it to another namespace", fault.Quote(vm.Name))
}
