package vsphere

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// A builder creates the inventory. It calls methods of the simulator as its server would, on a separate
// context, and then corrects values that are missing or invented.
type builder struct {
	lab *Lab                // emulator that is being built
	ctx *simulator.Context  // context of the simulator; locks belong to it
	reg *simulator.Registry // objects of the simulator
}

// newModel creates a model of a host or a vCenter without datastores and VMs.
func newModel(cfg Config) (*simulator.Model, error) {
	m := simulator.ESX() // model of a host
	if cfg.VCenter {
		m = simulator.VPX() // model of a vCenter
	}
	m.Datacenter, m.Host, m.Cluster, m.ClusterHost, m.Portgroup = 0, 0, 0, 0, 0
	m.Datastore, m.Machine, m.Autostart = 0, 0, false
	about := &m.ServiceContent.About
	about.Name, about.Version, about.ApiVersion, about.Build = "VMware ESXi", cfg.Version, cfg.Version+".0", "24022510"
	if cfg.VCenter {
		about.Name = "VMware vCenter Server"
	}
	about.FullName = fmt.Sprintf("%s %s build-%s", about.Name, about.Version, about.Build)
	creating.Lock()
	defer creating.Unlock()
	return m, m.Create()
}

// creating is locked while a model is created: the simulator modifies its global list of licences.
var creating sync.Mutex

// buildInventory creates datacenters, hosts, datastores and VMs, in this order: each depends on the
// previous one.
func (b *builder) buildInventory() error {
	for _, spec := range b.lab.cfg.Datacenters {
		dc := &datacenter{spec: spec, path: strings.TrimPrefix(escapeName(spec.Folder)+"/"+escapeName(spec.Name), "/")}
		b.lab.datacenters = append(b.lab.datacenters, dc)
		if err := b.addDatacenter(dc); err != nil {
			return fmt.Errorf("datacenter %q: %w", spec.Name, err)
		}
	}
	for _, spec := range b.lab.cfg.Datastores {
		if err := b.addDatastore(spec); err != nil {
			return fmt.Errorf("datastore %q: %w", spec.Name, err)
		}
	}
	for _, spec := range b.lab.cfg.VMs {
		if err := b.addVM(spec); err != nil {
			return fmt.Errorf("VM %q: %w", spec.Name, err)
		}
	}
	b.setDatastoreTypes()
	b.setMaintenance()
	return b.addAttributes()
}

// addDatacenter finds the only datacenter of an ESXi host, or creates one with its hosts in a vCenter.
func (b *builder) addDatacenter(dc *datacenter) error {
	if !b.lab.cfg.VCenter {
		dc.ref = b.reg.Any("Datacenter").Reference()
		host := b.reg.Any("HostSystem").(*simulator.HostSystem)
		dc.hosts = append(dc.hosts, host.Self)
		b.setProduct(host)
		return errors.Join(b.addServices(host), b.addNFC(host), b.addState(host))
	}
	parent, err := b.ensureFolder(dc.spec.Folder)
	if err != nil {
		return err
	}
	res := parent.CreateDatacenter(b.ctx, &types.CreateDatacenter{This: parent.Self, Name: escapeName(dc.spec.Name)})
	if err := faultOf(res); err != nil {
		return err
	}
	dc.ref = res.(*methods.CreateDatacenterBody).Res.Returnval
	for _, host := range dc.spec.Hosts {
		if err := b.addHost(dc, host); err != nil {
			return fmt.Errorf("host %q: %w", host, err)
		}
	}
	return nil
}

// ensureFolder returns the named folder in the root folder, and creates it if necessary. An empty name
// is the root folder.
func (b *builder) ensureFolder(name string) (*simulator.Folder, error) {
	root := b.reg.Get(b.lab.model.ServiceContent.RootFolder).(*simulator.Folder)
	if name == "" {
		return root, nil
	}
	if e := b.reg.FindByName(escapeName(name), root.ChildEntity); e != nil {
		return e.(*simulator.Folder), nil
	}
	res := root.CreateFolder(b.ctx, &types.CreateFolder{This: root.Self, Name: name})
	if err := faultOf(res); err != nil {
		return nil, err
	}
	return b.reg.Get(res.(*methods.CreateFolderBody).Res.Returnval).(*simulator.Folder), nil
}

// addHost adds a standalone host to a datacenter, with its services, its NFC server and its settings.
func (b *builder) addHost(dc *datacenter, name string) error {
	folder := b.reg.Get(b.findDatacenter(dc).HostFolder).(*simulator.Folder)
	res := folder.AddStandaloneHostTask(b.ctx, &types.AddStandaloneHost_Task{
		This: folder.Self, Spec: types.HostConnectSpec{HostName: b.lab.hostName(name)}, AddConnected: true,
	})
	if err := faultOf(res); err != nil {
		return err
	}
	_, err := waitForTask(b.reg, res.(*methods.AddStandaloneHost_TaskBody).Res.Returnval)
	if err != nil {
		return err
	}
	host := b.findHost(dc, name)
	dc.hosts = append(dc.hosts, host.Self)
	b.setProduct(host)
	return errors.Join(b.addServices(host), b.addNFC(host), b.addState(host))
}

// setProduct sets the version of a host. With HostListeners it removes the management address, so that
// clients use the host's name instead of port 443 of the address.
func (b *builder) setProduct(h *simulator.HostSystem) {
	b.ctx.WithLock(h, func() {
		product := h.Config.Product
		product.Version, product.ApiVersion, product.Build = b.lab.cfg.Version, b.lab.cfg.Version+".0", "24022510"
		product.FullName = fmt.Sprintf("VMware ESXi %s build-%s", product.Version, product.Build)
		h.Config.Product = product
		h.Summary.Config.Product = &product
		if b.lab.cfg.HostListeners {
			h.Config.VirtualNicManagerInfo = nil // clients then use the host's name
		}
	})
}

// addDatastore creates the folder of a datastore and mounts it on all hosts of its datacenter.
func (b *builder) addDatastore(spec Datastore) error {
	dc := b.lab.findDatacenter(spec.Datacenter)
	ds := &datastore{spec: spec, dc: dc, data: map[string]*dataFile{}, rate: newBucket(int64(b.lab.cfg.Limits.DatastoreRate))}
	ds.dir = filepath.Join(b.lab.dir, "vmfs", "volumes", uuidOf(dc.path+"/"+spec.Name))
	if err := os.MkdirAll(ds.dir, 0o700); err != nil {
		return err
	}
	var err error
	if ds.root, err = os.OpenRoot(ds.dir); err != nil {
		return err
	}
	dc.datastores = append(dc.datastores, ds)
	for _, h := range b.listHosts(dc) {
		system := b.reg.Get(*h.ConfigManager.DatastoreSystem).(*simulator.HostDatastoreSystem)
		res := system.CreateLocalDatastore(b.ctx, &types.CreateLocalDatastore{This: system.Self, Name: spec.Name, Path: ds.dir})
		if err := faultOf(res); err != nil {
			return err
		}
	}
	ref := b.reg.FindByName(spec.Name, b.findDatacenter(dc).Datastore)
	if ref == nil { // the simulator did not add it
		return errors.New("not attached to its datacenter")
	}
	ds.ref = ref.Reference()
	return nil
}

// setDatastoreTypes sets type and space of the datastores. It runs last, because the simulator creates
// no VMs on a vSAN datastore with fewer than three hosts.
func (b *builder) setDatastoreTypes() {
	for _, dc := range b.lab.datacenters {
		for _, ds := range dc.datastores {
			obj := b.reg.Get(ds.ref).(*simulator.Datastore)
			b.ctx.WithLock(obj, func() { ds.describeSummary(obj, b.lab.usedOn(ds)) })
		}
	}
}

// describeSummary sets the summary and the info of a datastore on which used bytes are allocated. The
// lock of obj must be held.
func (ds *datastore) describeSummary(obj *simulator.Datastore, used int64) {
	capacity := max(int64(ds.spec.Capacity), used)
	used = min(capacity, used+int64(ds.spec.Full))
	obj.Summary.Type, obj.Summary.Capacity, obj.Summary.FreeSpace = ds.spec.Type, capacity, capacity-used
	obj.Summary.Accessible = !ds.spec.Lost
	if ds.spec.Maintenance {
		obj.Summary.MaintenanceMode = string(types.DatastoreSummaryMaintenanceModeStateInMaintenance)
	}
	info := types.DatastoreInfo{
		Name: ds.spec.Name, Url: ds.dir, FreeSpace: capacity - used, MaxFileSize: 62 << 40, Timestamp: types.NewTime(time.Now()),
	}
	switch ds.spec.Type {
	case "VMFS": // VMFS 6
		volume := &types.HostVmfsVolume{MajorVersion: 6, Version: "6.82", Uuid: filepath.Base(ds.dir), BlockSizeMb: 1}
		volume.Name, volume.Type, volume.Capacity = ds.spec.Name, "VMFS", capacity
		obj.Info = &types.VmfsDatastoreInfo{DatastoreInfo: info, Vmfs: volume}
	case "NFS": // an export of a documentation address
		volume := &types.HostNasVolume{RemoteHost: "192.0.2.10", RemotePath: "/export/" + ds.spec.Name}
		volume.Name, volume.Type, volume.Capacity = ds.spec.Name, "NFS", capacity
		obj.Info = &types.NasDatastoreInfo{DatastoreInfo: info, Nas: volume}
	case "vsan":
		obj.Info = &types.VsanDatastoreInfo{DatastoreInfo: info, MembershipUuid: filepath.Base(ds.dir)}
	}
}

// findDatacenter returns the simulator's object of a datacenter.
func (b *builder) findDatacenter(dc *datacenter) *simulator.Datacenter {
	return b.reg.Get(dc.ref).(*simulator.Datacenter)
}

// listHosts returns the hosts of dc in the order of the configuration.
func (b *builder) listHosts(dc *datacenter) []*simulator.HostSystem {
	if !b.lab.cfg.VCenter {
		return []*simulator.HostSystem{b.reg.Any("HostSystem").(*simulator.HostSystem)}
	}
	var all []*simulator.HostSystem
	for _, name := range dc.spec.Hosts {
		all = append(all, b.findHost(dc, name))
	}
	return all
}

// findHost returns the host with this name in the configuration.
func (b *builder) findHost(dc *datacenter, name string) *simulator.HostSystem {
	folder := b.reg.Get(b.findDatacenter(dc).HostFolder).(*simulator.Folder)
	cr := b.reg.FindByName(b.lab.hostName(name), folder.ChildEntity).(*mo.ComputeResource)
	return b.reg.Get(cr.Host[0]).(*simulator.HostSystem)
}

// waitForTask waits for the end of a task and returns its result. A fault of the task becomes an error.
func waitForTask(reg *simulator.Registry, ref types.ManagedObjectReference) (types.AnyType, error) {
	task := reg.Get(ref).(*simulator.Task)
	task.Wait()
	if task.Info.Error != nil {
		return nil, fmt.Errorf("%s: %T", task.Info.DescriptionId, task.Info.Error.Fault)
	}
	return task.Info.Result, nil
}

// faultOf returns the fault of a call as an error, or nil.
func faultOf(res soap.HasFault) error {
	if f := res.Fault(); f != nil {
		return fmt.Errorf("%T %s", f.VimFault(), f.String)
	}
	return nil
}

// escapeName escapes a name for the inventory, as vSphere does.
func escapeName(name string) string {
	return strings.NewReplacer("%", "%25", "/", "%2f", `\`, "%5c").Replace(name)
}
