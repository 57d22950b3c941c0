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

// wanted lists, per object type, the properties that the inventory needs.
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

// places lists the object types that inventory paths consist of.
var places = []string{"Datacenter", "Folder", "VirtualApp"}

// tree contains the objects of one retrieval, by their references.
type tree struct {
	root       types.ManagedObjectReference                   // root folder of the server; paths end below it
	nodes      map[types.ManagedObjectReference]node          // elements of inventory paths
	vms        []mo.VirtualMachine                            // VMs in the server's order
	hosts      map[types.ManagedObjectReference]mo.HostSystem // ESXi hosts
	datastores map[types.ManagedObjectReference]mo.Datastore  // datastores, for the kind of a disk's backing
	portgroups map[string]string                              // names of distributed port groups by their keys
	clusters   map[types.ManagedObjectReference]string        // names of clusters
}

// node is one element of an inventory path.
type node struct {
	name   string                        // escaped name, in the form used in paths
	parent *types.ManagedObjectReference // parent in the inventory; nil for the root
}

// readAll reads all objects of the given types with one view and one retrieval. One
// call per object would take minutes for an inventory of thousands of VMs.
func (s *inventoryReader) readAll(ctx context.Context, kinds ...string) (*tree, error) {
	return s.readAllProperties(ctx, wanted, kinds...)
}

// readAllProperties is readAll for the properties in only, which lists them by object
// type.
func (s *inventoryReader) readAllProperties(ctx context.Context, only map[string][]string, kinds ...string) (*tree, error) {
	view, err := s.createView(ctx, kinds...)
	if err != nil {
		return nil, err
	}
	defer s.destroyView(ctx, view)
	return s.readTree(ctx, viewSpec(view, only, kinds))
}

// createView creates a container view of all objects of the given types. The caller
// must destroy it with destroyView.
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

// readTree returns a tree of the objects that one filter selects.
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

// destroyView removes a view from the server. An error is only logged, since a view
// ends with its session. It also runs after ctx ended.
func (s *inventoryReader) destroyView(ctx context.Context, view types.ManagedObjectReference) {
	// s.soap does not renew the session: a view of an ended session no longer exists.
	_, err := methods.DestroyView(context.WithoutCancel(ctx), s.soap, &types.DestroyView{This: view})
	if err != nil {
		s.cfg.Log.Debug("destroy view", "host", s.end.addr, "err", err)
	}
}

// viewSpec returns a filter for the properties in only of all objects in a view.
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

// newTree returns an empty tree with the given root folder.
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

// addAll adds objects to the tree. It fails if the session ended during the retrieval.
// Properties that the server does not return leave zero fields.
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

// sessionEnded returns an error if the properties of o are missing because the session
// ended. Some servers report an ended session only in this way. Properties that are
// missing for another reason are not an error.
func sessionEnded(o types.ObjectContent) error {
	for _, p := range o.MissingSet {
		if err := soap.WrapVimFault(p.Fault.Fault); isSessionEnded(err) {
			return err
		}
	}
	return nil
}

// addObject adds one object. Objects of other types are ignored.
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

// locate follows parents from an object up to the root. It returns the inventory path
// of the datacenter, and the folder below the datacenter's vm, datastore or host
// folder. Both use VMware's escapes: / in a name is %2f. If the user may not see a
// parent, the path starts below it.
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

// withoutRoot removes the first element, the datacenter's own folder such as "vm",
// which is in each path.
func withoutRoot(path []string) []string {
	if len(path) == 0 {
		return nil
	}
	return path[1:]
}

// clusterOf returns the name of the cluster of a host, or "" for a standalone host.
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

// toHost converts a host. Its address is the address of the session for a direct
// connection to ESXi, and the management address for a vCenter. Invalid values are
// removed and logged.
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
	// A host that is managed by a vCenter has an address of its management network;
	// otherwise the session's address is known to work.
	if s.about.VCenter {
		out.Address = managementAddress(h)
	}
	s.logInvalid(out.Name, out.RemoveInvalid())
	return out
}

// logInvalid logs values that were removed from an object. VMs have warnings for this;
// hosts and datastores do not.
func (s *inventoryReader) logInvalid(name string, problems []string) {
	for _, p := range problems {
		s.cfg.Log.Warn("the source reports an invalid value", "host", s.end.addr, "name", name, "err", p)
	}
}

// managementAddress returns the address of the first VMkernel interface selected for
// management traffic, or "" if the host reports none.
func managementAddress(h mo.HostSystem) string {
	if h.Config == nil || h.Config.VirtualNicManagerInfo == nil {
		return ""
	}
	// A host may have several management interfaces; the first selected one counts.
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

// toDatastore converts a datastore. Its nodes must contain the datastore's parents.
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

// underMaintenance reports whether a datastore is in or entering maintenance mode. An
// ESXi host without vCenter reports no state.
func underMaintenance(state string) bool {
	return state != "" && state != string(types.DatastoreSummaryMaintenanceModeStateNormal)
}

// byName compares by name, then by reference, so that the order is stable.
func byName(a, b string, aRef, bRef inventory.MoRef) int {
	if c := strings.Compare(a, b); c != 0 {
		return c
	}
	return strings.Compare(string(aRef), string(bRef))
}
