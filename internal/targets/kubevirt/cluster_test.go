package kubevirt

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/lab/kube"
	"github.com/decamp/decamp/internal/namemap"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/platform"
)

// start starts an emulated cluster, and returns a place in it. It makes progress each time it is looked at.
func start(t *testing.T, config kube.Config, change ...func(*address)) (*kube.Cluster, *Cluster) {
	t.Helper()
	lab := kube.Start(config)
	t.Cleanup(lab.Close)
	a := address{kubeconfig: write(t, lab.Kubeconfig()), Options: Options{Network: "multus:lan"}}
	for _, f := range change {
		f(&a)
	}
	c, err := newCluster(a)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // it cannot fail
	c.poll = time.Millisecond
	return lab, c
}

func write(t *testing.T, text []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// ram is a disk in memory, with holes where it has zeros.
type ram struct {
	content []byte
	bad     error // that reading it ends with
	open    *int  // how many are open
}

func (m ram) Size() int64 { return int64(len(m.content)) }

func (m ram) ReadAt(ctx context.Context, p []byte, off int64) error {
	copy(p, m.content[off:])
	return m.bad
}

func (m ram) Extents(_ context.Context, r disk.Range) (all []disk.Extent, err error) {
	const grain = 192 << 10 // so that extents begin and end within a step
	for off := r.Off; off < r.End(); {
		n := min(grain-off%grain, r.End()-off)
		e := disk.Extent{Range: disk.Range{Off: off, Len: n}}
		if len(bytes.TrimLeft(m.content[off:off+n], "\x00")) == 0 {
			e.Kind = disk.Zero
		}
		all, off = append(all, e), off+n
	}
	return all, nil
}

func (m ram) Hints() disk.Hints { return disk.Hints{} }
func (m ram) Close() error      { *m.open--; return nil }

// cargo is a VM with two disks, and its delivery. The disks have data at both ends and in the middle.
func cargo(t *testing.T) (platform.Delivery, [][]byte) {
	t.Helper()
	vm := biosVM()
	vm.Disks = append(vm.Disks, inventory.Disk{Key: 2001, Controller: 1000, Unit: 1, Capacity: 5<<20 + 512})
	vm.Disks[0].Capacity = 3 << 20
	contents := make([][]byte, 2)
	open := 0
	for i, d := range vm.Disks {
		contents[i] = make([]byte, d.Capacity)
		for _, off := range []int64{0, d.Capacity / 2, d.Capacity - 512} {
			copy(contents[i][off:], bytes.Repeat([]byte{byte(i + 1), byte(off >> 9)}, 256))
		}
	}
	d := platform.Delivery{Definition: definition(vm)}
	d.Open = func(_ context.Context, img targets.Image) (disk.Source, error) {
		open++
		return ram{contents[img.Key-2000], nil, &open}, nil
	}
	t.Cleanup(func() {
		if open != 0 {
			t.Errorf("%d images are still open", open)
		}
	})
	return d, contents
}

// arrived fails the test unless the VM is there, off, with all of its disks.
func arrived(t *testing.T, lab *kube.Cluster, contents [][]byte) {
	t.Helper()
	vms := lab.Objects("virtualmachines")
	if len(vms) != 1 || len(lab.Objects("datavolumes")) != len(contents) {
		t.Fatalf("there are %v", vms)
	}
	if spec := vms[0]["spec"].(map[string]any); spec["runStrategy"] != "Halted" {
		t.Errorf("it is %v", spec["runStrategy"])
	}
	for i, want := range contents {
		if got := lab.Uploaded("vms", fmt.Sprintf("web-01-disk%d", i)); !bytes.Equal(got, want) {
			t.Errorf("disk %d has other bytes: %d of them", i, len(got))
		}
	}
}

// nothing fails the test if anything is there.
func nothing(t *testing.T, lab *kube.Cluster) {
	t.Helper()
	if left := append(lab.Objects("virtualmachines"), lab.Objects("datavolumes")...); len(left) > 0 {
		t.Errorf("there is still %v", left)
	}
}

// What passes by itself, or is tried again, ends with a VM that is there whole.
func TestClusterGetsOver(t *testing.T) {
	for name, config := range map[string]kube.Config{
		"nothing":                  {},
		"a pod that is not ready":  {NotReady: 5},
		"tokens that are too old":  {TooOld: 2},
		"cut transfers":            {Cut: 3},
		"a pod that loses its way": {Lose: 2},
		"an old CDI":               {NoAsync: true, NotReady: 2},
		"a forwarded port":         {PortForward: true},
		"all at once":              {NotReady: 2, TooOld: 1, Cut: 1, Lose: 1},
	} {
		t.Run(name, func(t *testing.T) {
			lab, c := start(t, config)
			d, contents := cargo(t)
			if err := c.Check(t.Context(), d.VM); err != nil {
				t.Fatal(err)
			}
			nothing(t, lab)
			r, err := c.Deliver(t.Context(), d)
			if err != nil {
				t.Fatal(err)
			}
			arrived(t, lab, contents)
			if r.ID != "vms/web-01" || r.Name != "web-01" || !strings.HasPrefix(r.Platform, "kubevirt 127.0.0.1:") || len(r.Warnings) == 0 {
				t.Errorf("receipt %+v", r)
			}
			if err := c.Withdraw(t.Context(), d.VM); err != nil {
				t.Fatal(err)
			}
			nothing(t, lab)
		})
	}
}

// What does not pass is told by its kind, with a remedy, and leaves nothing.
func TestClusterGivesUp(t *testing.T) {
	for name, c := range map[string]struct {
		config kube.Config
		want   fault.Kind
		says   string
	}{
		"a volume that is too small":       {kube.Config{Small: 512}, fault.Full, "smaller than the disk"},
		"a volume that fails":              {kube.Config{GiveUp: true}, fault.Transient, "describe datavolume"},
		"a volume that never comes":        {kube.Config{Stuck: true}, fault.Transient, "describe datavolume"},
		"a network that is always cut":     {kube.Config{Cut: 99}, fault.Transient, "describe datavolume"},
		"tokens that are never taken":      {kube.Config{TooOld: 99}, fault.Transient, "describe datavolume"},
		"a cluster that refuses the VM":    {kube.Config{Refuse: refuseVMs}, fault.Invalid, "KubeVirt"},
		"an account that may not make VMs": {kube.Config{Denied: map[string]bool{"create virtualmachines": true}}, fault.Denied, "can-i"},
		"a proxy that nobody tells of":     {kube.Config{NoProxyURL: true}, fault.NotFound, "port-forward"},
	} {
		t.Run(name, func(t *testing.T) {
			lab, place := start(t, c.config)
			hurry(place)
			d, _ := cargo(t)
			_, err := place.Deliver(t.Context(), d)
			if !fault.Is(err, c.want) || !strings.Contains(fault.HintOf(err), c.says) {
				t.Errorf("%v (%v): %q", err, fault.KindOf(err), fault.HintOf(err))
			}
			nothing(t, lab)
		})
	}
}

func refuseVMs(o map[string]any) string {
	if o["kind"] == "VirtualMachine" {
		return "spec.template: no such field"
	}
	return ""
}

// hurry has a minute go by with each look at the clock.
func hurry(c *Cluster) {
	now := time.Unix(0, 0)
	c.now = func() time.Time {
		now = now.Add(time.Minute)
		return now
	}
}

func TestClusterCheckRefuses(t *testing.T) {
	taken := func(annotations map[string]any) func(*kube.Cluster) {
		return func(lab *kube.Cluster) {
			lab.Put("datavolumes", "vms", "web-01-disk0", map[string]any{"metadata": map[string]any{"annotations": annotations}})
		}
	}
	for name, c := range map[string]struct {
		config  kube.Config
		change  func(*address)
		prepare func(*kube.Cluster)
		want    fault.Kind
		says    string
	}{
		"no KubeVirt":       {config: kube.Config{NoKubeVirt: true}, want: fault.Unsupported, says: "kubevirt.io"},
		"no CDI":            {config: kube.Config{NoCDI: true}, want: fault.Unsupported, says: "containerized_data_importer"},
		"no namespace":      {change: func(a *address) { a.Namespace = "nowhere" }, want: fault.NotFound, says: "create namespace nowhere"},
		"no rights":         {config: kube.Config{Denied: map[string]bool{"create uploadtokenrequests": true}}, want: fault.Denied, says: "rolebinding"},
		"no storage class":  {change: func(a *address) { a.StorageClass = "slow" }, want: fault.NotFound, says: "kubectl get storageclass"},
		"no class of a map": {change: func(a *address) { a.Maps.Storages = map[string]string{"*": "slow"} }, want: fault.NotFound, says: "kubectl get storageclass"},
		"no proxy":          {config: kube.Config{NoProxyURL: true}, want: fault.NotFound, says: "uploadProxy=https://localhost:8443"},
		"nobody there":      {change: func(a *address) { a.uploadProxy = "https://127.0.0.1:1" }, want: fault.Unreachable, says: "port-forward"},
		"another's volume":  {prepare: taken(nil), want: fault.Conflict, says: "'web 01'"},
		"of an older self":  {prepare: taken(map[string]any{refNote: "7", uuidNote: "x", instanceNote: "y"}), want: fault.Conflict, says: "rename"},
		"what is not known": {config: kube.Config{Refuse: refuseVMs}, want: fault.Invalid, says: "versions"},
		"no network for it": {change: func(a *address) { a.Maps.Networks = map[string]namemap.Network{"VM Network": {To: "nat"}} }, want: fault.Invalid, says: "multus:"},
	} {
		t.Run(name, func(t *testing.T) {
			lab := kube.Start(c.config)
			t.Cleanup(lab.Close)
			a := address{kubeconfig: write(t, lab.Kubeconfig())}
			if c.change != nil {
				c.change(&a)
			}
			if c.prepare != nil {
				c.prepare(lab)
			}
			place, err := newCluster(a)
			if err == nil {
				defer place.Close()
				err = place.Check(t.Context(), biosVM())
			}
			if !fault.Is(err, c.want) || !strings.Contains(fault.HintOf(err), c.says) {
				t.Errorf("%v (%v): %q", err, fault.KindOf(err), fault.HintOf(err))
			}
		})
	}
}

// An account of a namespace may see neither namespaces nor storage classes: that is no obstacle.
func TestClusterCheckGetsAlongWithoutLooking(t *testing.T) {
	_, c := start(t, kube.Config{Denied: map[string]bool{"get namespaces": true, "get storageclasses": true}},
		func(a *address) { a.StorageClass = "fast" })
	if err := c.Check(t.Context(), biosVM()); err != nil {
		t.Error(err)
	}
}

// A volume that an earlier try left for other bytes is not taken for what it is to be.
func TestClusterReplacesVolumesOfOtherBytes(t *testing.T) {
	lab, c := start(t, kube.Config{})
	d, contents := cargo(t)
	old, err := newObjects(d.Definition, c.opts)
	if err != nil {
		t.Fatal(err)
	}
	dv := asMap(t, old.disks[1])
	dv["metadata"].(map[string]any)["annotations"].(map[string]any)[rootNote] = "of yesterday"
	lab.Put("datavolumes", "vms", "web-01-disk1", dv)
	if _, err := c.Deliver(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	arrived(t, lab, contents)
}

// A repeated delivery of the same images changes nothing, also if the first answer was lost.
func TestClusterDeliversTheSameVMOnce(t *testing.T) {
	lab, c := start(t, kube.Config{})
	d, contents := cargo(t)
	first, err := c.Deliver(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	before := append(lab.Objects("virtualmachines"), lab.Objects("datavolumes")...)
	again, err := c.Deliver(t.Context(), d)
	if err != nil || again.ID != first.ID {
		t.Errorf("receipt %+v, %v, want %+v", again, err, first)
	}
	arrived(t, lab, contents)
	if now := append(lab.Objects("virtualmachines"), lab.Objects("datavolumes")...); !reflect.DeepEqual(now, before) {
		t.Errorf("there was %v, and is %v", before, now)
	}
}

// A VM that was delivered may run by now: other bytes of it do not replace it, and it is not withdrawn.
func TestClusterKeepsWhatWasDelivered(t *testing.T) {
	lab, c := start(t, kube.Config{})
	d, contents := cargo(t)
	if _, err := c.Deliver(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	d.Images = slices.Clone(d.Images)
	d.Images[1].Root = "of tomorrow"
	_, err := c.Deliver(t.Context(), d)
	if !fault.Is(err, fault.Conflict) || !strings.Contains(fault.HintOf(err), "kubectl -n vms delete vm,dv -l "+sourceLabel) {
		t.Errorf("%v: %q", err, fault.HintOf(err))
	}
	arrived(t, lab, contents)
}

// What runs is not withdrawn, and neither are its disks; also if it is started between the look and the deletion.
func TestClusterDoesNotWithdrawWhatRuns(t *testing.T) {
	for name, tap := range map[string]func(*kube.Cluster){
		"before": func(lab *kube.Cluster) { lab.PowerOn("vms", "web-01") },
		"while": func(lab *kube.Cluster) {
			lab.SetCallHook(func(n int) kube.Outcome {
				if n == 2 { // the deletion, after the list
					lab.PowerOn("vms", "web-01")
				}
				return kube.Pass
			})
		},
	} {
		lab, c := start(t, kube.Config{})
		d, contents := cargo(t)
		if _, err := c.Deliver(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		tap(lab)
		if err := c.Withdraw(t.Context(), d.VM); !fault.Is(err, fault.Conflict) || !strings.Contains(fault.HintOf(err), "virtctl -n vms stop web-01") {
			t.Errorf("%s: %v: %q", name, err, fault.HintOf(err))
		}
		if len(lab.Objects("virtualmachines")) != 1 || len(lab.Objects("datavolumes")) != len(contents) {
			t.Errorf("%s: something was removed", name)
		}
	}
}

// Somebody else's VM appears between the check and the end.
func TestClusterLosesARace(t *testing.T) {
	lab, c := start(t, kube.Config{})
	d, _ := cargo(t)
	inner := d.Open
	d.Open = func(ctx context.Context, img targets.Image) (disk.Source, error) {
		lab.Put("virtualmachines", "vms", "web-01", map[string]any{"spec": "theirs"})
		return inner(ctx, img)
	}
	if _, err := c.Deliver(t.Context(), d); !fault.Is(err, fault.Conflict) {
		t.Errorf("%v", err)
	}
	if vms := lab.Objects("virtualmachines"); len(vms) != 1 || vms[0]["spec"] != "theirs" || len(lab.Objects("datavolumes")) > 0 {
		t.Errorf("there are %v and %v", vms, lab.Objects("datavolumes"))
	}
}

func TestClusterTellsNoSecrets(t *testing.T) {
	_, c := start(t, kube.Config{Password: "hush-hush"})
	if text := fmt.Sprintf("%v %+v %#v", c, c.client.Config(), c.client.Config().Token); strings.Contains(text, "hush-hush") {
		t.Error(text)
	}
}

// asMap is an object as a cluster keeps it.
func asMap(t *testing.T, o any) (m map[string]any) {
	t.Helper()
	if err := json.Unmarshal(asJSON(t, o), &m); err != nil {
		t.Fatal(err)
	}
	return m
}
