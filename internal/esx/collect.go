package esx

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/decamp/decamp/internal/inventory"
)

// wanted lists, per type of object, the properties that the inventory is made of.
var wanted = map[string][]string{
	"Datacenter":                  {"name", "parent"},
	"Folder":                      {"name", "parent"},
	"VirtualApp":                  {"name", "parent", "parentFolder"},
	"ClusterComputeResource":      {"name"},
	"DistributedVirtualPortgroup": {"name"},
	"Datastore":                   {"name", "parent", "summary", "host"},
	"HostSystem": {"name", "parent", "runtime.connectionState", "runtime.inMaintenanceMode",
		"config.product", "config.virtualNicManagerInfo"},
	"VirtualMachine": {"name", "parent", "parentVApp", "runtime", "guest.toolsRunningStatus", "layoutEx", "snapshot",
		"config.uuid", "config.instanceUuid", "config.template", "config.guestId", "config.guestFullName",
		"config.version", "config.annotation", "config.hardware", "config.firmware", "config.bootOptions",
		"config.keyId", "config.changeTrackingEnabled", "config.files", "config.extraConfig", "config.managedBy",
		"customValue"},
}

// places are the types that inventory paths are made of.
var places = []string{"Datacenter", "Folder", "VirtualApp"}

// tree is the inventory as one collector round gave it.
type tree struct {
	root       types.ManagedObjectReference
	nodes      map[types.ManagedObjectReference]node
	vms        []mo.VirtualMachine
	hosts      map[types.ManagedObjectReference]mo.HostSystem
	datastores map[types.ManagedObjectReference]mo.Datastore
	portgroups map[string]string // name by key
	clusters   map[types.ManagedObjectReference]string
}

// node is an element of inventory paths.
type node struct {
	name   string // escaped, as paths are written
	parent *types.ManagedObjectReference
}

// readAll reads all objects of the given types in one view and one retrieval, whatever
// their number: per-object calls are what makes inventories of thousands hang.
func (s *inventoryReader) readAll(ctx context.Context, kinds ...string) (*tree, error) {
	return s.readAllProperties(ctx, wanted, kinds...)
}

// readAllProperties is collect with other properties: those of each type that only names.
func (s *inventoryReader) readAllProperties(ctx context.Context, only map[string][]string, kinds ...string) (*tree, error) {
	view, err := s.createView(ctx, kinds...)
	if err != nil {
		return nil, err
	}
	defer s.destroyView(ctx, view)
	return s.readTree(ctx, viewSpec(view, only, kinds))
}

// createView is one of all objects of the given types.
func (s *inventoryReader) createView(ctx context.Context, kinds ...string) (types.ManagedObjectReference, error) {
	content := s.vim.ServiceContent
	res, err := methods.CreateContainerView(ctx, s, &types.CreateContainerView{
		This: *content.ViewManager, Container: content.RootFolder, Type: kinds, Recursive: true,
	})
	if err != nil {
		return types.ManagedObjectReference{}, classify(err)
	}
	return res.Returnval, nil
}

// readTree makes a tree of what one filter selects.
func (s *inventoryReader) readTree(ctx context.Context, spec types.PropertyFilterSpec) (*tree, error) {
	content := s.vim.ServiceContent
	objects, err := mo.RetrievePropertiesEx(ctx, s, types.RetrievePropertiesEx{
		This: content.PropertyCollector, SpecSet: []types.PropertyFilterSpec{spec},
	})
	if err != nil {
		return nil, classify(err)
	}
	t := newTree(content.RootFolder)
	return t, t.addAll(objects)
}

// destroyView drops the view. It would end with the session anyway.
func (s *inventoryReader) destroyView(ctx context.Context, view types.ManagedObjectReference) {
	_, err := methods.DestroyView(context.WithoutCancel(ctx), s.soap, &types.DestroyView{This: view})
	if err != nil {
		s.cfg.Log.Debug("destroy view", "host", s.end.addr, "err", err)
	}
}

func viewSpec(view types.ManagedObjectReference, only map[string][]string, kinds []string) types.PropertyFilterSpec {
	spec := types.PropertyFilterSpec{ObjectSet: []types.ObjectSpec{{
		Obj:       view,
		Skip:      types.NewBool(true),
		SelectSet: []types.BaseSelectionSpec{&types.TraversalSpec{Type: view.Type, Path: "view"}},
	}}}
	for _, k := range kinds {
		spec.PropSet = append(spec.PropSet, types.PropertySpec{Type: k, PathSet: only[k]})
	}
	return spec
}

func newTree(root types.ManagedObjectReference) *tree {
	return &tree{
		root:       root,
		nodes:      map[types.ManagedObjectReference]node{},
		hosts:      map[types.ManagedObjectReference]mo.HostSystem{},
		datastores: map[types.ManagedObjectReference]mo.Datastore{},
		portgroups: map[string]string{},
		clusters:   map[types.ManagedObjectReference]string{},
	}
}

func (t *tree) addAll(objects []types.ObjectContent) error {
	for _, o := range objects {
		if err := sessionEnded(o); err != nil {
			return classify(err)
		}
		o.MissingSet = nil // a property that is not there is a zero field
		object, err := mo.ObjectContentToType(o)
		if err != nil {
			return fmt.Errorf("read %s %s: %w", o.Obj.Type, o.Obj.Value, err)
		}
		t.addObject(object)
	}
	return nil
}

// sessionEnded returns the error if properties are missing because the session ended: some
// servers tell it this way. Others are missing for one object's own reasons.
func sessionEnded(o types.ObjectContent) error {
	for _, p := range o.MissingSet {
		if err := soap.WrapVimFault(p.Fault.Fault); isSessionEnded(err) {
			return err
		}
	}
	return nil
}

func (t *tree) addObject(object any) {
	switch o := object.(type) {
	case mo.Datacenter:
		t.nodes[o.Self] = node{o.Name, o.Parent}
	case mo.Folder:
		t.nodes[o.Self] = node{o.Name, o.Parent}
	case mo.VirtualApp:
		parent := o.ParentFolder
		if parent == nil {
			parent = o.Parent // an app within an app
		}
		t.nodes[o.Self] = node{o.Name, parent}
	case mo.ClusterComputeResource:
		t.clusters[o.Self] = unescapeName(o.Name)
	case mo.DistributedVirtualPortgroup:
		t.portgroups[o.Self.Value] = unescapeName(o.Name)
	case mo.Datastore:
		t.datastores[o.Self] = o
	case mo.HostSystem:
		t.hosts[o.Self] = o
	case mo.VirtualMachine:
		t.vms = append(t.vms, o)
	}
}

// locate walks up from an object's parent. It returns the inventory path of the
// datacenter and that of the folder within the datacenter's own vm, datastore or host
// folder; both as VMware writes them, with / in a name as %2f.
func (t *tree) locate(parent *types.ManagedObjectReference) (datacenter, folder string) {
	var up []string
	for ; parent != nil && *parent != t.root; parent = t.nodes[*parent].parent {
		n, ok := t.nodes[*parent]
		if !ok {
			break // not ours to see
		}
		if parent.Type == "Datacenter" {
			folder, up = strings.Join(withoutRoot(up), "/"), nil
		}
		up = append([]string{n.name}, up...)
	}
	return strings.Join(up, "/"), folder
}

// withoutRoot drops the datacenter's own folder ("vm"), which every path has.
func withoutRoot(path []string) []string {
	if len(path) == 0 {
		return nil
	}
	return path[1:]
}

// clusterOf is the name of the cluster that a host is in; "" where it is in none.
func (t *tree) clusterOf(h mo.HostSystem) string {
	if h.Parent == nil {
		return ""
	}
	return t.clusters[*h.Parent]
}

// Hosts lists the ESXi hosts, sorted by name.
func (s *inventoryReader) Hosts(ctx context.Context) ([]inventory.Host, error) {
	t, err := s.readAll(ctx, "HostSystem")
	if err != nil {
		return nil, fmt.Errorf("list hosts of %s: %w", s.end.addr, err)
	}
	var out []inventory.Host
	for _, h := range t.hosts {
		out = append(out, s.toHost(h))
	}
	slices.SortFunc(out, func(a, b inventory.Host) int { return byName(a.Name, b.Name, a.Ref, b.Ref) })
	return out, nil
}

func (s *inventoryReader) toHost(h mo.HostSystem) inventory.Host {
	out := inventory.Host{
		Ref:             inventory.MoRef(h.Self.Value),
		Name:            unescapeName(h.Name),
		MaintenanceMode: h.Runtime.InMaintenanceMode,
		Connected:       h.Runtime.ConnectionState == types.HostSystemConnectionStateConnected,
	}
	if c := h.Config; c != nil {
		out.Version, out.Build = c.Product.Version, c.Product.Build
	}
	out.Address = s.end.host
	if s.about.VCenter {
		out.Address = managementAddress(h)
	}
	s.logInvalid(out.Name, out.RemoveInvalid())
	return out
}

// logInvalid logs values that were removed from something that has no warnings.
func (s *inventoryReader) logInvalid(name string, problems []string) {
	for _, p := range problems {
		s.cfg.Log.Warn("the source reports an invalid value", "host", s.end.addr, "name", name, "err", p)
	}
}

// managementAddress returns the address of the first NIC selected for management
// traffic, or "".
func managementAddress(h mo.HostSystem) string {
	if h.Config == nil || h.Config.VirtualNicManagerInfo == nil {
		return ""
	}
	for _, net := range h.Config.VirtualNicManagerInfo.NetConfig {
		if net.NicType != string(types.HostVirtualNicManagerNicTypeManagement) {
			continue
		}
		for _, nic := range net.CandidateVnic {
			if slices.Contains(net.SelectedVnic, nic.Key) && nic.Spec.Ip != nil {
				return nic.Spec.Ip.IpAddress
			}
		}
	}
	return ""
}

// Datastores lists the datastores, sorted by name.
func (s *inventoryReader) Datastores(ctx context.Context) ([]inventory.Datastore, error) {
	t, err := s.readAll(ctx, append([]string{"Datastore"}, places...)...)
	if err != nil {
		return nil, fmt.Errorf("list datastores of %s: %w", s.end.addr, err)
	}
	var out []inventory.Datastore
	for _, d := range t.datastores {
		ds := t.toDatastore(d)
		s.logInvalid(ds.Name, ds.RemoveInvalid())
		out = append(out, ds)
	}
	slices.SortFunc(out, func(a, b inventory.Datastore) int { return byName(a.Name, b.Name, a.Ref, b.Ref) })
	return out, nil
}

func (t *tree) toDatastore(d mo.Datastore) inventory.Datastore {
	out := inventory.Datastore{
		Ref:      inventory.MoRef(d.Self.Value),
		Name:     unescapeName(d.Name),
		Type:     d.Summary.Type,
		Capacity: d.Summary.Capacity,
		Free:     d.Summary.FreeSpace,

		Inaccessible: !d.Summary.Accessible,
		Maintenance:  underMaintenance(d.Summary.MaintenanceMode),
	}
	out.Datacenter, _ = t.locate(d.Parent)
	for _, m := range d.Host {
		out.Hosts = append(out.Hosts, inventory.MoRef(m.Key.Value))
	}
	return out
}

// underMaintenance reads a datastore's state; a host says nothing of it.
func underMaintenance(state string) bool {
	return state != "" && state != string(types.DatastoreSummaryMaintenanceModeStateNormal)
}

func byName(a, b string, aRef, bRef inventory.MoRef) int {
	if c := strings.Compare(a, b); c != 0 {
		return c
	}
	return strings.Compare(string(aRef), string(bRef))
}
