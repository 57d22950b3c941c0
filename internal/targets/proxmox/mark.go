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
	// tag is on all guests of ours, so that a list can be filtered by it.
	tag = "decamp"

	// maxDescription is the longest description that Proxmox takes, in bytes.
	maxDescription = 8192

	markPrefix = "decamp-source: "
	unfinished = "decamp-unfinished: "
	complete   = "decamp-images: "
	behind     = "decamp-efi-variables-stay-behind: "
)

// identity tells one source VM from any other, in sixteen hex digits.
func identity(vm *inventory.VM) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s", vm.Ref, vm.InstanceUUID, vm.UUID))
	return hex.EncodeToString(sum[:8])
}

// ownTag is on the guest that was made of vm. By it the guest is found, and by nothing but the mark
// is it ours.
func ownTag(vm *inventory.VM) string { return tag + "-" + identity(vm) }

// mark is the first line of a guest's description. The VMID is in it for clones, which have their
// original's description, and are not ours.
func mark(vm *inventory.VM, vmid int) string {
	return fault.Line(fmt.Sprintf("%s%s vmid=%d ref=%s instance=%s uuid=%s", markPrefix, identity(vm), vmid, vm.Ref, vm.InstanceUUID, vm.UUID))
}

// description is what a guest is described by: whose it is, how far it is, and what people want to
// know.
func description(vm *inventory.VM, vmid int, is standing) string {
	text := mark(vm, vmid) + "\n"
	if is.plan != "" {
		text += unfinished + is.plan + "\n"
	} else {
		text += complete + is.images + "\n"
	}
	if is.behind != "" {
		text += behind + is.behind + "\n"
	}
	text += "\nMoved from VMware by decamp: " + fault.Line(vm.Name) + " on " + fault.Line(vm.HostName) + ", " + fault.Line(vm.VMX.String()) + "\n"
	for _, card := range vm.NICs {
		text += "\n" + fault.Line(card.MAC) + " was on " + fault.Line(card.Network) + "\n"
	}
	text += inscriptions(vm)
	if vm.Annotation != "" {
		text += "\n" + strings.ToValidUTF8(vm.Annotation, "?")
	}
	if len(text) > maxDescription {
		text = strings.ToValidUTF8(text[:maxDescription-len("…")], "") + "…"
	}
	return text
}

// A standing is what a guest's description says of it.
type standing struct {
	ours   bool
	plan   string // what it is to become; "" if it is complete
	images string // what its disks were made of, if it is complete
	behind string // why its firmware has no boot entries of the VM's, which were to go along
}

// read tells whether a guest was made of vm, by its first line alone: what follows is the VM's own
// annotation, or anybody's.
func read(description string, vm *inventory.VM, vmid int) standing {
	first, rest, _ := strings.Cut(description, "\n")
	if strings.TrimSpace(first) != mark(vm, vmid) {
		return standing{}
	}
	second, rest, _ := strings.Cut(rest, "\n")
	third, _, _ := strings.Cut(rest, "\n")
	is := standing{ours: true}
	if plan, ok := strings.CutPrefix(strings.TrimSpace(second), unfinished); ok {
		is.plan = plan
	}
	if images, ok := strings.CutPrefix(strings.TrimSpace(second), complete); ok {
		is.images = images
	}
	if why, ok := strings.CutPrefix(strings.TrimSpace(third), behind); ok {
		is.behind = why
	}
	return is
}

// plan names a Machine, so that one that was begun is not gone on with as another.
func (m Machine) plan(images string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %+v %q %s", m.Base, m.Disks, m.Boot, images))
	return hex.EncodeToString(sum[:8])
}

// contents names what is in images, so that a guest is not taken for one of a later copy.
func contents(images []targets.Image) string {
	h := sha256.New()
	for _, img := range images {
		fmt.Fprintf(h, "%d=%s\n", img.Key, img.Root)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// What the description of a guest says that is made over SSH. It holds the VMID while its volumes are
// filled: Proxmox would give the number, and so the volumes, to the next who asks.
const (
	directPlan = "ssh"       // it is being delivered
	earlyPlan  = "ssh-early" // its VM still runs
)

// direct reports whether the guest is being made over SSH.
func (is standing) direct() bool { return is.plan == directPlan || is.plan == earlyPlan }
