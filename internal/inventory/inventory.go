// Package inventory holds the words for VMware's side: VMs, their disks and NICs, the
// hosts and datastores they live on. It has types only; package esx fills them.
//
// Things are identified by MoRef, never by display name alone: names repeat, change
// and carry escapes.
package inventory

import (
	"fmt"
	"strings"
)

// MoRef is VMware's managed object reference, such as "vm-42" or "1" (on a plain ESXi
// VM references are small numbers). It is unique within one vCenter or ESXi.
type MoRef string

// ChangeID names a moment in a disk's change tracking ("52 2d … bb/7"). "*" asks for
// the areas in use.
type ChangeID string

// Path is a datastore path in VMware's notation: "[datastore] folder/file.vmdk".
type Path struct {
	Datastore string `json:"datastore"`
	File      string `json:"file"` // relative to the datastore's root, slash-separated
}

// ParsePath splits "[datastore] folder/file". It returns an error unless the path is valid.
func ParsePath(s string) (Path, error) {
	ds, file, ok := strings.Cut(s, "]")
	if !ok || !strings.HasPrefix(ds, "[") || len(ds) < 2 {
		return Path{}, fmt.Errorf("%q is not a datastore path ([datastore] folder/file)", s)
	}
	p := Path{Datastore: ds[1:], File: strings.TrimPrefix(file, " ")}
	if !p.Valid() {
		return Path{}, fmt.Errorf("%q does not name a file below the root of a datastore", s)
	}
	return p, nil
}

// String returns the path in VMware's notation.
func (p Path) String() string { return "[" + p.Datastore + "] " + p.File }

// File is an entry of a datastore's folder.
type File struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"` // bytes; 0 for folders and in listings, which do not tell
	Folder bool   `json:"folder,omitempty"`
}

// Power is a VM's power state.
type Power string

const (
	PoweredOn  Power = "on"
	PoweredOff Power = "off"
	Suspended  Power = "suspended"
)

// Firmware is what boots the guest.
type Firmware string

const (
	BIOS Firmware = "bios"
	EFI  Firmware = "efi"
)

// About is the endpoint that was logged in to.
type About struct {
	Name         string `json:"name"`    // "VMware ESXi" or "VMware vCenter Server"
	Version      string `json:"version"` // "8.0.3"
	Build        string `json:"build"`
	APIVersion   string `json:"apiVersion"`
	InstanceUUID string `json:"instanceUuid,omitempty"` // vCenter only
	VCenter      bool   `json:"vcenter"`
}

// Host is an ESXi host.
type Host struct {
	Ref             MoRef  `json:"ref"`
	Name            string `json:"name"`    // as inventoried: DNS name or address
	Address         string `json:"address"` // where its HTTPS answers; empty if unknown
	Version         string `json:"version"`
	Build           string `json:"build"`
	MaintenanceMode bool   `json:"maintenanceMode"`
	Connected       bool   `json:"connected"`
}

// VMkernelNIC is an interface that an ESXi host has for itself.
type VMkernelNIC struct {
	Device  string `json:"device"`  // vmk0
	Address string `json:"address"` // its IP
	Network string `json:"network"` // its port group; empty on a distributed switch
	Backup  bool   `json:"backup"`  // tagged for backup traffic (vSphereBackupNFC)
	MTU     int    `json:"mtu"`     // bytes; 0: not told
}

// Datastore is where disks live.
type Datastore struct {
	Ref        MoRef  `json:"ref"`
	Name       string `json:"name"`
	Type       string `json:"type"` // VMFS, NFS, NFS41, vsan, VVOL …
	Datacenter string `json:"datacenter"`
	Capacity   int64  `json:"capacity"`
	Free       int64  `json:"free"`

	Inaccessible bool `json:"inaccessible,omitempty"` // no host reaches it
	Maintenance  bool `json:"maintenance,omitempty"`  // in maintenance mode, or on its way there

	Hosts []MoRef `json:"hosts,omitempty"` // hosts that mount it
}

// Mount is an NFS export that an ESXi host has mounted as a datastore.
type Mount struct {
	Datastore string `json:"datastore"`
	Server    string `json:"server"` // as the host was told: a name or an address
	Path      string `json:"path"`   // as exported
}

// VM is one virtual machine as the source describes it.
type VM struct {
	Ref          MoRef  `json:"ref"`
	Name         string `json:"name"` // unescaped, as people see it
	UUID         string `json:"uuid"` // SMBIOS UUID, lower case, 8-4-4-4-12
	InstanceUUID string `json:"instanceUuid"`
	Host         MoRef  `json:"host"`
	HostName     string `json:"hostName"`
	Cluster      string `json:"cluster,omitempty"` // of its host; vCenter only
	Datacenter   string `json:"datacenter"`        // inventory path for dcPath; "ha-datacenter" on ESXi
	Folder       string `json:"folder,omitempty"`
	VMX          Path   `json:"vmx"`
	NVRAM        Path   `json:"nvram,omitzero"` // what its EFI firmware remembers; empty of a BIOS, or if it has none yet
	Template     bool   `json:"template,omitempty"`

	Power           Power  `json:"power"`
	GuestID         string `json:"guestId"`   // VirtualMachineGuestOsIdentifier
	GuestName       string `json:"guestName"` // what VMware calls it
	ToolsRunning    bool   `json:"toolsRunning"`
	HardwareVersion int    `json:"hardwareVersion"` // 19 for "vmx-19"
	Annotation      string `json:"annotation,omitempty"`

	Tags       []Tag             `json:"tags,omitempty"`       // vCenter only; by category, then by name
	Attributes map[string]string `json:"attributes,omitempty"` // custom ones that have a value, by their names; vCenter only

	CPUs           int      `json:"cpus"`
	CoresPerSocket int      `json:"coresPerSocket"`
	MemoryMiB      int64    `json:"memoryMiB"`
	Firmware       Firmware `json:"firmware"`
	SecureBoot     bool     `json:"secureBoot,omitempty"`
	VTPM           bool     `json:"vtpm,omitempty"`
	Encrypted      bool     `json:"encrypted,omitempty"` // VM home or any disk has a key id

	Controllers []Controller `json:"controllers"`
	Disks       []Disk       `json:"disks"`
	NICs        []NIC        `json:"nics"`
	CDROMs      int          `json:"cdroms,omitempty"`
	BootOrder   []string     `json:"bootOrder,omitempty"` // "disk:2000", "net:4000", "cdrom", "floppy"

	Snapshots           int  `json:"snapshots"`
	ConsolidationNeeded bool `json:"consolidationNeeded,omitempty"`
	ChangeTracking      bool `json:"changeTracking"`

	Used        int64 `json:"used"`        // bytes taken on datastores by the VM's disks, all layers
	Provisioned int64 `json:"provisioned"` // sum of the disks' capacities

	Warnings []Warning `json:"warnings,omitempty"`
}

// Disk returns the disk with that device key.
func (v *VM) Disk(key int32) (*Disk, bool) {
	for i := range v.Disks {
		if v.Disks[i].Key == key {
			return &v.Disks[i], true
		}
	}
	return nil, false
}

// Adorn gives v what people put on it in a vCenter, as another reading of the same VM has it: tags, custom
// attributes, and what is warned of where they could not be read.
func (v *VM) Adorn(as *VM) {
	v.Tags, v.Attributes = as.Tags, as.Attributes
	for _, w := range as.Warnings {
		if w.Code == WarnTags || w.Code == WarnAttributes {
			v.Warnings = append(v.Warnings, w)
		}
	}
}

// Tag is a tag of vCenter's. A VM may have several of one category.
type Tag struct {
	Category string `json:"category"`
	Name     string `json:"name"`
}

// Bus is a controller's kind, by VMware's own short names.
type Bus string

const (
	PVSCSI   Bus = "pvscsi"
	LSILogic Bus = "lsilogic"
	LSISAS   Bus = "lsisas1068"
	BusLogic Bus = "buslogic"
	NVMe     Bus = "nvme"
	AHCI     Bus = "ahci"
	IDE      Bus = "ide"
)

// Controller is a storage controller of a VM.
type Controller struct {
	Key        int32  `json:"key"`
	Bus        Bus    `json:"bus"`
	Number     int    `json:"number"`            // bus number: scsi0, scsi1 …
	SharedBus  bool   `json:"sharedBus"`         // physical or virtual bus sharing
	Unexpected string `json:"unknown,omitempty"` // the API's type name where Bus is ""
}

// Backing is how a disk is kept on its datastore.
type Backing string

const (
	Flat           Backing = "flat"     // -flat.vmdk, thin or thick
	Delta          Backing = "delta"    // a snapshot's vmfsSparse layer
	SESparse       Backing = "sesparse" // a snapshot's seSparse layer
	RDM            Backing = "rdm"      // raw device mapping, either mode
	VSAN           Backing = "vsan"     // object, no data file
	VVol           Backing = "vvol"     // object, no data file
	UnknownBacking Backing = "unknown"  // named in a warning
)

// Disk is a virtual disk of a VM.
type Disk struct {
	Key        int32    `json:"key"`      // device key: 2000 is the first SCSI disk
	Label      string   `json:"label"`    // "Hard disk 1"
	Path       Path     `json:"path"`     // the descriptor the VM opens now
	Base       Path     `json:"base"`     // the descriptor at the bottom of the chain; Path without snapshots
	Capacity   int64    `json:"capacity"` // bytes
	Used       int64    `json:"used"`     // bytes on the datastore, all layers; -1 unknown
	Backing    Backing  `json:"backing"`  // of Path
	Thin       bool     `json:"thin"`
	Mode       string   `json:"mode"`             // persistent, independent_persistent …
	Shared     bool     `json:"shared,omitempty"` // multi-writer
	Encrypted  bool     `json:"encrypted,omitempty"`
	Controller int32    `json:"controller"` // key of its Controller
	Unit       int      `json:"unit"`
	UUID       string   `json:"uuid,omitempty"` // 6000C29…, the guest-visible serial with disk.EnableUUID
	ChangeID   ChangeID `json:"changeId,omitempty"`
	Layers     int      `json:"layers"` // 1 without snapshots
}

// NIC is a virtual network card of a VM.
type NIC struct {
	Key            int32  `json:"key"`
	Label          string `json:"label"`
	Model          string `json:"model"` // vmxnet3, vmxnet2, e1000, e1000e, pcnet32, sriov
	MAC            string `json:"mac"`   // lower case, colons
	AddressType    string `json:"addressType"`
	Network        string `json:"network"`
	Connected      bool   `json:"connected"`
	StartConnected bool   `json:"startConnected"`
	Pulled         bool   `json:"pulled,omitempty"`  // it was disconnected when the VM, which ran, was about to be shut down
	PCISlot        int    `json:"pciSlot,omitempty"` // 0: not known; a Linux may call the card by it
}

// Warning is something the operator should know before moving a VM. Code is stable.
type Warning struct {
	Code   string `json:"code"`   // "snapshots", "rdm", "vtpm" …
	Text   string `json:"text"`   // what was seen
	Remedy string `json:"remedy"` // what to do about it
	Blocks bool   `json:"blocks"` // migrate refuses while it stands
}

// Codes of warnings that what people put on a VM could not be read.
const (
	WarnTags       = "tags"
	WarnAttributes = "attributes"
)
