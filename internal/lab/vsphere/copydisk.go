package vsphere

import (
	"errors"
	"fmt"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/decamp/decamp/internal/lab/nfsclient"
)

// diskManager is the VirtualDiskManager, with copies that transfer data.
type diskManager struct {
	*simulator.VirtualDiskManager
	lab *Lab // emulator with the disks and mounts
}

// CopyVirtualDiskTask copies a disk to an NFS datastore that a host has mounted. As on a real host,
// force has no effect.
func (m *diskManager) CopyVirtualDiskTask(ctx *simulator.Context, req *types.CopyVirtualDisk_Task) soap.HasFault {
	body := &methods.CopyVirtualDisk_TaskBody{}
	format, fault := m.copyFormat(req)
	if fault != nil {
		body.Fault_ = simulator.Fault(fmt.Sprintf("%T", fault), fault)
		return body
	}
	task := m.lab.startTask(ctx, m.Self, "copyVirtualDisk", func(t *labTask) (types.AnyType, types.BaseMethodFault) {
		return nil, m.copyDisk(t, req, format)
	})
	body.Res = &types.CopyVirtualDisk_TaskResponse{Returnval: task}
	return body
}

// copyFormat returns the format of the copy. A vCenter does not implement destSpec (govmomi issues 1036
// and 3758); without destSpec the disk is preallocated.
func (m *diskManager) copyFormat(req *types.CopyVirtualDisk_Task) (string, types.BaseMethodFault) {
	if req.DestSpec == nil { // the default of the API
		return "thick", nil
	}
	if m.lab.cfg.VCenter {
		return "", &types.NotImplemented{}
	}
	formats := map[string]string{"thin": "thin", "preallocated": "thick", "thick": "thick", "eagerZeroedThick": "eagerzeroedthick"}
	if f := formats[req.DestSpec.GetVirtualDiskSpec().DiskType]; f != "" {
		return f, nil
	}
	return "", &types.InvalidArgument{InvalidProperty: "destSpec.diskType"}
}

// copyDisk copies a disk and shows its progress in the task. Copying a disk to itself does nothing.
func (m *diskManager) copyDisk(t *labTask, req *types.CopyVirtualDisk_Task, format string) types.BaseMethodFault {
	src, err := parseVolumePath(req.SourceName)
	if err != nil {
		return &types.InvalidDatastorePath{DatastorePath: req.SourceName}
	}
	dst, err := parseVolumePath(req.DestName)
	if err != nil {
		return &types.InvalidDatastorePath{DatastorePath: req.DestName}
	}
	if src == dst { // nothing to copy
		return nil
	}
	host, fault := m.findHost(req, dst)
	if fault != nil {
		return fault
	}
	ctx, done := t.watchCancel()
	defer done()
	c, err := m.lab.newClone(host, src, dst, format, t.showProgress)
	if err == nil {
		err = c.copyFiles(ctx)
	}
	if err != nil {
		m.lab.cfg.Log.Debug("copy disk", "disk", src.String(), "err", err)
	}
	return copyFault(src, dst, err)
}

// findHost returns a host that has mounted the destination, in the requested datacenter.
func (m *diskManager) findHost(req *types.CopyVirtualDisk_Task, dst volumePath) (host types.ManagedObjectReference, _ types.BaseMethodFault) {
	for _, n := range m.lab.nasMounts.mountsOf(host) {
		dc := m.lab.hostDatacenter(n.host)
		if n.spec.LocalPath == dst.datastore && dc != nil && (req.DestDatacenter == nil || *req.DestDatacenter == dc.ref) {
			return n.host, nil
		}
	}
	for _, dc := range m.lab.datacenters {
		if dc.findDatastore(dst.datastore) != nil {
			return host, &types.NotSupported{} // the emulator's datastores are read-only
		}
	}
	return host, &types.InvalidDatastore{Name: dst.datastore}
}

// copyFault returns the fault for an error of a copy, or nil.
func copyFault(src, dst volumePath, err error) types.BaseMethodFault {
	from, to := types.FileFault{File: src.String()}, types.FileFault{File: dst.String()}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errExists):
		return &types.FileAlreadyExists{FileFault: to}
	case errors.Is(err, errNoSource):
		return &types.FileNotFound{FileFault: from}
	case errors.Is(err, errInUse): // a running VM writes to the source
		return &types.FileLocked{FileFault: from}
	case errors.Is(err, errKilled): // the client canceled the task
		return &types.RequestCanceled{}
	case nfsclient.StatusOf(err) == nfsclient.ErrNoSpc:
		return &types.NoDiskSpace{FileFault: to, Datastore: dst.datastore}
	}
	return &to
}
