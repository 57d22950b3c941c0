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

// prefix begins the keys of decamp's annotations and labels.
const prefix = "decamp.github.io/"

// Annotations that identify the VM of an object. All three must match.
const (
	refNote      = prefix + "ref"           // managed object reference
	instanceNote = prefix + "instance-uuid" // UUID that vCenter assigned
	uuidNote     = prefix + "uuid"          // SMBIOS UUID
)

// Annotations for information.
const (
	nameNote = prefix + "name"    // name in vSphere
	hostNote = prefix + "host"    // ESXi host
	vmxNote  = prefix + "vmx"     // path of the VMX file with its datastore
	fromNote = prefix + "version" // version of decamp
	rootNote = prefix + "image"   // of a DataVolume: root hash of its image, set before the upload
)

// sourceLabel is the label for listing a VM's objects: a hash of its identity, because labels allow few
// characters. The
// annotations decide whether an object belongs to the VM.
const sourceLabel = prefix + "source"

// maxNotes is the maximum length of an annotation in bytes. Kubernetes limits all annotations of an
// object to 256 KiB.
const maxNotes = 64 << 10

// identityNotes returns the annotations that identify the source VM. The caller may modify the map.
func identityNotes(vm *inventory.VM) map[string]string {
	return map[string]string{refNote: string(vm.Ref), instanceNote: vm.InstanceUUID, uuidNote: vm.UUID}
}

// sourceLabels returns the labels of all objects of vm.
func sourceLabels(vm *inventory.VM) map[string]string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s", vm.Ref, vm.InstanceUUID, vm.UUID))
	return map[string]string{sourceLabel: hex.EncodeToString(sum[:16])}
}

// isMadeOf reports whether an object with these annotations was created for vm.
func isMadeOf(annotations map[string]string, vm *inventory.VM) bool {
	for key, want := range identityNotes(vm) {
		if have, ok := annotations[key]; !ok || have != want {
			return false
		}
	}
	return true
}

// vmAnnotations returns the annotations of the VirtualMachine.
func vmAnnotations(def targets.Definition) map[string]string {
	vm := def.VM
	notes := identityNotes(vm)
	maps.Copy(notes, map[string]string{nameNote: toValidText(vm.Name), hostNote: toValidText(vm.HostName), vmxNote: toValidText(vm.VMX.String()), fromNote: def.Decamp})
	if text := toValidText(vm.Annotation); text != "" {
		notes["description"] = text // web consoles display this annotation
	}
	return notes
}

// toValidText converts text to valid UTF-8 of at most maxNotes bytes.
func toValidText(text string) string {
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

// conflictError returns the error for an object that has a name which vm needs, and does not belong to
// vm.
func conflictError(what, name, where string, vm *inventory.VM) error {
	return fault.New(fault.Conflict, "%s %s in %s does not belong to VM %s", what, name, where, vm.Name).
		WithHint("rename VM %s at the source, or migrate it to another namespace", fault.Quote(vm.Name))
}
