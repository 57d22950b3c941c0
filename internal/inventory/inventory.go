// Package inventory has the types of VMware's side: VMs, their disks and network cards, hosts and
// datastores. Package esx creates the values.
//
// MoRefs identify objects. Display names do not: they repeat, change and contain escapes.
package inventory

import (
	"fmt"
	"strings"
)

// MoRef is VMware's managed object reference, such as "vm-42" or "1" (on a plain ESXi
// VM references are small numbers). It is unique within one vCenter or ESXi.
type MoRef string

// ChangeID is a point in time of a disk's change tracking ("52 2d … bb/7"). In a query, "*" selects
// the allocated areas.
type ChangeID string

// Path is a datastore path in VMware's notation: "[datastore] folder/file.vmdk".
type Path struct {
	Datastore string `json:"datastore"` // name of the datastore
	File      string `json:"file"`      // relative to the datastore's root, slash-separated
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
	Name   string `json:"name"`             // name without its folder
	Size   int64  `json:"size"`             // size in bytes; 0 for folders, and in listings, which have no sizes
	Folder bool   `json:"folder,omitempty"` // the entry is a folder
}

// Power is a VM's power state.
type Power string

const (
	PoweredOn  Power = "on"        // running, or starting
	PoweredOff Power = "off"       // off
	Suspended  Power = "suspended" // its memory is stored in a file
)

// Firmware is the program that boots the guest.
type Firmware string

const (
	BIOS Firmware = "bios" // legacy BIOS
	EFI  Firmware = "efi"  // UEFI
)

// About describes the server that decamp has logged in to.
type About struct {
	Name         string `json:"name"`                   // "VMware ESXi" or "VMware vCenter Server"
	Version      string `json:"version"`                // "8.0.3"
	Build        string `json:"build"`                  // build number
	APIVersion   string `json:"apiVersion"`             // version of the vSphere API
	InstanceUUID string `json:"instanceUuid,omitempty"` // vCenter only
	VCenter      bool   `json:"vcenter"`                // vCenter, not an ESXi host
}

// Host is an ESXi host.
type Host struct {
	Ref             MoRef  `json:"ref"`             // reference at the server
	Name            string `json:"name"`            // name in the inventory: DNS name or address
	Address         string `json:"address"`         // address of its HTTPS server; empty if unknown
	Version         string `json:"version"`         // version of ESXi
	Build           string `json:"build"`           // build number
	MaintenanceMode bool   `json:"maintenanceMode"` // the host is in maintenance mode
	Connected       bool   `json:"connected"`       // the server reaches the host
}

// VMkernelNIC is a network interface of an ESXi host itself.
type VMkernelNIC struct {
	Device  string `json:"device"`  // name: vmk0
	Address string `json:"address"` // IP address
	Network string `json:"network"` // port group; empty on a distributed switch
	Backup  bool   `json:"backup"`  // tagged for backup traffic (vSphereBackupNFC)
	MTU     int    `json:"mtu"`     // MTU in bytes; 0 if unknown
}

// Datastore is VMware's storage for files of VMs.
type Datastore struct {
	Ref        MoRef  `json:"ref"`        // reference at the server
	Name       string `json:"name"`       // name, unique in its datacenter
	Type       string `json:"type"`       // VMFS, NFS, NFS41, vsan, VVOL …
	Datacenter string `json:"datacenter"` // inventory path of its datacenter
	Capacity   int64  `json:"capacity"`   // size in bytes
	Free       int64  `json:"free"`       // free bytes

	Inaccessible bool `json:"inaccessible,omitempty"` // no host reaches it
	Maintenance  bool `json:"maintenance,omitempty"`  // the datastore is in maintenance mode, or is entering it

	Hosts []MoRef `json:"hosts,omitempty"` // hosts that mount it
}

// Mount is an NFS export that an ESXi host has mounted as a datastore.
type Mount struct {
	Datastore string `json:"datastore"` // name of the datastore
	Server    string `json:"server"`    // name or address of the NFS server, as configured on the host
	Path      string `json:"path"`      // exported path
}

// VM is one virtual machine as the source describes it.
type VM struct {
	Ref          MoRef  `json:"ref"`               // reference at the server
	Name         string `json:"name"`              // name without escapes, as the user sees it
	UUID         string `json:"uuid"`              // SMBIOS UUID, lower case, 8-4-4-4-12
	InstanceUUID string `json:"instanceUuid"`      // UUID that is unique within a vCenter
	Host         MoRef  `json:"host"`              // host that runs the VM, or ran it last
	HostName     string `json:"hostName"`          // name of that host
	Cluster      string `json:"cluster,omitempty"` // cluster of its host; vCenter only
	Datacenter   string `json:"datacenter"`        // inventory path for dcPath; "ha-datacenter" on ESXi
	Folder       string `json:"folder,omitempty"`  // path of the VM's folder in the inventory
	VMX          Path   `json:"vmx"`               // configuration file
	// file with the variables of its EFI firmware; empty for BIOS and for a VM without that file
	NVRAM    Path `json:"nvram,omitzero"`
	Template bool `json:"template,omitempty"` // a template, which cannot be powered on

	Power           Power  `json:"power"`                // power state
	GuestID         string `json:"guestId"`              // VirtualMachineGuestOsIdentifier
	GuestName       string `json:"guestName"`            // VMware's name of the guest operating system
	ToolsRunning    bool   `json:"toolsRunning"`         // VMware Tools run in the guest
	HardwareVersion int    `json:"hardwareVersion"`      // 19 for "vmx-19"
	Annotation      string `json:"annotation,omitempty"` // notes of the user

	Tags       []Tag             `json:"tags,omitempty"`       // vCenter only; by category, then by name
	Attributes map[string]string `json:"attributes,omitempty"` // custom attributes with a value, by name; vCenter only

	CPUs           int      `json:"cpus"`                 // number of virtual processors
	CoresPerSocket int      `json:"coresPerSocket"`       // number of cores of each virtual socket
	MemoryMiB      int64    `json:"memoryMiB"`            // size of the memory in MiB
	Firmware       Firmware `json:"firmware"`             // BIOS or EFI
	SecureBoot     bool     `json:"secureBoot,omitempty"` // EFI verifies the boot loader
	VTPM           bool     `json:"vtpm,omitempty"`       // the VM has a virtual TPM
	Encrypted      bool     `json:"encrypted,omitempty"`  // the VM's home or a disk has a key id

	Controllers []Controller `json:"controllers"`         // storage controllers
	Disks       []Disk       `json:"disks"`               // virtual disks
	NICs        []NIC        `json:"nics"`                // network cards
	CDROMs      int          `json:"cdroms,omitempty"`    // number of CD drives
	BootOrder   []string     `json:"bootOrder,omitempty"` // "disk:2000", "net:4000", "cdrom", "floppy"

	Snapshots           int  `json:"snapshots"`                     // number of snapshots
	ConsolidationNeeded bool `json:"consolidationNeeded,omitempty"` // delta disks of removed snapshots remain
	ChangeTracking      bool `json:"changeTracking"`                // changed block tracking is enabled

	Used        int64 `json:"used"`        // bytes on datastores of the VM's disks, all layers
	Provisioned int64 `json:"provisioned"` // sum of the capacities of the disks in bytes

	Warnings []Warning `json:"warnings,omitempty"` // what the user should know before a migration
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

// CopyTags copies the information that a vCenter adds from another description of the same VM: tags,
// custom attributes, and warnings that these could not be read.
func (v *VM) CopyTags(as *VM) {
	v.Tags, v.Attributes = as.Tags, as.Attributes
	for _, w := range as.Warnings {
		if w.Code == WarnTags || w.Code == WarnAttributes {
			v.Warnings = append(v.Warnings, w)
		}
	}
}

// Tag is a tag of vCenter. A VM may have several tags of one category.
type Tag struct {
	Category string `json:"category"` // name of the category
	Name     string `json:"name"`     // name of the tag
}

// Bus is the kind of a storage controller, by VMware's short names.
type Bus string

const (
	PVSCSI   Bus = "pvscsi"     // VMware Paravirtual SCSI
	LSILogic Bus = "lsilogic"   // LSI Logic Parallel
	LSISAS   Bus = "lsisas1068" // LSI Logic SAS
	BusLogic Bus = "buslogic"   // BusLogic Parallel
	NVMe     Bus = "nvme"       // NVM Express
	AHCI     Bus = "ahci"       // SATA
	IDE      Bus = "ide"        // IDE
)

// Controller is a storage controller of a VM.
type Controller struct {
	Key        int32  `json:"key"`               // device key
	Bus        Bus    `json:"bus"`               // kind; empty if unknown
	Number     int    `json:"number"`            // bus number: scsi0, scsi1 …
	SharedBus  bool   `json:"sharedBus"`         // physical or virtual bus sharing
	Unexpected string `json:"unknown,omitempty"` // type name of the API if Bus is empty
}

// Backing is the storage of a disk on its datastore.
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

// IsObject reports whether the disk has a descriptor and no data file: a raw device mapping, or an object
// on vSAN or a vVol.
func (b Backing) IsObject() bool { return b == RDM || b == VSAN || b == VVol }

// Disk is a virtual disk of a VM.
type Disk struct {
	Key        int32    `json:"key"`                 // device key: 2000 is the first SCSI disk
	Label      string   `json:"label"`               // "Hard disk 1"
	Path       Path     `json:"path"`                // descriptor that the VM uses now
	Base       Path     `json:"base"`                // descriptor of the base disk; equals Path without snapshots
	Capacity   int64    `json:"capacity"`            // size in bytes
	Used       int64    `json:"used"`                // bytes on the datastore, all layers; -1 unknown
	Backing    Backing  `json:"backing"`             // storage of the disk at Path
	Thin       bool     `json:"thin"`                // thin provisioned
	Mode       string   `json:"mode"`                // persistent, independent_persistent …
	Shared     bool     `json:"shared,omitempty"`    // multi-writer
	Encrypted  bool     `json:"encrypted,omitempty"` // the disk has a key id
	Controller int32    `json:"controller"`          // key of its Controller
	Unit       int      `json:"unit"`                // unit number on its controller
	UUID       string   `json:"uuid,omitempty"`      // 6000C29…, the guest-visible serial with disk.EnableUUID
	ChangeID   ChangeID `json:"changeId,omitempty"`  // current change ID; empty without change tracking
	Layers     int      `json:"layers"`              // number of disks in the chain; 1 without snapshots
}

// NIC is a virtual network card of a VM.
type NIC struct {
	Key                  int32  `json:"key"`                            // device key: 4000 is the first network card
	Label                string `json:"label"`                          // label: "Network adapter 1"
	Model                string `json:"model"`                          // vmxnet3, vmxnet2, e1000, e1000e, pcnet32, sriov
	MAC                  string `json:"mac"`                            // lower case, colons
	AddressType          string `json:"addressType"`                    // origin of the MAC address: assigned, generated or manual
	Network              string `json:"network"`                        // name of the network
	Connected            bool   `json:"connected"`                      // connected now
	StartConnected       bool   `json:"startConnected"`                 // connected when the VM is powered on
	DisconnectedByDecamp bool   `json:"disconnectedByDecamp,omitempty"` // decamp disconnected it before it shut the running VM down
	PCISlot              int    `json:"pciSlot,omitempty"`              // number of the PCI slot; 0 if unknown. Linux may name the card by it.
}

// Warning is something the user should know before a migration. Codes do not change.
type Warning struct {
	Code   string `json:"code"`   // "snapshots", "rdm", "vtpm" …
	Text   string `json:"text"`   // the finding
	Remedy string `json:"remedy"` // how to resolve it
	Blocks bool   `json:"blocks"` // migrate refuses the VM until it is resolved
}

// Codes of warnings about information of a vCenter that could not be read.
const (
	WarnTags       = "tags"       // tags could not be read
	WarnAttributes = "attributes" // custom attributes could not be read
)
