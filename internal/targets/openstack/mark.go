package openstack

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
)

// Keys of the metadata that all of ours has. The first four have to agree with a VM, for it to be made of it.
const (
	sourceKey   = "decamp_source" // a hash of the three that follow, by which it is found
	refKey      = "decamp_ref"
	instanceKey = "decamp_instance_uuid"
	uuidKey     = "decamp_uuid"
)

// Keys of the metadata that say more.
const (
	nameKey     = "decamp_name"     // as people see it
	hostKey     = "decamp_host"     // where it ran
	vmxKey      = "decamp_vmx"      // datastore path
	diskKey     = "decamp_disk"     // device key of the disk that it holds
	planKey     = "decamp_plan"     // what it was made by, so that it is not gone on with by another
	completeKey = "decamp_complete" // of the record: what all disks were made of
	flavorKey   = "decamp_flavor"   // of the record: the ID
	networksKey = "decamp_networks" // of the record: what the cards were on
	versionKey  = "decamp_version"
)

// maxText is the longest value of metadata, in characters, and the longest name.
const maxText = 255

// identity tells one source VM from any other, in 32 hex digits.
func identity(vm *inventory.VM) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s", vm.Ref, vm.InstanceUUID, vm.UUID))
	return hex.EncodeToString(sum[:16])
}

// mark says whose something is.
func mark(vm *inventory.VM) map[string]string {
	return map[string]string{
		sourceKey: identity(vm), refKey: text(string(vm.Ref)), instanceKey: text(vm.InstanceUUID), uuidKey: text(vm.UUID),
	}
}

// made reports whether something with these metadata was made of vm.
func made(metadata map[string]string, vm *inventory.VM) bool {
	for key, want := range mark(vm) {
		if have, ok := metadata[key]; !ok || have != want {
			return false
		}
	}
	return true
}

// tag is the mark of images, besides their properties, by which they are found.
func tag(vm *inventory.VM) string { return "decamp-" + identity(vm) }

// portMark is the mark of a port: its description, as ports have no metadata.
func portMark(vm *inventory.VM) string {
	return text(fmt.Sprintf("%s of VMware VM ref=%s instance=%s uuid=%s", tag(vm), vm.Ref, vm.InstanceUUID, vm.UUID))
}

// notes are the metadata of the record that people may want to know.
func notes(def targets.Definition) map[string]string {
	vm := def.VM
	var nets []string
	for _, card := range vm.NICs {
		nets = append(nets, card.MAC+" "+card.Network)
	}
	return map[string]string{
		nameKey: text(vm.Name), hostKey: text(vm.HostName), vmxKey: text(vm.VMX.String()),
		networksKey: text(strings.Join(nets, ", ")), versionKey: text(def.Decamp),
	}
}

// description is what people read of a volume.
func description(vm *inventory.VM) string {
	return text("Moved from VMware by decamp: " + vm.Name + " on " + vm.HostName + ". " + vm.Annotation)
}

// text is what OpenStack's databases take: printable characters of the basic plane, and 255 of them.
func text(s string) string {
	s = strings.Map(func(r rune) rune {
		if r > 0xffff {
			return '?' // MySQL's utf8 has three bytes
		}
		return r
	}, fault.Line(s))
	for utf8.RuneCountInString(s) > maxText {
		_, last := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-last]
	}
	return s
}

// nameOf is the name of a VM here, with room behind it for that of a disk.
func nameOf(vm string) string {
	name := []rune(text(vm))
	return cmp.Or(strings.TrimSpace(string(name[:min(len(name), maxText-15)])), "vm")
}

// contents names what is in images, so that a record is not taken for one of a later copy.
func contents(images []targets.Image) string {
	h := sha256.New()
	for _, img := range images {
		fmt.Fprintf(h, "%d=%s\n", img.Key, img.Root)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
