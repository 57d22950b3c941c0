package vsphere

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/decamp/decamp/internal/lab/nfsclient"
)

// A datastoreSystem is a host's HostDatastoreSystem that mounts NFS exports.
type datastoreSystem struct {
	*simulator.HostDatastoreSystem
	lab *Lab // emulator with the mounts
}

// CreateNasDatastore mounts an export and adds the datastore to the inventory.
func (s *datastoreSystem) CreateNasDatastore(ctx *simulator.Context, req *types.CreateNasDatastore) soap.HasFault {
	body := &methods.CreateNasDatastoreBody{}
	ref, fault := s.createNAS(ctx, *req)
	if fault != nil {
		body.Fault_ = simulator.Fault(fmt.Sprintf("%T", fault), fault)
		return body
	}
	body.Res = &types.CreateNasDatastoreResponse{Returnval: ref}
	return body
}

// createNAS implements CreateNasDatastore. The lock of s must be held.
func (s *datastoreSystem) createNAS(ctx *simulator.Context, req types.CreateNasDatastore) (ref types.ManagedObjectReference, _ types.BaseMethodFault) {
	spec := req.Spec
	if fault := s.checkSpec(ctx, spec); fault != nil {
		return ref, fault
	}
	n, err := s.lab.mountNAS(s.Host.Self, s.Host.Name, spec)
	if err != nil {
		s.lab.cfg.Log.Debug("mount", "datastore", spec.LocalPath, "err", err)
		return ref, mountFault(spec, err)
	}
	if n.ref, err = s.registerDatastore(ctx, spec); err != nil {
		n.client.Abandon() // nothing refers to the mount
		return ref, &types.HostConfigFault{}
	}
	s.lab.nasMounts.addMount(n)
	s.lab.describeNAS(ctx, n)
	return n.ref, nil
}

// checkSpec returns the fault of a request that is invalid without contacting the server.
func (s *datastoreSystem) checkSpec(ctx *simulator.Context, spec types.HostNasVolumeSpec) types.BaseMethodFault {
	switch {
	case spec.RemoteHost == "":
		return &types.InvalidArgument{InvalidProperty: "spec.remoteHost"}
	case spec.RemotePath == "":
		return &types.InvalidArgument{InvalidProperty: "spec.remotePath"}
	case spec.LocalPath == "" || strings.ContainsAny(spec.LocalPath, "/\\[]") || len(spec.LocalPath) > 42:
		return &types.InvalidName{Name: spec.LocalPath} // 42: the length of a datastore's name
	case spec.Type != "" && !strings.EqualFold(spec.Type, "NFS"):
		return &types.NotSupported{} // NFS 4.1 and CIFS
	}
	if e := ctx.Map.FindByName(spec.LocalPath, s.Datastore); e != nil {
		return &types.DuplicateName{Name: spec.LocalPath, Object: e.Reference()}
	}
	mounted := s.lab.nasMounts.mountsOf(s.Host.Self)
	for _, n := range mounted {
		if n.spec.RemoteHost == spec.RemoteHost && n.spec.RemotePath == spec.RemotePath {
			return &types.AlreadyExists{Name: n.spec.LocalPath}
		}
	}
	if len(mounted) >= s.lab.cfg.NFS.MaxVolumes {
		return &types.NasConnectionLimitReached{NasConfigFault: nasFault(spec), RemoteHost: spec.RemoteHost, RemotePath: spec.RemotePath}
	}
	return nil
}

// nasFault returns the common part of NAS faults.
func nasFault(spec types.HostNasVolumeSpec) types.NasConfigFault {
	return types.NasConfigFault{Name: spec.LocalPath}
}

// mountFault returns the NAS fault for an error of the mount. Which fault a real host selects is not
// documented.
func mountFault(spec types.HostNasVolumeSpec, err error) types.BaseMethodFault {
	var network net.Error
	switch {
	case errors.Is(err, fs.ErrPermission) && nfsclient.StatusOf(err) != nfsclient.OK:
		return &types.NoPermissionOnNasVolume{NasConfigFault: nasFault(spec)}
	case errors.Is(err, fs.ErrNotExist):
		return &types.InvalidNetworkResource{NasConfigFault: nasFault(spec), RemoteHost: spec.RemoteHost, RemotePath: spec.RemotePath}
	case errors.As(err, &network), errors.Is(err, context.DeadlineExceeded):
		return &types.NetworkInaccessible{NasConfigFault: nasFault(spec)}
	}
	return &types.NasVolumeNotMounted{NasConfigFault: nasFault(spec), RemoteHost: spec.RemoteHost, RemotePath: spec.RemotePath}
}

// registerDatastore adds the datastore to the simulator, for which it is a local folder.
func (s *datastoreSystem) registerDatastore(ctx *simulator.Context, spec types.HostNasVolumeSpec) (ref types.ManagedObjectReference, err error) {
	dir := filepath.Join(s.lab.dir, "vmfs", "nas", uuidOf(spec.RemoteHost+":"+spec.RemotePath), spec.LocalPath)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return ref, err
	}
	spec.LocalPath, spec.Type = dir, "NFS"
	res := s.HostDatastoreSystem.CreateNasDatastore(ctx, &types.CreateNasDatastore{This: s.Self, Spec: spec})
	if err := faultOf(res); err != nil {
		return ref, err
	}
	// The reference it returns is empty if another host had the datastore before.
	e := ctx.Map.FindByName(filepath.Base(dir), s.Datastore)
	if e == nil {
		return ref, errors.New("the datastore is not in the inventory")
	}
	return e.Reference(), nil
}

// describeNAS sets type and space of the datastore, as reported by the server. If the server does not
// answer, the simulator's values remain.
func (t *nasMounts) describeNAS(ctx *simulator.Context, n *nasMount) {
	obj, ok := ctx.Map.Get(n.ref).(*simulator.Datastore)
	if !ok {
		return
	}
	ask, cancel := t.jobs.jobContext(context.Background())
	defer cancel()
	space, err := n.client.Space(ask)
	if err != nil {
		return // the datastore shows the simulator's sizes
	}
	ctx.WithLock(obj, func() {
		obj.Summary.Type, obj.Summary.Capacity, obj.Summary.FreeSpace = "NFS", int64(space.Total), int64(space.Avail)
		obj.Summary.MultipleHostAccess = types.NewBool(len(obj.Host) > 1)
		if info, ok := obj.Info.(*types.NasDatastoreInfo); ok {
			info.FreeSpace, info.MaxFileSize = int64(space.Avail), int64(min(n.client.Limits().MaxFileSize, 64<<40))
			info.Nas.Name, info.Nas.Type, info.Nas.Capacity = n.spec.LocalPath, "NFS", int64(space.Total)
		}
	})
}

// RemoveDatastore unmounts a datastore from this host.
func (s *datastoreSystem) RemoveDatastore(ctx *simulator.Context, req *types.RemoveDatastore) soap.HasFault {
	body := &methods.RemoveDatastoreBody{}
	if fault := s.lab.removeNAS(ctx, req.Datastore, s.Host.Self); fault != nil {
		body.Fault_ = simulator.Fault(fmt.Sprintf("%T", fault), fault)
		return body
	}
	body.Res = &types.RemoveDatastoreResponse{}
	return body
}

// A nasDatastore is a datastore with the methods that unmount it from all hosts.
type nasDatastore struct {
	*simulator.Datastore
	lab *Lab // emulator with the mounts
}

// DestroyDatastore unmounts the datastore from all hosts and removes it.
func (d *nasDatastore) DestroyDatastore(ctx *simulator.Context, _ *types.DestroyDatastore) soap.HasFault {
	body := &methods.DestroyDatastoreBody{}
	if fault := d.lab.removeNAS(ctx, d.Self, types.ManagedObjectReference{}); fault != nil {
		body.Fault_ = simulator.Fault(fmt.Sprintf("%T", fault), fault)
		return body
	}
	body.Res = &types.DestroyDatastoreResponse{}
	return body
}

// DestroyTask does the same as a task. For other datastores it is the simulator's.
func (d *nasDatastore) DestroyTask(ctx *simulator.Context, req *types.Destroy_Task) soap.HasFault {
	if !d.lab.nasMounts.hasMount(d.Self) {
		return d.Datastore.DestroyTask(ctx, req)
	}
	task := d.lab.startTask(ctx, d.Self, "destroy", func(*labTask) (types.AnyType, types.BaseMethodFault) {
		return nil, d.lab.removeNAS(d.lab.newContext(), d.Self, types.ManagedObjectReference{})
	})
	return &methods.Destroy_TaskBody{Res: &types.Destroy_TaskResponse{Returnval: task}}
}

// removeNAS unmounts a datastore from a host, or from all if host is zero: from all of them or, if it
// returns a fault, from none. It refuses to unmount a datastore of the configuration, one with open files,
// and the last mount of one with VMs. An error of the server changes nothing: the host unmounts anyway.
func (t *nasMounts) removeNAS(ctx *simulator.Context, ref, host types.ManagedObjectReference) types.BaseMethodFault {
	inUse := &types.ResourceInUse{Type: ref.Type, Name: ref.Value}
	ds, ok := ctx.Map.Get(ref).(*simulator.Datastore)
	if !ok {
		return &types.NotFound{}
	}
	var hosts, vms int
	ctx.WithLock(ds, func() { hosts, vms = len(ds.Host), len(ds.Vm) })
	if vms > 0 && (host.Value == "" || hosts == 1) {
		return inUse
	}
	mounted, lost, busy := t.takeMounts(ref, host)
	if busy || len(mounted)+len(lost) == 0 { // a datastore of the configuration has no mounts
		return inUse
	}
	var unmounts sync.WaitGroup
	for _, n := range mounted {
		unmounts.Go(func() { t.unmountClient(n) })
	}
	unmounts.Wait()
	for _, n := range slices.Concat(mounted, lost) {
		t.unlistMount(ctx, ds, n)
	}
	return nil
}

// unlistMount removes the host of n from a datastore in the inventory. With the last host it removes the
// datastore.
func (t *nasMounts) unlistMount(ctx *simulator.Context, ds *simulator.Datastore, n *nasMount) {
	unlock := ctx.Map.AcquireLock(ctx, ds) // two hosts that unmount at the same time are not both the last one
	defer unlock()
	if len(ds.Host) <= 1 { // the last host
		task := ds.DestroyTask(ctx, &types.Destroy_Task{This: ds.Self}).(*methods.Destroy_TaskBody).Res.Returnval
		ctx.Map.Get(task).(*simulator.Task).Wait()
		if ctx.Session != nil {
			ctx.Session.Registry.Remove(ctx, ds.Self)
		}
	}
	host := ctx.Map.Get(n.host).(*simulator.HostSystem)
	system := ctx.Map.Get(*host.ConfigManager.DatastoreSystem).(*simulator.HostDatastoreSystem)
	mounts := []types.DatastoreHostMount{}
	for _, m := range ds.Host {
		if m.Key != n.host {
			mounts = append(mounts, m)
		}
	}
	ds.Host = mounts
	ctx.Map.RemoveReference(ctx, system, &system.Datastore, n.ref)
	ctx.Map.RemoveReference(ctx, host, &host.Datastore, n.ref)
}
