package vsphere

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

var (
	// diskControllers are the values of Disk.Controller.
	diskControllers = []string{"pvscsi", "lsilogic", "lsisas", "buslogic", "nvme", "ahci", "ide"}
	// nicModels are the values of NIC.Model.
	nicModels      = []string{"vmxnet3", "vmxnet2", "e1000", "e1000e", "pcnet32"}
	datastoreTypes = []string{"VMFS", "NFS", "vsan"} // datastoreTypes are the values of Datastore.Type.
	// mapKinds are the values of Datastore.Map.
	mapKinds = []string{string(MapAreas), string(MapWhole), string(MapFault)}
	// rdmModes are the values of Disk.RDM; empty is a disk with a flat file.
	rdmModes = []string{"", "physicalMode", "virtualMode"}
)

// validate returns all errors of a configuration with defaults.
func (c Config) validate() error {
	var errs []error
	for _, ds := range c.Datastores {
		errs = append(errs, c.checkDatastore(ds))
	}
	names := map[string]bool{}
	for _, v := range c.VMs {
		if names[v.Datacenter+"\x00"+v.Name] {
			errs = append(errs, fmt.Errorf("VM %q: named twice", v.Name))
		}
		names[v.Datacenter+"\x00"+v.Name] = true
		errs = append(errs, c.checkVM(v))
	}
	for _, f := range c.Faults {
		errs = append(errs, f.validate())
	}
	errs = append(errs, c.checkNumbers(), c.checkNFS(), c.NFC.validate(), c.Host.validate(), c.Tagging.validate(), oneOf("locks", string(c.Locks), []string{string(LockAll), string(LockActive)}))
	return errors.Join(errs...)
}

// checkNumbers checks limits, sessions and change tracking.
func (c Config) checkNumbers() error {
	switch l, s := c.Limits, c.Sessions; {
	case l.ConnRate < 0 || l.DatastoreRate < 0 || l.Latency < 0 || l.MaxRequests < 0 || l.MaxConns < 0:
		return fmt.Errorf("limits %+v: want nothing negative", l)
	case s.Idle < 0 || s.Max < 0 || s.LockAfter < 0 || s.LockFor < 0:
		return fmt.Errorf("sessions %+v: want nothing negative", s)
	case c.CBT.Granularity < 512 || c.CBT.Granularity%512 != 0 || c.CBT.MaxAreas < 1:
		return fmt.Errorf("cbt %+v: want a granularity that is a multiple of 512, and at least one area", c.CBT)
	}
	return nil
}

// checkNFS checks NFS and SSH.
func (c Config) checkNFS() error {
	switch n, s := c.NFS, c.SSH; {
	case n.Connections < 0 || n.WriteSize < 0 || n.WriteSize > 1<<20 || n.InFlight < 0:
		return fmt.Errorf("nfs: connections %d, writeSize %d, inFlight %d: want nothing negative and WRITEs of at most 1 MiB", n.Connections, n.WriteSize, n.InFlight)
	case s.MaxSessions < 0:
		return fmt.Errorf("ssh: maxSessions %d: want nothing negative", s.MaxSessions)
	case s.MaxClones < 0:
		return fmt.Errorf("ssh: maxClones %d: want nothing negative", s.MaxClones)
	case s.Enabled && s.Unavailable:
		return errors.New("ssh: enabled and unavailable exclude each other")
	}
	return nil
}

// checkDatastore checks one datastore.
func (c Config) checkDatastore(ds Datastore) error {
	switch {
	case ds.Name == "" || strings.ContainsAny(ds.Name, "[]/"): // would break datastore paths
		return fmt.Errorf("datastore %q: want a name without [ ] and /", ds.Name)
	case ds.Full < 0:
		return fmt.Errorf("datastore %q: full %d: want nothing negative", ds.Name, ds.Full)
	case c.findDatacenter(ds.Datacenter) == nil:
		return fmt.Errorf("datastore %q: no datacenter %q", ds.Name, ds.Datacenter)
	}
	return errors.Join(oneOf("datastore "+ds.Name+" type", ds.Type, datastoreTypes), oneOf("datastore "+ds.Name+" map", string(ds.Map), mapKinds))
}

// checkVM checks one VM with its devices.
func (c Config) checkVM(v VM) error {
	where := fmt.Sprintf("VM %q", v.Name)
	dc := c.findDatacenter(v.Datacenter)
	switch {
	case v.Name == "":
		return errors.New("a VM without a name")
	case strings.ContainsAny(v.Folder, "/\\") || v.Folder == "..": // the folder must stay in the datastore
		return fmt.Errorf("%s: folder %q: want one path element", where, v.Folder)
	case dc == nil:
		return fmt.Errorf("%s: no datacenter %q", where, v.Datacenter)
	case !slices.Contains(dc.Hosts, v.Host):
		return fmt.Errorf("%s: no host %q in %s", where, v.Host, v.Datacenter)
	}
	if w := v.Guest.Writes; w.Rate < 0 || w.AtStop < 0 || w.Spread < 0 || w.Spread > 100 {
		return fmt.Errorf("%s: writes %+v: want nothing negative and a spread of at most 100", where, w)
	}
	errs := []error{oneOf(where+" firmware", v.Firmware, []string{"bios", "efi"})}
	for _, tag := range v.Tags {
		errs = append(errs, tag.validate())
	}
	if !c.VCenter && len(v.Tags)+len(v.Attributes) > 0 {
		errs = append(errs, fmt.Errorf("%s: an ESXi host has neither tags nor custom attributes", where))
	}
	for i, d := range v.Disks {
		errs = append(errs, c.checkDisk(fmt.Sprintf("%s disk %d", where, i), v, d))
	}
	for _, name := range v.Devices {
		errs = append(errs, oneOf(where+" device", name, slices.Sorted(maps.Keys(leftoverDevices))))
	}
	for i, n := range v.NICs {
		errs = append(errs, oneOf(fmt.Sprintf("%s NIC %d model", where, i), n.Model, nicModels))
	}
	return errors.Join(errs...)
}

// checkDisk checks one disk of v. where names it in errors.
func (c Config) checkDisk(where string, v VM, d Disk) error {
	switch {
	case d.Capacity%512 != 0 || d.Capacity < 0:
		return fmt.Errorf("%s: capacity %d: want a multiple of 512", where, d.Capacity)
	case d.Capacity == 0 && d.File == "": // neither generated nor a file
		return fmt.Errorf("%s: want a capacity or a file", where)
	case d.Fill < 0 || d.Fill > 100:
		return fmt.Errorf("%s: fill %d: want a percentage", where, d.Fill)
	case d.Fill != 0 && d.File != "": // two contents
		return fmt.Errorf("%s: fill and file exclude each other", where)
	case !strings.HasSuffix(d.Name, ".vmdk") || strings.Contains(d.Name, "/"):
		return fmt.Errorf("%s: name %q: want a file name ending in .vmdk", where, d.Name)
	case !slices.ContainsFunc(c.Datastores, func(ds Datastore) bool { return ds.Name == d.Datastore && ds.Datacenter == v.Datacenter }):
		return fmt.Errorf("%s: no datastore %q in %s", where, d.Datastore, v.Datacenter)
	}
	return errors.Join(oneOf(where+" controller", d.Controller, diskControllers), oneOf(where+" rdm", d.RDM, rdmModes))
}

// oneOf returns an error unless v is one of the allowed values.
func oneOf(what, v string, allowed []string) error {
	if slices.Contains(allowed, v) {
		return nil
	}
	return fmt.Errorf("%s %q: want one of %s", what, v, strings.Join(allowed, ", "))
}
