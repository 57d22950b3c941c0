package proxmox

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
)

const (
	// commonTag is a tag of all guests that decamp creates, for filters.
	commonTag = "decamp"

	// maxDescription is the maximum length of a description in bytes.
	maxDescription = 8192

	markPrefix       = "decamp-source: "                    // first line: the source VM
	unfinishedPrefix = "decamp-unfinished: "                // second line of an unfinished guest
	completePrefix   = "decamp-images: "                    // second line of a complete guest
	behindPrefix     = "decamp-efi-variables-stay-behind: " // third line if the EFI variables were not carried over
)

// sourceID returns sixteen hex digits that identify a source VM: a hash of its reference and UUIDs.
func sourceID(vm *inventory.VM) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s", vm.Ref, vm.InstanceUUID, vm.UUID))
	return hex.EncodeToString(sum[:8])
}

// ownTag returns the tag of vm's guest. It serves to find the guest; only the mark decides whether a
// guest is vm's.
func ownTag(vm *inventory.VM) string { return commonTag + "-" + sourceID(vm) }

// markLine returns the mark, which is the first line of the description. It contains the VMID, because
// a clone has the
// same description and must not be taken for the original.
func markLine(vm *inventory.VM, vmid int) string {
	return fault.Line(fmt.Sprintf("%s%s vmid=%d ref=%s instance=%s uuid=%s", markPrefix, sourceID(vm), vmid, vm.Ref, vm.InstanceUUID, vm.UUID))
}

// guestDescription returns the description of a guest: the mark, the status, and information for users.
// It cuts the
// text at maxDescription bytes.
func guestDescription(vm *inventory.VM, vmid int, is guestStatus) string {
	text := markLine(vm, vmid) + "\n"
	if is.plan != "" {
		text += unfinishedPrefix + is.plan + "\n"
	} else {
		text += completePrefix + is.images + "\n"
	}
	if is.variablesError != "" {
		text += behindPrefix + is.variablesError + "\n"
	}
	text += "\nMoved from VMware by decamp: " + fault.Line(vm.Name) + " on " + fault.Line(vm.HostName) + ", " + fault.Line(vm.VMX.String()) + "\n"
	for _, card := range vm.NICs {
		text += "\n" + fault.Line(card.MAC) + " was on " + fault.Line(card.Network) + "\n"
	}
	text += tagLines(vm)
	if vm.Annotation != "" {
		text += "\n" + strings.ToValidUTF8(vm.Annotation, "?")
	}
	if len(text) > maxDescription {
		text = strings.ToValidUTF8(text[:maxDescription-len("…")], "") + "…"
	}
	return text
}

// guestStatus is the status in a guest's description.
type guestStatus struct {
	ours           bool   // the mark is that of the VM and the VMID
	plan           string // planned definition of an unfinished guest; empty if it is complete
	images         string // imagesHash of a complete guest
	variablesError string // why the EFI variables were not carried over; empty if they were, or if there are none
}

// parseDescription returns the status in a description. Only the first line decides whether the guest
// belongs to vm, because
// the rest contains text of users.
func parseDescription(description string, vm *inventory.VM, vmid int) guestStatus {
	first, rest, _ := strings.Cut(description, "\n")
	if strings.TrimSpace(first) != markLine(vm, vmid) {
		return guestStatus{}
	}
	second, rest, _ := strings.Cut(rest, "\n")
	third, _, _ := strings.Cut(rest, "\n")
	is := guestStatus{ours: true}
	if plan, ok := strings.CutPrefix(strings.TrimSpace(second), unfinishedPrefix); ok {
		is.plan = plan
	}
	if images, ok := strings.CutPrefix(strings.TrimSpace(second), completePrefix); ok {
		is.images = images
	}
	if why, ok := strings.CutPrefix(strings.TrimSpace(third), behindPrefix); ok {
		is.variablesError = why
	}
	return is
}

// planHash returns a hash of the definition and of the images, so that an unfinished guest with another
// definition is not
// continued.
func (m Machine) planHash(images string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %+v %q %s", m.Base, m.Disks, m.Boot, images))
	return hex.EncodeToString(sum[:8])
}

// imagesHash returns a hash of the root hashes of images. It distinguishes guests with different copies
// of a VM.
func imagesHash(images []targets.Image) string {
	h := sha256.New()
	for _, img := range images {
		fmt.Fprintf(h, "%d=%s\n", img.Key, img.Root)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// Plans of a guest that is created over SSH. The guest reserves its VMID while its volumes are filled.
// Otherwise Proxmox could give the VMID, and so the volumes, to another guest.
const (
	directPlan = "ssh"       // the delivery over SSH has begun
	earlyPlan  = "ssh-early" // Prepare has begun; the source VM still runs
)

// isDirect reports whether the guest is created over SSH.
func (is guestStatus) isDirect() bool { return is.plan == directPlan || is.plan == earlyPlan }
