package kubevirt

import (
	"context"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/lab/kube"
	"github.com/decamp/decamp/internal/targets/platform"
)

// newDeliveredVM returns a cluster with a delivered VM that is off.
func newDeliveredVM(t *testing.T, config kube.Config, change ...func(*address)) (*kube.Cluster, *Cluster, platform.Delivery) {
	t.Helper()
	lab, c := startCluster(t, config, change...)
	d, _ := newDelivery(t)
	if _, err := c.Deliver(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	return lab, c, d
}

// vmField returns a field of the only VM in the cluster.
func vmField(t *testing.T, lab *kube.Cluster, path ...string) any {
	t.Helper()
	var v any = lab.Objects("virtualmachines")[0]
	for _, key := range path {
		v = v.(map[string]any)[key]
	}
	return v
}

// Start starts a VM once. Withdraw refuses until the VM is off.
func TestStart(t *testing.T) {
	lab, c, d := newDeliveredVM(t, kube.Config{})
	s, err := c.Start(t.Context(), d.Definition)
	if err != nil {
		t.Fatal(err)
	}
	if want := "virtctl" + c.flags + " -n vms console web-01"; s.Console != want || !strings.Contains(want, " --kubeconfig=/") {
		t.Errorf("got console %q, want %q", s.Console, want)
	}
	if got := vmField(t, lab, "spec", "runStrategy"); got != "Always" || vmField(t, lab, "status", "printableStatus") != "Running" {
		t.Errorf("got VMs %v, want one that runs", lab.Objects("virtualmachines"))
	}
	version := vmField(t, lab, "metadata", "resourceVersion")
	if _, err := c.Start(t.Context(), d.Definition); err != nil {
		t.Error(err)
	}
	if now := vmField(t, lab, "metadata", "resourceVersion"); now != version {
		t.Error("Start changes a running VM")
	}
	if err := c.Withdraw(t.Context(), d.VM); !fault.Is(err, fault.Conflict) || !strings.Contains(fault.HintOf(err), "virtctl -n vms stop web-01") {
		t.Errorf("got %v (hint %q), want a conflict", err, fault.HintOf(err))
	}
	lab.PowerOff("vms", "web-01")
	if err := c.Withdraw(t.Context(), d.VM); err != nil {
		t.Error(err)
	}
	checkEmpty(t, lab)
}

func TestKubeFlags(t *testing.T) {
	for want, a := range map[string]address{
		" --kubeconfig=/k":                               {kubeconfig: "/k"},
		" --kubeconfig='/my k' --context='a b'":          {kubeconfig: "/my k", context: "a b"},
		` --kubeconfig="$HOME"/.kube/config --context=x`: {kubeconfig: "~/.kube/config", context: "x"},
	} {
		if got := a.kubeFlags(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// Start waits for a temporary condition that keeps the VM from running. If the condition persists, the error has
// KubeVirt's message and a hint, and the run strategy stays.
func TestStartWaitsForTemporaryConditions(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	for at, want := range map[string]struct {
		kind          fault.Kind
		message, hint string
	}{
		"ErrorUnschedulable": {fault.Full, "PodScheduled: 0/3 nodes are available: 3 Insufficient memory.", "edit vm web-01"},
		"ErrorPvcNotFound":   {fault.NotFound, "failed to find a PVC", "get pvc,datavolume"},
		"DataVolumeError":    {fault.Conflict, "DataVolumeError", "describe datavolume -l " + sourceLabel + "="},
		"ErrImagePull":       {fault.Conflict, "back-off pulling image", "get events"},
		"ImagePullBackOff":   {fault.Conflict, "ImagePullBackOff", "get events"},
		"CrashLoopBackOff":   {fault.Conflict, "CrashLoopBackOff", "logs -c compute"},
		"Starting":           {fault.Full, "Failure: virtualmachineinstances is forbidden: exceeded quota: few", "describe resourcequota"},
		"Provisioning":       {fault.Conflict, `status has been "Provisioning" for too long`, "describe vm,vmi web-01"},
	} {
		t.Run(at, func(t *testing.T) {
			_, c, d := newDeliveredVM(t, kube.Config{Hitch: at, Passes: 4})
			if _, err := c.Start(t.Context(), d.Definition); err != nil {
				t.Errorf("Start with a temporary condition: %v", err)
			}
			lab, c, d := newDeliveredVM(t, kube.Config{Hitch: at})
			skipMinutes(c)
			_, err := c.Start(t.Context(), d.Definition)
			if !fault.Is(err, want.kind) || !strings.Contains(err.Error(), want.message) || !strings.Contains(fault.HintOf(err), want.hint) {
				t.Errorf("got %v (%v), hint %q", err, fault.KindOf(err), fault.HintOf(err))
			}
			if strings.Contains(err.Error(), "all is well") {
				t.Errorf("the error contains a condition without a problem: %v", err)
			}
			if vmField(t, lab, "spec", "runStrategy") != "Always" || len(lab.Objects("datavolumes")) != len(d.VM.Disks) {
				t.Errorf("got VMs %v, want one with run strategy Always and its volumes", lab.Objects("virtualmachines"))
			}
		})
	}
}

func TestStartRefuses(t *testing.T) {
	strategy := func(name string) func(*kube.Cluster) {
		return func(lab *kube.Cluster) {
			lab.Objects("virtualmachines")[0]["spec"].(map[string]any)["runStrategy"] = name
		}
	}
	for name, v := range map[string]struct {
		config kube.Config
		before func(*kube.Cluster)
		kind   fault.Kind
		hint   string
	}{
		"no VM": {before: func(lab *kube.Cluster) {
			lab.Remove("virtualmachines", "vms", "web-01")
		}, kind: fault.NotFound, hint: "get vm"},
		"foreign VM": {before: func(lab *kube.Cluster) {
			lab.Put("virtualmachines", "vms", "web-01", map[string]any{"spec": map[string]any{"runStrategy": "Halted"}})
		}, kind: fault.Conflict, hint: "rename"},
		"no right": {
			config: kube.Config{Denied: map[string]bool{"patch virtualmachines": true}}, kind: fault.Denied,
			hint: "kubectl -n vms create role decamp-start --verb=patch --resource=virtualmachines.kubevirt.io",
		},
		"paused":  {config: kube.Config{Hitch: "Paused"}, kind: fault.Conflict, hint: "unpause vm web-01"},
		"by hand": {before: strategy("Manual"), kind: fault.Conflict, hint: "start web-01"},
	} {
		t.Run(name, func(t *testing.T) {
			lab, c, d := newDeliveredVM(t, v.config)
			skipMinutes(c)
			if v.before != nil {
				v.before(lab)
			}
			_, err := c.Start(t.Context(), d.Definition)
			if !fault.Is(err, v.kind) || !strings.Contains(fault.HintOf(err), v.hint) {
				t.Errorf("got %v (%v), hint %q", err, fault.KindOf(err), fault.HintOf(err))
			}
			if all := lab.Objects("virtualmachines"); v.config.Hitch == "" && len(all) > 0 && vmField(t, lab, "spec", "runStrategy") == "Always" {
				t.Error("Start starts the VM")
			}
		})
	}
}

// Other clients start or stop the VM between two requests of Start.
func TestStartWithConcurrentClients(t *testing.T) {
	for name, v := range map[string]struct {
		meanwhile func(lab *kube.Cluster, n int)
		kind      fault.Kind // fault.Internal if Start must succeed
	}{
		"started before the request": {func(lab *kube.Cluster, n int) {
			if n == 2 {
				lab.PowerOn("vms", "web-01")
			}
		}, fault.Internal},
		"stopped after the request": {func(lab *kube.Cluster, n int) {
			if n == 4 {
				lab.PowerOff("vms", "web-01")
			}
		}, fault.Conflict},
	} {
		lab, c, d := newDeliveredVM(t, kube.Config{})
		lab.SetCallHook(func(n int) kube.Outcome { v.meanwhile(lab, n); return kube.Pass })
		_, err := c.Start(t.Context(), d.Definition)
		if v.kind == fault.Internal && err != nil || v.kind != fault.Internal && !fault.Is(err, v.kind) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// If any one call is lost, its answer is lost, or Start is canceled, the VM runs in the end. A canceled Start can be
// repeated.
func TestStartSurvivesLostCalls(t *testing.T) {
	for n := 1; n <= 5; n++ {
		for _, outcome := range []kube.Outcome{kube.Lost, kube.Unanswered} {
			lab, c, d := newDeliveredVM(t, kube.Config{})
			lab.SetCallHook(func(at int) kube.Outcome {
				if at == n {
					return outcome
				}
				return kube.Pass
			})
			if _, err := c.Start(t.Context(), d.Definition); err != nil || vmField(t, lab, "status", "printableStatus") != "Running" {
				t.Errorf("call %d, outcome %d: %v", n, outcome, err)
			}
		}
		lab, c, d := newDeliveredVM(t, kube.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		lab.SetCallHook(func(at int) kube.Outcome {
			if at == n {
				cancel()
				return kube.Unanswered // otherwise the answer may arrive before the client notices the cancellation
			}
			return kube.Pass
		})
		if _, err := c.Start(ctx, d.Definition); !fault.Is(err, fault.Canceled) {
			t.Errorf("canceled at call %d: %v", n, err)
		}
		lab.SetCallHook(nil)
		if _, err := c.Start(t.Context(), d.Definition); err != nil {
			t.Errorf("Start after cancellation at call %d: %v", n, err)
		}
	}
}

func TestFolderDoesNotStartVMs(t *testing.T) {
	if _, ok := any(&Folder{}).(platform.Starter); ok {
		t.Error("a folder of manifests implements platform.Starter")
	}
}

// Examine warns if the account may not start VMs. Check still succeeds.
func TestExamineWarnsOfMissingStartPermission(t *testing.T) {
	for _, denied := range []bool{false, true} {
		_, c := startCluster(t, kube.Config{Denied: map[string]bool{"patch virtualmachines": denied}})
		results := c.Examine(t.Context(), platform.Rights)
		last := results[len(results)-1]
		if (last.Err != nil) != denied || last.WarningOnly != denied || denied && !strings.Contains(fault.HintOf(last.Err), "--verb=patch") {
			t.Errorf("denied %v: %+v", denied, last)
		}
		if err := c.Check(t.Context(), biosVM()); err != nil {
			t.Error(err)
		}
	}
}
