package vsphere

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/view"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vim25/xml"
)

// allPropertiesFilter returns a filter with many kinds of properties and paths.
func allPropertiesFilter(root types.ManagedObjectReference) types.PropertyFilterSpec {
	child := &types.TraversalSpec{SelectionSpec: types.SelectionSpec{Name: "down"}, Type: "Folder", Path: "childEntity"}
	again := []types.BaseSelectionSpec{&types.SelectionSpec{Name: "down"}}
	for _, path := range []string{"vmFolder", "hostFolder", "datastoreFolder", "networkFolder", "host", "vm", "snapshot.currentSnapshot", "nothing"} {
		child.SelectSet = append(child.SelectSet, &types.TraversalSpec{Path: path, SelectSet: again})
	}
	child.SelectSet = append(child.SelectSet, again...)
	return types.PropertyFilterSpec{
		ObjectSet: []types.ObjectSpec{{Obj: root, SelectSet: []types.BaseSelectionSpec{child}}},
		PropSet: []types.PropertySpec{
			{Type: "ManagedEntity", PathSet: []string{"name", "parent", "overallStatus", "declaredAlarmState", "effectiveRole"}},
			{Type: "ComputeResource", PathSet: []string{"host", "summary", "host.nothing"}},
			{Type: "Datastore", PathSet: []string{"info", "summary", "host", "info.name", "summary.accessible"}},
			{Type: "HostSystem", PathSet: []string{"config", "runtime.connectionState", "hardware.systemInfo", "summary.managementServerIp"}},
			{Type: "VirtualMachine", PathSet: []string{"config", "config.hardware.device", "config.extraConfig", "config.template", "config.uuid",
				"config.nothing", "guest", "layoutEx", "runtime.powerState", "runtime.host", "runtime.bootTime", "snapshot", "summary.storage.committed",
				"summary.config.numVirtualDisks", "datastore", "network", "parentVApp", "config.bootOptions.bootOrder"}},
		},
	}
}

// The collector returns exactly the same objects as the simulator.
func TestCollectorMatchesTheSimulator(t *testing.T) {
	for _, vcenter := range []bool{false, true} {
		l := startLab(t, Config{VCenter: vcenter, VMs: []VM{
			{Name: "a", Disks: []Disk{{Capacity: 1 << 20}, {Capacity: 1 << 20, Thick: true}}, NICs: []NIC{{}}, Snapshots: []string{"s"}},
			{Name: "b", PoweredOn: true, Firmware: "efi", ExtraConfig: map[string]string{"a": "b"}, Annotation: "<&>"},
		}})
		ctx := l.newContext()
		ctx.Session = &simulator.Session{Registry: simulator.NewRegistry(), Map: ctx.Map}
		req := &types.RetrievePropertiesEx{SpecSet: []types.PropertyFilterSpec{allPropertiesFilter(l.model.ServiceContent.RootFolder)}}
		got := marshalObjects(t, new(collector).RetrievePropertiesEx(ctx, req))
		want := marshalObjects(t, new(simulator.PropertyCollector).RetrievePropertiesEx(ctx, req))
		if len(got) < 10_000 || !bytes.Equal(got, want) {
			t.Errorf("vcenter %v: got\n%.3000s\nwant\n%.3000s", vcenter, got, want)
		}
	}
}

// marshalObjects returns the objects of a reply as XML, one per line, sorted by reference.
func marshalObjects(t *testing.T, body soap.HasFault) []byte {
	t.Helper()
	res := body.(*methods.RetrievePropertiesExBody).Res.Returnval
	slices.SortFunc(res.Objects, func(a, b types.ObjectContent) int { return cmp.Compare(a.Obj.String(), b.Obj.String()) })
	var all []byte
	for _, o := range res.Objects {
		text, err := xml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		all = append(append(all, text...), '\n')
	}
	return all
}

// A reply does not change if its object changes later.
func TestRepliesAreCopies(t *testing.T) {
	l := startLab(t, Config{VMs: []VM{{Name: "a", Annotation: "before"}}})
	ctx := l.newContext()
	ctx.Session = &simulator.Session{Registry: simulator.NewRegistry(), Map: ctx.Map}
	vm := ctx.Map.Any("VirtualMachine").(*simulator.VirtualMachine)
	body := new(collector).RetrievePropertiesEx(ctx, &types.RetrievePropertiesEx{SpecSet: []types.PropertyFilterSpec{{
		ObjectSet: []types.ObjectSpec{{Obj: vm.Self}}, PropSet: []types.PropertySpec{{Type: "VirtualMachine", PathSet: []string{"config", "config.hardware"}}},
	}}})
	before := marshalObjects(t, body)
	vm.Config.Annotation = "after"
	for _, d := range vm.Config.Hardware.Device {
		d.GetVirtualDevice().Key += 1000
	}
	if after := marshalObjects(t, body); !bytes.Equal(before, after) || !bytes.Contains(after, []byte("before")) {
		t.Errorf("the reply changed with its object:\n%.2000s", after)
	}
}

// A page is read when the client requests it. A token is valid once, and only in its session.
func TestPagesOfAReply(t *testing.T) {
	cfg := Config{VCenter: true}
	for i := range 25 {
		cfg.VMs = append(cfg.VMs, VM{Name: fmt.Sprintf("vm%02d", i)})
	}
	l := startLab(t, cfg)
	c, other := login(t, l), login(t, l)
	ctx := context.Background()
	first, err := methods.RetrievePropertiesEx(ctx, c, &types.RetrievePropertiesEx{
		This: c.ServiceContent.PropertyCollector, SpecSet: []types.PropertyFilterSpec{namesOfVMs(t, c.Client)}, Options: types.RetrieveOptions{MaxObjects: 10},
	})
	if err != nil {
		t.Fatal(err)
	}
	renameVM(t, c.Client, "vm24", "new name") // the simulator lists VMs in the order of creation
	var names []string
	var sizes []int
	for page := *first.Returnval; ; {
		sizes = append(sizes, len(page.Objects))
		for _, o := range page.Objects {
			names = append(names, o.PropSet[0].Val.(string))
		}
		if page.Token == "" {
			break
		}
		request := &types.ContinueRetrievePropertiesEx{This: c.ServiceContent.PropertyCollector, Token: page.Token}
		if _, err := methods.ContinueRetrievePropertiesEx(ctx, other, request); err == nil {
			t.Error("another session can continue the reply")
		}
		next, err := methods.ContinueRetrievePropertiesEx(ctx, c, request)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := methods.ContinueRetrievePropertiesEx(ctx, c, request); err == nil {
			t.Error("the token was accepted twice")
		}
		page = next.Returnval
	}
	slices.Sort(names)
	if !slices.Equal(sizes, []int{10, 10, 5}) || len(slices.Compact(names)) != 25 || names[0] != "new name" {
		t.Errorf("pages of %v: %v", sizes, names)
	}
}

// namesOfVMs returns a filter for the names of all VMs.
func namesOfVMs(t *testing.T, c *vim25.Client) types.PropertyFilterSpec {
	t.Helper()
	v, err := view.NewManager(c).CreateContainerView(context.Background(), c.ServiceContent.RootFolder, []string{"VirtualMachine"}, true)
	if err != nil {
		t.Fatal(err)
	}
	return types.PropertyFilterSpec{
		ObjectSet: []types.ObjectSpec{{Obj: v.Reference(), Skip: types.NewBool(true), SelectSet: []types.BaseSelectionSpec{&types.TraversalSpec{Type: "ContainerView", Path: "view"}}}},
		PropSet:   []types.PropertySpec{{Type: "VirtualMachine", PathSet: []string{"name"}}},
	}
}

func renameVM(t *testing.T, c *vim25.Client, vm, to string) {
	t.Helper()
	ref := allVMs(t, c)[vm].Self
	task, err := object.NewVirtualMachine(c, ref).Rename(context.Background(), to)
	if err == nil {
		err = task.Wait(context.Background())
	}
	if err != nil {
		t.Fatal(err)
	}
}
