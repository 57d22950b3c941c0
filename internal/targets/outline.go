package targets

import (
	"fmt"
	"slices"

	"github.com/decamp/decamp/internal/inventory"
)

// Outline describes the VM that a target would define, so that the user can review it before the copy.
// It is derived from the same definition as the VM that Publish creates.
type Outline struct {
	Target     string        `json:"target"`               // the target, such as "folder /srv/vms"
	Name       string        `json:"name"`                 // name of the VM at the target
	UUID       string        `json:"uuid,omitempty"`       // UUID that the guest reads from SMBIOS
	Machine    string        `json:"machine"`              // machine type, such as "q35"
	Firmware   string        `json:"firmware"`             // "bios" or "efi"
	SecureBoot bool          `json:"secureBoot,omitempty"` // EFI firmware with enrolled keys
	TPM        bool          `json:"tpm,omitempty"`        // an empty virtual TPM 2.0
	Sockets    int           `json:"sockets"`              // number of CPU sockets
	Cores      int           `json:"cores"`                // cores in each socket
	MemoryMiB  int64         `json:"memoryMiB"`            // memory in MiB
	Disks      []OutlineDisk `json:"disks"`                // all disks of the VM, without CD-ROM drives
	Cards      []OutlineCard `json:"cards"`                // all network cards, connected or not
	GuestAgent bool          `json:"guestAgent,omitempty"` // the VM has a channel for QEMU's guest agent
	CDROMs     int           `json:"cdroms,omitempty"`     // number of CD-ROM drives; all are empty
	Boot       []string      `json:"boot"`                 // boot devices in order: "disk:2000", "net:4000", "cdrom", as in inventory.VM
	Tags       []string      `json:"tags,omitempty"`       // tags in the form that the target stores
	Notes      string        `json:"notes,omitempty"`      // annotation of the source VM

	// Attributes are the custom attributes of the source VM, values by name. The page of a target in the
	// manual describes where the target stores them.
	Attributes map[string]string `json:"attributes,omitempty"`

	// Warnings list the differences from the source VM, each with a remedy.
	Warnings []inventory.Warning `json:"warnings"`

	// Dropped lists properties of the source VM that the new VM lacks, each with the reason. Drop sets it.
	Dropped []string `json:"dropped"`
}

// OutlineDisk is a disk of an Outline.
type OutlineDisk struct {
	Key    int32  `json:"key"`              // device key of the source disk
	Bus    string `json:"bus"`              // controller model, or the kind of bus if it has only one model
	Size   int64  `json:"size"`             // capacity in bytes
	On     string `json:"on,omitempty"`     // folder, pool, storage or storage class; empty if the target chooses
	As     string `json:"as"`               // name of the file or volume
	Serial string `json:"serial,omitempty"` // serial number that the guest sees; empty if it differs from the source disk's
}

// OutlineCard is a network card of an Outline.
type OutlineCard struct {
	Key     int32  `json:"key"`            // device key of the source card
	Model   string `json:"model"`          // card model at the target, such as "virtio"
	MAC     string `json:"mac"`            // unchanged MAC of the source card
	From    string `json:"from"`           // network at the source
	Network string `json:"network"`        // network or bridge at the target
	VLAN    int    `json:"vlan,omitempty"` // VLAN ID; zero if the card sends untagged frames
	Down    bool   `json:"down,omitempty"` // the link is down
}

// NewOutline returns the fields of an outline that are the same for all targets. The target adds the
// rest.
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

// Drop sets o.Dropped by comparing the outline with the source VM.
func (o *Outline) Drop(vm *inventory.VM) {
	o.Dropped = []string{}
	drop := func(format string, args ...any) { o.Dropped = append(o.Dropped, fmt.Sprintf(format, args...)) }
	for _, d := range o.Disks {
		if was, ok := vm.Disk(d.Key); ok && was.UUID != "" && d.Serial == "" {
			drop("the serial number of disk %d: on %s it is different or missing", d.Key, d.Bus)
		}
	}
	if n := vm.CDROMs - o.CDROMs; n > 0 {
		drop("CD-ROM drives (%d): the target has no free slot for them, or does not support empty drives", n)
	}
	for _, device := range vm.BootOrder {
		if !slices.Contains(o.Boot, device) {
			drop("booting from %s: the target does not have it or does not boot from it", device)
		}
	}
}
