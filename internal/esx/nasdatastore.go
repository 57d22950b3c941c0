package esx

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// NAS is an NFS version 3 export that a host mounts as a datastore. Two hosts share a
// datastore only if Server and Path are the same strings on both.
type NAS struct {
	Server string // address of the NFS server
	Path   string // exported path
	Name   string // name of the datastore, at most 42 characters
}

// MountNAS mounts an export on a host, and returns the name of the datastore. If the
// host had mounted the export before, mounted is false, and the name may differ from
// the wanted one. The port cannot be chosen: hosts query the server's port mapper on
// port 111.
func (s *hostController) MountNAS(ctx context.Context, host inventory.MoRef, n NAS) (name string, mounted bool, err error) {
	res, err := s.createNAS(ctx, host, n)
	switch f := vimFault(err).(type) {
	// The fault contains the name under which the export is mounted.
	case *types.AlreadyExists:
		return f.Name, false, nil
	case *types.DuplicateName:
		if err = s.isNAS(ctx, host, n, err); err == nil {
			return n.Name, false, nil
		}
	}
	if err != nil {
		return "", false, fmt.Errorf("mount %s:%s on host %s: %w", n.Server, n.Path, host, classify(err))
	}
	s.cfg.Log.Info("datastore mounted", "host", host, "server", n.Server, "path", n.Path, "datastore", n.Name, "ref", res.Returnval.Value)
	return n.Name, true, nil
}

// isNAS returns nil if the existing datastore with n's name is n, else fault.Conflict.
// It is undocumented which of two faults a host returns for an export that is mounted
// already.
func (s *hostController) isNAS(ctx context.Context, host inventory.MoRef, n NAS, duplicate error) error {
	var h mo.HostSystem
	if err := s.readProperties(ctx, moRef("HostSystem", host), &h, "datastore"); err != nil {
		return err
	}
	_, info, err := s.nasCalled(ctx, h.Datastore, n.Name)
	if err != nil {
		return err
	}
	if info != nil && n.isMountedAs(info) {
		return nil
	}
	return fault.New(fault.Conflict, "the host already has a datastore %s: %w", n.Name, duplicate).
		WithHint("remove it from the host, or use another name")
}

// isMountedAs reports whether a datastore has the server and path of n. Its name does
// not matter.
func (n NAS) isMountedAs(info *types.NasDatastoreInfo) bool {
	return info.Nas != nil && info.Nas.RemoteHost == n.Server && info.Nas.RemotePath == n.Path
}

// createNAS calls CreateNasDatastore for NFS version 3, read-write.
func (s *hostController) createNAS(ctx context.Context, host inventory.MoRef, n NAS) (*types.CreateNasDatastoreResponse, error) {
	system, err := s.datastoreSystem(ctx, host)
	if err != nil {
		return nil, err
	}
	return methods.CreateNasDatastore(ctx, s, &types.CreateNasDatastore{
		This: system,
		Spec: types.HostNasVolumeSpec{
			RemoteHost: n.Server, RemotePath: n.Path, LocalPath: n.Name,
			AccessMode: string(types.HostMountModeReadWrite), Type: string(types.HostFileSystemVolumeFileSystemTypeNFS),
		},
	})
}

// UnmountNAS removes a datastore from a host. It deletes nothing on the server. It
// returns nil if the datastore does not exist, or if the name belongs to another server
// or path. A datastore with open files is fault.Conflict.
func (s *hostController) UnmountNAS(ctx context.Context, host inventory.MoRef, n NAS) error {
	if err := s.removeNAS(ctx, host, n); err != nil {
		return fmt.Errorf("unmount datastore %s of host %s: %w", n.Name, host, classify(err))
	}
	return nil
}

// removeNAS does the work of UnmountNAS. It compares server and path before it removes
// a datastore, because the user may have reused the name for another export.
func (s *hostController) removeNAS(ctx context.Context, host inventory.MoRef, n NAS) error {
	var h mo.HostSystem
	if err := s.readProperties(ctx, moRef("HostSystem", host), &h, "datastore", "configManager.datastoreSystem"); err != nil {
		return err
	}
	// The datastore is identified by its name, then compared by server and path: the
	// user may have given the name to another export.
	ds, info, err := s.nasCalled(ctx, h.Datastore, n.Name)
	if err != nil || info == nil {
		return err
	}
	if !n.isMountedAs(info) {
		s.cfg.Log.Info("another datastore has that name", "host", host, "datastore", n.Name)
		return nil
	}
	_, err = methods.RemoveDatastore(ctx, s, &types.RemoveDatastore{This: *h.ConfigManager.DatastoreSystem, Datastore: ds})
	switch vimFault(err).(type) {
	case *types.NotFound, *types.ManagedObjectNotFound:
		return nil // another client removed it
	case *types.ResourceInUse:
		return fault.New(fault.Conflict, "%w", err).WithHint("a process on the host has a file of it open: wait until it ends, or end it, and run the command again")
	}
	return err
}

// nasCalled returns the NFS datastore with that name among those of a host. The info is
// nil if there is none. Datastores of other kinds are ignored.
func (s *hostController) nasCalled(ctx context.Context, list []types.ManagedObjectReference, name string) (types.ManagedObjectReference, *types.NasDatastoreInfo, error) {
	for _, ref := range list {
		var ds mo.Datastore
		if err := s.readProperties(ctx, ref, &ds, "name", "info"); err != nil {
			return ref, nil, err
		}
		if info, nas := ds.Info.(*types.NasDatastoreInfo); nas && unescapeName(ds.Name) == name {
			return ref, info, nil
		}
	}
	return types.ManagedObjectReference{}, nil, nil
}

// Mounts returns the NFS exports that a host has mounted, sorted by the name of the
// datastore.
func (s *hostController) Mounts(ctx context.Context, host inventory.MoRef) ([]inventory.Mount, error) {
	list, err := s.readMounts(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("list NFS mounts of host %s: %w", host, classify(err))
	}
	return list, nil
}

// readMounts reads all datastores of the host in one call.
func (s *hostController) readMounts(ctx context.Context, host inventory.MoRef) (list []inventory.Mount, err error) {
	var h mo.HostSystem
	if err := s.readProperties(ctx, moRef("HostSystem", host), &h, "datastore"); err != nil {
		return nil, err
	}
	if len(h.Datastore) == 0 {
		return nil, nil
	}
	spec := types.PropertyFilterSpec{PropSet: []types.PropertySpec{{Type: "Datastore", PathSet: []string{"name", "info"}}}}
	for _, ref := range h.Datastore {
		spec.ObjectSet = append(spec.ObjectSet, types.ObjectSpec{Obj: ref})
	}
	t, err := s.readTree(ctx, spec)
	if err != nil {
		return nil, err
	}
	for _, ds := range t.datastores {
		if info, nas := ds.Info.(*types.NasDatastoreInfo); nas && info.Nas != nil {
			list = append(list, inventory.Mount{Datastore: unescapeName(ds.Name), Server: info.Nas.RemoteHost, Path: info.Nas.RemotePath})
		}
	}
	slices.SortFunc(list, func(a, b inventory.Mount) int { return strings.Compare(a.Datastore, b.Datastore) })
	return list, nil
}

// datastoreSystem returns the manager object for datastores of a host.
func (s *hostController) datastoreSystem(ctx context.Context, host inventory.MoRef) (types.ManagedObjectReference, error) {
	var h mo.HostSystem
	if err := s.readProperties(ctx, moRef("HostSystem", host), &h, "configManager.datastoreSystem"); err != nil {
		return types.ManagedObjectReference{}, err
	}
	if h.ConfigManager.DatastoreSystem == nil {
		return types.ManagedObjectReference{}, errors.New("the host has no datastore system")
	}
	return *h.ConfigManager.DatastoreSystem, nil
}

// nasError maps the faults of a failed mount. It is undocumented which fault a host
// returns for which cause, so each remedy lists the likely causes.
func nasError(f types.BaseMethodFault, err error) error {
	const open = "check that the host reaches this machine on TCP 111 and 2049 (vmkping, nc -z), and that no firewall of this machine rejects them"
	switch f.(type) {
	case *types.NetworkInaccessible, *types.NasVolumeNotMounted:
		return fault.New(fault.Unreachable, "%w", err).WithHint(open)
	case *types.InvalidNetworkResource:
		return fault.New(fault.NotFound, "%w", err).WithHint("the NFS server does not export that path, or the host cannot reach it: %s", open)
	case *types.NoPermissionOnNasVolume:
		return fault.New(fault.Denied, "%w", err).WithHint("the NFS server does not permit this host")
	case *types.NasConnectionLimitReached:
		return fault.New(fault.Full, "%w", err).WithHint("the host already mounts the maximum number of NFS datastores: remove one, or raise NFS.MaxVolumes")
	}
	return fault.New(fault.Conflict, "%w", err).WithHint("see the host's vobd.log and vmkernel.log")
}

// HostAddresses returns the addresses from which a host's VMkernel may connect. For a
// direct session the first is the address of the session.
func (s *hostController) HostAddresses(ctx context.Context, host inventory.MoRef) ([]netip.Addr, error) {
	var h mo.HostSystem
	if err := s.readProperties(ctx, moRef("HostSystem", host), &h, "config.network"); err != nil {
		return nil, fmt.Errorf("list addresses of host %s: %w", host, classify(err))
	}
	var list []netip.Addr
	if !s.about.VCenter {
		// The address of the session is the most likely source address of the host's
		// NFS client.
		own, err := net.DefaultResolver.LookupNetIP(ctx, "ip", s.end.host)
		if err != nil {
			return nil, classify(err)
		}
		list = own
	}
	if h.Config != nil && h.Config.Network != nil {
		for _, nic := range h.Config.Network.Vnic {
			if nic.Spec.Ip == nil {
				continue
			}
			if addr, err := netip.ParseAddr(nic.Spec.Ip.IpAddress); err == nil {
				list = append(list, addr)
			}
		}
	}
	return list, nil
}
