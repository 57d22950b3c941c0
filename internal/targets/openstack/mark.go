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

// Keys of the mark of all parts. All four values must match a VM.
const (
	sourceKey   = "decamp_source"        // hash of the following three, for searching
	refKey      = "decamp_ref"           // managed object reference
	instanceKey = "decamp_instance_uuid" // UUID that vCenter assigned
	uuidKey     = "decamp_uuid"          // SMBIOS UUID
)

// Further keys of metadata.
const (
	nameKey     = "decamp_name"     // name in vSphere
	hostKey     = "decamp_host"     // ESXi host
	vmxKey      = "decamp_vmx"      // path of the VMX file with its datastore
	diskKey     = "decamp_disk"     // device key of the source disk
	planKey     = "decamp_plan"     // planHash, so that a volume of another definition is not reused
	completeKey = "decamp_complete" // imagesHash, set as the last step; only in the record
	flavorKey   = "decamp_flavor"   // ID of the flavor; only in the record
	networksKey = "decamp_networks" // VMware network of each card; only in the record
	versionKey  = "decamp_version"  // version of decamp
)

// maxText is the maximum length of names and metadata values, in characters.
const maxText = 255

// sourceID returns 32 hex digits that identify a source VM: a hash of its reference and UUIDs.
func sourceID(vm *inventory.VM) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s", vm.Ref, vm.InstanceUUID, vm.UUID))
	return hex.EncodeToString(sum[:16])
}

// sourceMetadata returns the metadata that marks parts of vm.
func sourceMetadata(vm *inventory.VM) map[string]string {
	return map[string]string{
		sourceKey: sourceID(vm), refKey: toText(string(vm.Ref)), instanceKey: toText(vm.InstanceUUID), uuidKey: toText(vm.UUID),
	}
}

// isMadeOf reports whether a part with this metadata was created for vm.
func isMadeOf(metadata map[string]string, vm *inventory.VM) bool {
	for key, want := range sourceMetadata(vm) {
		if have, ok := metadata[key]; !ok || have != want {
			return false
		}
	}
	return true
}

// imageTag returns the tag of vm's images, because Glance can list images by tag.
func imageTag(vm *inventory.VM) string { return "decamp-" + sourceID(vm) }

// portMark returns the mark of a port: its description, because ports have no metadata.
func portMark(vm *inventory.VM) string {
	return toText(fmt.Sprintf("%s of VMware VM ref=%s instance=%s uuid=%s", imageTag(vm), vm.Ref, vm.InstanceUUID, vm.UUID))
}

// noteMetadata returns further metadata of the record, for users.
func noteMetadata(def targets.Definition) map[string]string {
	vm := def.VM
	var nets []string
	for _, card := range vm.NICs {
		nets = append(nets, card.MAC+" "+card.Network)
	}
	return map[string]string{
		nameKey: toText(vm.Name), hostKey: toText(vm.HostName), vmxKey: toText(vm.VMX.String()),
		networksKey: toText(strings.Join(nets, ", ")), versionKey: toText(def.Decamp),
	}
}

// volumeDescription returns the description of vm's volumes, for users.
func volumeDescription(vm *inventory.VM) string {
	return toText("Moved from VMware by decamp: " + vm.Name + " on " + vm.HostName + ". " + vm.Annotation)
}

// toText converts a string to at most maxText printable characters of Unicode's basic plane, which all
// of OpenStack's
// databases can store.
func toText(s string) string {
	s = strings.Map(func(r rune) rune {
		if r > 0xffff {
			return '?' // MySQL's utf8 has at most three bytes per character
		}
		return r
	}, fault.Line(s))
	for utf8.RuneCountInString(s) > maxText {
		_, last := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-last]
	}
	return s
}

// nameOf returns the server's name, short enough for the suffix of a disk.
func nameOf(vm string) string {
	name := []rune(toText(vm))
	return cmp.Or(strings.TrimSpace(string(name[:min(len(name), maxText-15)])), "vm")
}

// imagesHash returns a hash of the root hashes of images. It distinguishes records of different copies
// of a VM.
func imagesHash(images []targets.Image) string {
	h := sha256.New()
	for _, img := range images {
		fmt.Fprintf(h, "%d=%s\n", img.Key, img.Root)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
