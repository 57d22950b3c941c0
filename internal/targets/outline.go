package targets

import (
	"fmt"
	"slices"

	"github.com/decamp/decamp/internal/inventory"
)

// Outline is what a VM would be defined as at its target: what people look at before anything is copied.
// It is made of the same definition that Publish makes the VM of.
type Outline struct {
	Place      string        `json:"place"`
	Name       string        `json:"name"`
	UUID       string        `json:"uuid,omitempty"`
	Machine    string        `json:"machine"`
	Firmware   string        `json:"firmware"` // bios or efi
	SecureBoot bool          `json:"secureBoot,omitempty"`
	TPM        bool          `json:"tpm,omitempty"`
	Sockets    int           `json:"sockets"`
	Cores      int           `json:"cores"` // of each socket
	MemoryMiB  int64         `json:"memoryMiB"`
	Disks      []OutlineDisk `json:"disks"`
	Cards      []OutlineCard `json:"cards"`
	GuestAgent bool          `json:"guestAgent,omitempty"` // there is a channel for QEMU's guest agent
	CDROMs     int           `json:"cdroms,omitempty"`     // drives, all empty
	Boot       []string      `json:"boot"`                 // "disk:2000", "net:4000", "cdrom", as in inventory.VM
	Tags       []string      `json:"tags,omitempty"`       // as the target will have them
	Notes      string        `json:"notes,omitempty"`      // the VM's own

	// Attributes are the VM's own: values by names, as they were. Where the target has them is its page's to tell.
	Attributes map[string]string `json:"attributes,omitempty"`

	// Warnings are what is not as it was, each with a remedy.
	Warnings []inventory.Warning `json:"warnings"`

	// Dropped is what the VM has and will not have, with the reason. Drop fills it in.
	Dropped []string `json:"dropped"`
}

// OutlineDisk is a disk of an Outline.
type OutlineDisk struct {
	Key    int32  `json:"key"` // of the source's disk
	Bus    string `json:"bus"`
	Size   int64  `json:"size"`             // bytes
	On     string `json:"on,omitempty"`     // folder, pool, storage or storage class; empty: the target's own choice
	As     string `json:"as"`               // file or volume
	Serial string `json:"serial,omitempty"` // that the guest sees; empty: not the source's
}

// OutlineCard is a network card of an Outline.
type OutlineCard struct {
	Key     int32  `json:"key"` // of the source's card
	Model   string `json:"model"`
	MAC     string `json:"mac"`
	From    string `json:"from"` // the source's network
	Network string `json:"network"`
	VLAN    int    `json:"vlan,omitempty"`
	Down    bool   `json:"down,omitempty"` // not connected
}

// NewOutline is what does not depend on the target.
func NewOutline(def Definition) Outline {
	vm := def.VM
	o := Outline{
		UUID: vm.UUID, Firmware: string(inventory.BIOS), MemoryMiB: vm.MemoryMiB, Notes: vm.Annotation,
		Tags: TagNames(vm), Attributes: vm.Attributes, GuestAgent: def.AgentChannel(),
		Disks: []OutlineDisk{}, Cards: []OutlineCard{}, Boot: []string{}, Warnings: []inventory.Warning{},
	}
	o.Sockets, o.Cores = vm.Topology()
	if vm.Firmware == inventory.EFI {
		o.Firmware, o.SecureBoot, o.TPM = string(inventory.EFI), vm.SecureBoot, vm.VTPM
	}
	return o
}

// Drop finds out what of vm is not in the outline.
func (o *Outline) Drop(vm *inventory.VM) {
	o.Dropped = []string{}
	drop := func(format string, args ...any) { o.Dropped = append(o.Dropped, fmt.Sprintf(format, args...)) }
	for _, d := range o.Disks {
		if was, ok := vm.Disk(d.Key); ok && was.UUID != "" && d.Serial == "" {
			drop("the serial number of disk %d: on %s the guest sees another, or none", d.Key, d.Bus)
		}
	}
	if n := vm.CDROMs - o.CDROMs; n > 0 {
		drop("%d CD-ROM drives: there is no place for them, or none may be empty", n)
	}
	for _, device := range vm.BootOrder {
		if !slices.Contains(o.Boot, device) {
			drop("booting from %s: it is not there, or not tried", device)
		}
	}
}
