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

// startCluster starts an emulated cluster and returns it with a Cluster. The emulation advances with each request.
func startCluster(t *testing.T, config kube.Config, change ...func(*address)) (*kube.Cluster, *Cluster) {
	t.Helper()
	lab := kube.Start(config)
	t.Cleanup(lab.Close)
	a := address{kubeconfig: writeKubeconfig(t, lab.Kubeconfig()), Options: Options{Network: "multus:lan"}}
	for _, f := range change {
		f(&a)
	}
	c, err := newCluster(a)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // Close never fails
	c.poll = time.Millisecond
	return lab, c
}

func writeKubeconfig(t *testing.T, text []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// memoryDisk is a disk in memory. Its extents report zeros as holes.
type memoryDisk struct {
	content []byte
	readErr error // error of each read
	open    *int  // number of open disks
}

func (m memoryDisk) Size() int64 { return int64(len(m.content)) }

func (m memoryDisk) ReadAt(ctx context.Context, p []byte, off int64) error {
	copy(p, m.content[off:])
	return m.readErr
}

func (m memoryDisk) Extents(_ context.Context, r disk.Range) (all []disk.Extent, err error) {
	const grain = 192 << 10 // so that extents begin and end within a read
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

func (m memoryDisk) Hints() disk.Hints { return disk.Hints{} }
func (m memoryDisk) Close() error      { *m.open--; return nil }

// newDelivery returns a delivery of a VM with two disks and the contents of the disks. The disks have data at both
// ends and in the middle.
func newDelivery(t *testing.T) (platform.Delivery, [][]byte) {
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
	d := platform.Delivery{Definition: newDefinition(vm)}
	d.Open = func(_ context.Context, img targets.Image) (disk.Source, error) {
		open++
		return memoryDisk{contents[img.Key-2000], nil, &open}, nil
	}
	t.Cleanup(func() {
		if open != 0 {
			t.Errorf("%d images are still open", open)
		}
	})
	return d, contents
}

// checkDelivered checks that the VM exists, is off and has all of its disks.
func checkDelivered(t *testing.T, lab *kube.Cluster, contents [][]byte) {
	t.Helper()
	vms := lab.Objects("virtualmachines")
	if len(vms) != 1 || len(lab.Objects("datavolumes")) != len(contents) {
		t.Fatalf("got VMs %v, want 1 and %d data volumes", vms, len(contents))
	}
	if spec := vms[0]["spec"].(map[string]any); spec["runStrategy"] != "Halted" {
		t.Errorf("got run strategy %v, want Halted", spec["runStrategy"])
	}
	for i, want := range contents {
		if got := lab.Uploaded("vms", fmt.Sprintf("web-01-disk%d", i)); !bytes.Equal(got, want) {
			t.Errorf("disk %d has %d bytes that differ from its source", i, len(got))
		}
	}
}

// checkEmpty checks that the cluster has no VMs and no data volumes.
func checkEmpty(t *testing.T, lab *kube.Cluster) {
	t.Helper()
	if left := append(lab.Objects("virtualmachines"), lab.Objects("datavolumes")...); len(left) > 0 {
		t.Errorf("remaining objects: %v", left)
	}
}

// Deliver waits for temporary conditions and retries failed transfers. In the end the VM is complete.
func TestClusterDeliveryRetriesTemporaryFailures(t *testing.T) {
	for name, config := range map[string]kube.Config{
		"no problem":              {},
		"a pod that is not ready": {NotReady: 5},
		"tokens that are too old": {TooOld: 2},
		"cut transfers":           {Cut: 3},
		"a pod that loses data":   {Lose: 2},
		"an old CDI":              {NoAsync: true, NotReady: 2},
		"a forwarded port":        {PortForward: true},
		"all together":            {NotReady: 2, TooOld: 1, Cut: 1, Lose: 1},
	} {
		t.Run(name, func(t *testing.T) {
			lab, c := startCluster(t, config)
			d, contents := newDelivery(t)
			if err := c.Check(t.Context(), d.VM); err != nil {
				t.Fatal(err)
			}
			checkEmpty(t, lab)
			r, err := c.Deliver(t.Context(), d)
			if err != nil {
				t.Fatal(err)
			}
			checkDelivered(t, lab, contents)
			if r.ID != "vms/web-01" || r.Name != "web-01" || !strings.HasPrefix(r.Platform, "kubevirt 127.0.0.1:") || len(r.Warnings) == 0 {
				t.Errorf("receipt %+v", r)
			}
			if err := c.Withdraw(t.Context(), d.VM); err != nil {
				t.Fatal(err)
			}
			checkEmpty(t, lab)
		})
	}
}

// A permanent failure has its kind and a hint, and leaves no objects.
func TestClusterDeliveryFailsPermanently(t *testing.T) {
	for name, c := range map[string]struct {
		config kube.Config
		want   fault.Kind
		hint   string
	}{
		"a volume that is too small":       {kube.Config{Small: 512}, fault.Full, "smaller than the disk"},
		"a volume that fails":              {kube.Config{GiveUp: true}, fault.Transient, "describe datavolume"},
		"a volume that never comes":        {kube.Config{Stuck: true}, fault.Transient, "describe datavolume"},
		"a network that is always cut":     {kube.Config{Cut: 99}, fault.Transient, "describe datavolume"},
		"tokens that are never accepted":   {kube.Config{TooOld: 99}, fault.Transient, "describe datavolume"},
		"a cluster that refuses the VM":    {kube.Config{Refuse: refuseVMs}, fault.Invalid, "KubeVirt"},
		"an account that may not make VMs": {kube.Config{Denied: map[string]bool{"create virtualmachines": true}}, fault.Denied, "can-i"},
		"no URL of the upload proxy":       {kube.Config{NoProxyURL: true}, fault.NotFound, "port-forward"},
	} {
		t.Run(name, func(t *testing.T) {
			lab, cluster := startCluster(t, c.config)
			skipMinutes(cluster)
			d, _ := newDelivery(t)
			_, err := cluster.Deliver(t.Context(), d)
			if !fault.Is(err, c.want) || !strings.Contains(fault.HintOf(err), c.hint) {
				t.Errorf("got %v (%v), hint %q, want %v, hint %q", err, fault.KindOf(err), fault.HintOf(err), c.want, c.hint)
			}
			checkEmpty(t, lab)
		})
	}
}

// refuseVMs returns an error text for VMs, like an admission webhook.
func refuseVMs(o map[string]any) string {
	if o["kind"] == "VirtualMachine" {
		return "spec.template: no such field"
	}
	return ""
}

// skipMinutes makes the clock of c advance by a minute each time it is read.
func skipMinutes(c *Cluster) {
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
		hint    string
	}{
		"no KubeVirt":       {config: kube.Config{NoKubeVirt: true}, want: fault.Unsupported, hint: "kubevirt.io"},
		"no CDI":            {config: kube.Config{NoCDI: true}, want: fault.Unsupported, hint: "containerized_data_importer"},
		"no namespace":      {change: func(a *address) { a.Namespace = "nowhere" }, want: fault.NotFound, hint: "create namespace nowhere"},
		"no rights":         {config: kube.Config{Denied: map[string]bool{"create uploadtokenrequests": true}}, want: fault.Denied, hint: "rolebinding"},
		"no storage class":  {change: func(a *address) { a.StorageClass = "slow" }, want: fault.NotFound, hint: "kubectl get storageclass"},
		"no class of a map": {change: func(a *address) { a.Maps.Storages = map[string]string{"*": "slow"} }, want: fault.NotFound, hint: "kubectl get storageclass"},
		"no proxy":          {config: kube.Config{NoProxyURL: true}, want: fault.NotFound, hint: "uploadProxy=https://localhost:8443"},
		"no connection":     {change: func(a *address) { a.uploadProxy = "https://127.0.0.1:1" }, want: fault.Unreachable, hint: "port-forward"},
		"foreign volume":    {prepare: taken(nil), want: fault.Conflict, hint: "'web 01'"},
		"earlier identity":  {prepare: taken(map[string]any{refNote: "7", uuidNote: "x", instanceNote: "y"}), want: fault.Conflict, hint: "rename"},
		"unknown field":     {config: kube.Config{Refuse: refuseVMs}, want: fault.Invalid, hint: "versions"},
		"invalid network":   {change: func(a *address) { a.Maps.Networks = map[string]namemap.Network{"VM Network": {To: "nat"}} }, want: fault.Invalid, hint: "multus:"},
	} {
		t.Run(name, func(t *testing.T) {
			lab := kube.Start(c.config)
			t.Cleanup(lab.Close)
			a := address{kubeconfig: writeKubeconfig(t, lab.Kubeconfig())}
			if c.change != nil {
				c.change(&a)
			}
			if c.prepare != nil {
				c.prepare(lab)
			}
			cluster, err := newCluster(a)
			if err == nil {
				defer cluster.Close()
				err = cluster.Check(t.Context(), biosVM())
			}
			if !fault.Is(err, c.want) || !strings.Contains(fault.HintOf(err), c.hint) {
				t.Errorf("got %v (%v), hint %q, want %v, hint %q", err, fault.KindOf(err), fault.HintOf(err), c.want, c.hint)
			}
		})
	}
}

// Check succeeds if the account of a namespace may not read namespaces and storage classes.
func TestClusterCheckOfARestrictedAccount(t *testing.T) {
	_, c := startCluster(t, kube.Config{Denied: map[string]bool{"get namespaces": true, "get storageclasses": true}},
		func(a *address) { a.StorageClass = "fast" })
	if err := c.Check(t.Context(), biosVM()); err != nil {
		t.Error(err)
	}
}

// Deliver replaces a volume that an earlier try filled with other data.
func TestClusterReplacesVolumesWithOtherData(t *testing.T) {
	lab, c := startCluster(t, kube.Config{})
	d, contents := newDelivery(t)
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
	checkDelivered(t, lab, contents)
}

// A second delivery of the same images changes nothing, as after a lost answer.
func TestClusterDeliversTheSameVMOnce(t *testing.T) {
	lab, c := startCluster(t, kube.Config{})
	d, contents := newDelivery(t)
	first, err := c.Deliver(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	before := append(lab.Objects("virtualmachines"), lab.Objects("datavolumes")...)
	again, err := c.Deliver(t.Context(), d)
	if err != nil || again.ID != first.ID {
		t.Errorf("got receipt %+v, %v, want %+v", again, err, first)
	}
	checkDelivered(t, lab, contents)
	if now := append(lab.Objects("virtualmachines"), lab.Objects("datavolumes")...); !reflect.DeepEqual(now, before) {
		t.Errorf("the objects change from %v to %v", before, now)
	}
}

// Deliver does not replace a delivered VM by other images, because the VM may run. The hint has the command that
// deletes it.
func TestClusterKeepsDeliveredVM(t *testing.T) {
	lab, c := startCluster(t, kube.Config{})
	d, contents := newDelivery(t)
	if _, err := c.Deliver(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	d.Images = slices.Clone(d.Images)
	d.Images[1].Root = "of tomorrow"
	_, err := c.Deliver(t.Context(), d)
	if !fault.Is(err, fault.Conflict) || !strings.Contains(fault.HintOf(err), "kubectl -n vms delete vm,dv -l "+sourceLabel) {
		t.Errorf("got %v (hint %q), want a conflict", err, fault.HintOf(err))
	}
	checkDelivered(t, lab, contents)
}

// Withdraw does not delete a running VM or its disks. The VM may also start between the list request and the
// deletion.
func TestClusterDoesNotWithdrawRunningVM(t *testing.T) {
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
		lab, c := startCluster(t, kube.Config{})
		d, contents := newDelivery(t)
		if _, err := c.Deliver(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		tap(lab)
		if err := c.Withdraw(t.Context(), d.VM); !fault.Is(err, fault.Conflict) || !strings.Contains(fault.HintOf(err), "virtctl -n vms stop web-01") {
			t.Errorf("%s: got %v (hint %q), want a conflict", name, err, fault.HintOf(err))
		}
		if len(lab.Objects("virtualmachines")) != 1 || len(lab.Objects("datavolumes")) != len(contents) {
			t.Errorf("%s: Withdraw removes objects", name)
		}
	}
}

// Another client creates a VM with the name between Check and the end of Deliver. Deliver removes only its volumes.
func TestClusterDeliverKeepsForeignVM(t *testing.T) {
	lab, c := startCluster(t, kube.Config{})
	d, _ := newDelivery(t)
	inner := d.Open
	d.Open = func(ctx context.Context, img targets.Image) (disk.Source, error) {
		lab.Put("virtualmachines", "vms", "web-01", map[string]any{"spec": "theirs"})
		return inner(ctx, img)
	}
	if _, err := c.Deliver(t.Context(), d); !fault.Is(err, fault.Conflict) {
		t.Errorf("got %v, want a conflict", err)
	}
	if vms := lab.Objects("virtualmachines"); len(vms) != 1 || vms[0]["spec"] != "theirs" || len(lab.Objects("datavolumes")) > 0 {
		t.Errorf("got VMs %v and volumes %v, want only the foreign VM", vms, lab.Objects("datavolumes"))
	}
}

// Formatted clusters and configurations do not contain secrets.
func TestFormattedClusterContainsNoSecrets(t *testing.T) {
	_, c := startCluster(t, kube.Config{Password: "hush-hush"})
	if text := fmt.Sprintf("%v %+v %#v", c, c.client.Config(), c.client.Config().Token); strings.Contains(text, "hush-hush") {
		t.Error(text)
	}
}

// asMap converts an object to a map, as a cluster stores it.
func asMap(t *testing.T, o any) (m map[string]any) {
	t.Helper()
	if err := json.Unmarshal(asJSON(t, o), &m); err != nil {
		t.Fatal(err)
	}
	return m
}
