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

// asked is a filter of all that people ask for, in all the ways that paths have.
func asked(root types.ManagedObjectReference) types.PropertyFilterSpec {
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

// The collector answers what the simulator does, to the letter.
func TestCollectorAnswersAsTheSimulatorDoes(t *testing.T) {
	for _, vcenter := range []bool{false, true} {
		l := start(t, Config{VCenter: vcenter, VMs: []VM{
			{Name: "a", Disks: []Disk{{Capacity: 1 << 20}, {Capacity: 1 << 20, Thick: true}}, NICs: []NIC{{}}, Snapshots: []string{"s"}},
			{Name: "b", PoweredOn: true, Firmware: "efi", ExtraConfig: map[string]string{"a": "b"}, Annotation: "<&>"},
		}})
		ctx := l.newContext()
		ctx.Session = &simulator.Session{Registry: simulator.NewRegistry(), Map: ctx.Map}
		req := &types.RetrievePropertiesEx{SpecSet: []types.PropertyFilterSpec{asked(l.model.ServiceContent.RootFolder)}}
		ours := answer(t, new(collector).RetrievePropertiesEx(ctx, req))
		theirs := answer(t, new(simulator.PropertyCollector).RetrievePropertiesEx(ctx, req))
		if len(ours) < 10_000 || !bytes.Equal(ours, theirs) {
			t.Errorf("vcenter %v: the collector answers\n%.3000s\nthe simulator\n%.3000s", vcenter, ours, theirs)
		}
	}
}

// answer is what goes over the wire, an object a line, in the order of their references.
func answer(t *testing.T, body soap.HasFault) []byte {
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

// What was answered stays what it was when its object changes.
func TestAnswersAreCopies(t *testing.T) {
	l := start(t, Config{VMs: []VM{{Name: "a", Annotation: "before"}}})
	ctx := l.newContext()
	ctx.Session = &simulator.Session{Registry: simulator.NewRegistry(), Map: ctx.Map}
	vm := ctx.Map.Any("VirtualMachine").(*simulator.VirtualMachine)
	body := new(collector).RetrievePropertiesEx(ctx, &types.RetrievePropertiesEx{SpecSet: []types.PropertyFilterSpec{{
		ObjectSet: []types.ObjectSpec{{Obj: vm.Self}}, PropSet: []types.PropertySpec{{Type: "VirtualMachine", PathSet: []string{"config", "config.hardware"}}},
	}}})
	before := answer(t, body)
	vm.Config.Annotation = "after"
	for _, d := range vm.Config.Hardware.Device {
		d.GetVirtualDevice().Key += 1000
	}
	if after := answer(t, body); !bytes.Equal(before, after) || !bytes.Contains(after, []byte("before")) {
		t.Errorf("an answer changed with its object:\n%.2000s", after)
	}
}

// Pages are read when they are asked for. A token is good once, and for its session.
func TestPagesOfAnAnswer(t *testing.T) {
	cfg := Config{VCenter: true}
	for i := range 25 {
		cfg.VMs = append(cfg.VMs, VM{Name: fmt.Sprintf("vm%02d", i)})
	}
	l := start(t, cfg)
	c, other := login(t, l), login(t, l)
	ctx := context.Background()
	first, err := methods.RetrievePropertiesEx(ctx, c, &types.RetrievePropertiesEx{
		This: c.ServiceContent.PropertyCollector, SpecSet: []types.PropertyFilterSpec{namesOfVMs(t, c.Client)}, Options: types.RetrieveOptions{MaxObjects: 10},
	})
	if err != nil {
		t.Fatal(err)
	}
	rename(t, c.Client, "vm24", "new name") // the simulator lists them as they were made
	var told []string
	var sizes []int
	for page := *first.Returnval; ; {
		sizes = append(sizes, len(page.Objects))
		for _, o := range page.Objects {
			told = append(told, o.PropSet[0].Val.(string))
		}
		if page.Token == "" {
			break
		}
		goOn := &types.ContinueRetrievePropertiesEx{This: c.ServiceContent.PropertyCollector, Token: page.Token}
		if _, err := methods.ContinueRetrievePropertiesEx(ctx, other, goOn); err == nil {
			t.Error("another session goes on with an answer")
		}
		next, err := methods.ContinueRetrievePropertiesEx(ctx, c, goOn)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := methods.ContinueRetrievePropertiesEx(ctx, c, goOn); err == nil {
			t.Error("a token is good twice")
		}
		page = next.Returnval
	}
	slices.Sort(told)
	if !slices.Equal(sizes, []int{10, 10, 5}) || len(slices.Compact(told)) != 25 || told[0] != "new name" {
		t.Errorf("pages of %v: %v", sizes, told)
	}
}

// namesOfVMs is a filter of all VMs there are.
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

func rename(t *testing.T, c *vim25.Client, vm, to string) {
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
