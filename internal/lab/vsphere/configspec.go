package vsphere

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Datacenter is one datacenter of an emulated vCenter.
type Datacenter struct {
	Name   string   `json:"name"`             // name in the inventory
	Folder string   `json:"folder,omitempty"` // inventory folder that contains it; empty is the root folder
	Hosts  []string `json:"hosts"`            // names of its hosts
}

// Datastore is a datastore of one datacenter.
type Datastore struct {
	Name       string  `json:"name"`                 // name without [ ] and /
	Datacenter string  `json:"datacenter,omitempty"` // vCenter only; default the first
	Type       string  `json:"type,omitempty"`       // VMFS (default), NFS or vsan
	Capacity   Bytes   `json:"capacity,omitempty"`   // default 2 TiB
	Map        MapKind `json:"map,omitempty"`        // answer to "*" on this datastore; default by Type

	Full        Bytes `json:"full,omitempty"`        // bytes that other data than the VMs occupies
	Maintenance bool  `json:"maintenance,omitempty"` // the host is in maintenance mode
	Lost        bool  `json:"lost,omitempty"`        // reported as inaccessible; its files are still readable
}

// MapKind is the answer of QueryChangedDiskAreas("*") for disks of a datastore.
type MapKind string

// Maps are trustworthy on VMFS; on NFS and vSAN the query may return one extent or fail
// (VDDK programming guide, "allocated blocks").
const (
	MapAreas MapKind = "areas" // the allocated areas; default on VMFS
	MapWhole MapKind = "whole" // one extent, the whole disk; default on NFS
	MapFault MapKind = "fault" // FileFault; default on vSAN
)

// VM is one virtual machine.
type VM struct {
	Name       string `json:"name"`                 // any text; %, / and \ are escaped in the inventory as vSphere does
	Folder     string `json:"folder,omitempty"`     // its folder on the datastore; default the name with / and \ as _
	Datacenter string `json:"datacenter,omitempty"` // vCenter only; default the first
	Host       string `json:"host,omitempty"`       // vCenter only; default the first of the datacenter
	Datastore  string `json:"datastore,omitempty"`  // default the first of the datacenter
	PoweredOn  bool   `json:"poweredOn,omitempty"`  // whether the VM is powered on at the start
	GuestID    string `json:"guestId,omitempty"`    // default other3xLinux64Guest
	Firmware   string `json:"firmware,omitempty"`   // bios (default) or efi
	SecureBoot bool   `json:"secureBoot,omitempty"` // whether EFI Secure Boot is enabled
	// file with the content of the .nvram file; empty creates no file, as for a VM that was never on
	NVRAM        string `json:"nvram,omitempty"`
	UUID         string `json:"uuid,omitempty"`           // BIOS UUID; default derived from the name
	InstanceUUID string `json:"instanceUuid,omitempty"`   // vCenter's; default derived from the name
	CPUs         int32  `json:"cpus,omitempty"`           // number of virtual CPUs; default 1
	CoresPer     int32  `json:"coresPerSocket,omitempty"` // cores per socket; default 1
	MemoryMB     int64  `json:"memoryMB,omitempty"`       // memory in MiB; default 1024
	Annotation   string `json:"annotation,omitempty"`     // notes of the administrator

	Tags []Tag `json:"tags,omitempty"` // vCenter only
	// whether the account may not read the tags: a call about the VM is refused
	TagsHidden bool              `json:"tagsHidden,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"` // custom attributes; vCenter only

	KeyID   string   `json:"keyId,omitempty"`   // key of an encrypted VM; empty if it is not encrypted
	TPM     bool     `json:"tpm,omitempty"`     // whether the VM has a virtual TPM
	CDROM   bool     `json:"cdrom,omitempty"`   // a CD-ROM drive without medium
	Devices []string `json:"devices,omitempty"` // connected devices that a migration drops: floppy, serial, parallel, usb, pci

	ChangeTracking bool              `json:"changeTracking,omitempty"` // whether changed block tracking is enabled
	Snapshots      []string          `json:"snapshots,omitempty"`      // oldest first, one chain
	Guest          Guest             `json:"guest"`                    // behaviour of the guest
	Disks          []Disk            `json:"disks,omitempty"`          // virtual disks
	NICs           []NIC             `json:"nics,omitempty"`           // network cards
	ExtraConfig    map[string]string `json:"extraConfig,omitempty"`    // advanced configuration parameters
}

// Guest is the behaviour of the guest operating system.
type Guest struct {
	NoTools         bool     `json:"noTools,omitempty"`         // VMware Tools absent: ShutdownGuest fails with ToolsUnavailable
	IgnoresShutdown bool     `json:"ignoresShutdown,omitempty"` // whether a shutdown request is accepted without effect
	ShutdownDelay   Duration `json:"shutdownDelay,omitempty"`   // time from the request to power-off, on the emulator's clock
	Writes          Writes   `json:"writes,omitzero"`           // changes to its disks while it runs
	Volumes         []Volume `json:"volumes,omitempty"`         // file systems that VMware Tools report while they run
}

// Volume is a file system of a guest, as VMware Tools report it.
type Volume struct {
	Path     string `json:"path"`     // mount point: "/boot", `C:\`
	Capacity Bytes  `json:"capacity"` // size in bytes
	Free     Bytes  `json:"free"`     // free space in bytes
}

// Disk is one virtual disk. Its content is File, or generated from Seed and Fill.
type Disk struct {
	Name       string `json:"name,omitempty"`       // descriptor name; default VM, VM_1, VM_2 ... and .vmdk
	Datastore  string `json:"datastore,omitempty"`  // default the VM's
	Capacity   Bytes  `json:"capacity,omitempty"`   // multiple of 512; default the size of File, rounded up
	Controller string `json:"controller,omitempty"` // pvscsi (default), lsilogic, lsisas, buslogic, nvme, ahci or ide
	Bus        int32  `json:"bus,omitempty"`        // the controller's bus number
	Unit       *int32 `json:"unit,omitempty"`       // default the next free one
	Thick      bool   `json:"thick,omitempty"`      // all blocks allocated; default thin
	Mode       string `json:"mode,omitempty"`       // persistent (default), independent_persistent ...
	Sharing    string `json:"sharing,omitempty"`    // sharingNone (default) or sharingMultiWriter
	RDM        string `json:"rdm,omitempty"`        // physicalMode or virtualMode: a raw device mapping, without a flat file

	File string `json:"file,omitempty"` // raw image with the content, opened read-only in place
	Fill int    `json:"fill,omitempty"` // generated: percent of the disk that is data
	Seed uint64 `json:"seed,omitempty"` // generated: same seed, capacity and fill, same bytes

	Hide []Span `json:"hide,omitempty"` // ranges that the allocation map omits although they contain data
}

// Span is a byte range of a disk.
type Span struct {
	Offset int64 `json:"offset"` // first byte
	Length int64 `json:"length"` // number of bytes
}

// NIC is one network card.
type NIC struct {
	Model        string `json:"model,omitempty"`        // vmxnet3 (default), e1000, e1000e, vmxnet2 or pcnet32
	MAC          string `json:"mac,omitempty"`          // default derived from the VM's name
	AddressType  string `json:"addressType,omitempty"`  // generated (default), assigned or manual
	Network      string `json:"network,omitempty"`      // default VM Network
	Disconnected bool   `json:"disconnected,omitempty"` // whether the card is not connected
}

// allDatacenters returns the datacenters with defaults. An ESXi host has one with a fixed name.
func (c Config) allDatacenters() []Datacenter {
	if !c.VCenter {
		return []Datacenter{{Name: "ha-datacenter", Hosts: []string{"localhost.localdomain"}}}
	}
	if len(c.Datacenters) == 0 {
		return []Datacenter{{Name: "DC1", Folder: "Lab", Hosts: []string{"esx1.lab", "esx2.lab"}}}
	}
	return slices.Clone(c.Datacenters)
}

// allDatastores returns the datastores with defaults. c.Datacenters must have defaults.
func (c Config) allDatastores() []Datastore {
	all := slices.Clone(c.Datastores)
	if len(all) == 0 {
		all = []Datastore{{Name: "datastore1"}}
		if c.VCenter {
			all = append(all, Datastore{Name: "datastore2"})
		}
	}
	for i := range all {
		setDefault(&all[i].Datacenter, c.Datacenters[0].Name)
		setDefault(&all[i].Type, "VMFS")
		setDefault(&all[i].Capacity, 2<<40)
		setDefault(&all[i].Map, defaultMap(all[i].Type))
	}
	return all
}

// defaultMap returns the allocation map of a type of datastore.
func defaultMap(datastoreType string) MapKind {
	switch datastoreType {
	case "VMFS":
		return MapAreas
	case "vsan":
		return MapFault
	}
	return MapWhole
}

// allVMs returns the VMs with defaults. Datacenters and datastores must have defaults.
func (c Config) allVMs() []VM {
	all := slices.Clone(c.VMs)
	for i := range all {
		all[i].setDefaults(c)
	}
	return all
}

// setDefaults sets the zero fields of a VM, its disks and its cards.
func (v *VM) setDefaults(c Config) {
	setDefault(&v.Folder, strings.NewReplacer("/", "_", `\`, "_").Replace(v.Name))
	setDefault(&v.Datacenter, c.Datacenters[0].Name)
	if dc := c.findDatacenter(v.Datacenter); dc != nil && len(dc.Hosts) > 0 {
		setDefault(&v.Host, dc.Hosts[0])
	}
	setDefault(&v.Datastore, c.firstDatastore(v.Datacenter))
	setDefault(&v.GuestID, "other3xLinux64Guest")
	setDefault(&v.Firmware, "bios")
	setDefault(&v.CPUs, 1)
	setDefault(&v.CoresPer, 1)
	setDefault(&v.MemoryMB, 1024)
	v.Disks = slices.Clone(v.Disks)
	for i := range v.Disks {
		v.Disks[i].setDefaults(v, i)
	}
	v.NICs = slices.Clone(v.NICs)
	for i := range v.NICs {
		setDefault(&v.NICs[i].Model, "vmxnet3")
		setDefault(&v.NICs[i].AddressType, "generated")
		setDefault(&v.NICs[i].Network, "VM Network")
		setDefault(&v.NICs[i].MAC, macOf(v.Name, i))
	}
}

// setDefaults sets the zero fields of the disk of v with index i.
func (d *Disk) setDefaults(v *VM, i int) {
	name := path.Base(v.Folder) + ".vmdk"
	if i > 0 {
		name = fmt.Sprintf("%s_%d.vmdk", path.Base(v.Folder), i)
	}
	setDefault(&d.Name, name)
	setDefault(&d.Datastore, v.Datastore)
	setDefault(&d.Controller, "pvscsi")
	setDefault(&d.Mode, "persistent")
	setDefault(&d.Sharing, "sharingNone")
}

// findDatacenter returns the datacenter with this name, or nil.
func (c Config) findDatacenter(name string) *Datacenter {
	for i := range c.Datacenters {
		if c.Datacenters[i].Name == name {
			return &c.Datacenters[i]
		}
	}
	return nil
}

// firstDatastore returns the first datastore of a datacenter; "" if it has none.
func (c Config) firstDatastore(datacenter string) string {
	for _, ds := range c.Datastores {
		if ds.Datacenter == datacenter {
			return ds.Name
		}
	}
	return ""
}
