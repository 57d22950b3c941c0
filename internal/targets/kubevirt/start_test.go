package kubevirt

import (
	"context"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/lab/kube"
	"github.com/decamp/decamp/internal/targets/platform"
)

// delivered is a cluster with a VM in it that is off.
func delivered(t *testing.T, config kube.Config, change ...func(*address)) (*kube.Cluster, *Cluster, platform.Delivery) {
	t.Helper()
	lab, c := start(t, config, change...)
	d, _ := cargo(t)
	if _, err := c.Deliver(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	return lab, c, d
}

// field is one of the VM that is there, by its path.
func field(t *testing.T, lab *kube.Cluster, path ...string) any {
	t.Helper()
	var v any = lab.Objects("virtualmachines")[0]
	for _, key := range path {
		v = v.(map[string]any)[key]
	}
	return v
}

// A VM is started once, and is not withdrawn before it is stopped.
func TestStart(t *testing.T) {
	lab, c, d := delivered(t, kube.Config{})
	s, err := c.Start(t.Context(), d.Definition)
	if err != nil {
		t.Fatal(err)
	}
	if want := "virtctl" + c.flags + " -n vms console web-01"; s.Console != want || !strings.Contains(want, " --kubeconfig=/") {
		t.Errorf("console %q", s.Console)
	}
	if got := field(t, lab, "spec", "runStrategy"); got != "Always" || field(t, lab, "status", "printableStatus") != "Running" {
		t.Errorf("it is %v", lab.Objects("virtualmachines"))
	}
	version := field(t, lab, "metadata", "resourceVersion")
	if _, err := c.Start(t.Context(), d.Definition); err != nil {
		t.Error(err)
	}
	if now := field(t, lab, "metadata", "resourceVersion"); now != version {
		t.Error("a VM that ran was changed")
	}
	if err := c.Withdraw(t.Context(), d.VM); !fault.Is(err, fault.Conflict) || !strings.Contains(fault.HintOf(err), "virtctl -n vms stop web-01") {
		t.Errorf("%v: %q", err, fault.HintOf(err))
	}
	lab.PowerOff("vms", "web-01")
	if err := c.Withdraw(t.Context(), d.VM); err != nil {
		t.Error(err)
	}
	nothing(t, lab)
}

func TestConsoleNamesTheClusterAsTheAddressDoes(t *testing.T) {
	for want, a := range map[string]address{
		" --kubeconfig=/k":                               {kubeconfig: "/k"},
		" --kubeconfig='/my k' --context='a b'":          {kubeconfig: "/my k", context: "a b"},
		` --kubeconfig="$HOME"/.kube/config --context=x`: {kubeconfig: "~/.kube/config", context: "x"},
	} {
		if got := a.kubeFlags(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// What keeps a VM from running may pass; if it does not, it is told with what KubeVirt says and what to do, and
// nothing is taken back.
func TestStartMeetsTrouble(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	for at, want := range map[string]struct {
		kind      fault.Kind
		says, fix string
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
			_, c, d := delivered(t, kube.Config{Hitch: at, Passes: 4})
			if _, err := c.Start(t.Context(), d.Definition); err != nil {
				t.Errorf("it would have passed: %v", err)
			}
			lab, c, d := delivered(t, kube.Config{Hitch: at})
			hurry(c)
			_, err := c.Start(t.Context(), d.Definition)
			if !fault.Is(err, want.kind) || !strings.Contains(err.Error(), want.says) || !strings.Contains(fault.HintOf(err), want.fix) {
				t.Errorf("%v (%v): %q", err, fault.KindOf(err), fault.HintOf(err))
			}
			if strings.Contains(err.Error(), "all is well") {
				t.Errorf("what is right is told as wrong: %v", err)
			}
			if field(t, lab, "spec", "runStrategy") != "Always" || len(lab.Objects("datavolumes")) != len(d.VM.Disks) {
				t.Errorf("left is %v", lab.Objects("virtualmachines"))
			}
		})
	}
}

func TestStartRefuses(t *testing.T) {
	strategy := func(what string) func(*kube.Cluster) {
		return func(lab *kube.Cluster) {
			lab.Objects("virtualmachines")[0]["spec"].(map[string]any)["runStrategy"] = what
		}
	}
	for name, v := range map[string]struct {
		config kube.Config
		before func(*kube.Cluster)
		kind   fault.Kind
		fix    string
	}{
		"nothing there": {before: func(lab *kube.Cluster) {
			lab.Remove("virtualmachines", "vms", "web-01")
		}, kind: fault.NotFound, fix: "get vm"},
		"another's": {before: func(lab *kube.Cluster) {
			lab.Put("virtualmachines", "vms", "web-01", map[string]any{"spec": map[string]any{"runStrategy": "Halted"}})
		}, kind: fault.Conflict, fix: "rename"},
		"no right": {
			config: kube.Config{Denied: map[string]bool{"patch virtualmachines": true}}, kind: fault.Denied,
			fix: "kubectl -n vms create role decamp-start --verb=patch --resource=virtualmachines.kubevirt.io",
		},
		"paused":  {config: kube.Config{Hitch: "Paused"}, kind: fault.Conflict, fix: "unpause vm web-01"},
		"by hand": {before: strategy("Manual"), kind: fault.Conflict, fix: "start web-01"},
	} {
		t.Run(name, func(t *testing.T) {
			lab, c, d := delivered(t, v.config)
			hurry(c)
			if v.before != nil {
				v.before(lab)
			}
			_, err := c.Start(t.Context(), d.Definition)
			if !fault.Is(err, v.kind) || !strings.Contains(fault.HintOf(err), v.fix) {
				t.Errorf("%v (%v): %q", err, fault.KindOf(err), fault.HintOf(err))
			}
			if all := lab.Objects("virtualmachines"); v.config.Hitch == "" && len(all) > 0 && field(t, lab, "spec", "runStrategy") == "Always" {
				t.Error("it was started all the same")
			}
		})
	}
}

// Others start and stop the VM, too, also between a look and what comes of it.
func TestStartIsNotAlone(t *testing.T) {
	for name, v := range map[string]struct {
		meanwhile func(lab *kube.Cluster, n int)
		kind      fault.Kind // fault.Internal: it runs in the end
	}{
		"started before the order": {func(lab *kube.Cluster, n int) {
			if n == 2 {
				lab.PowerOn("vms", "web-01")
			}
		}, fault.Internal},
		"stopped after the order": {func(lab *kube.Cluster, n int) {
			if n == 4 {
				lab.PowerOff("vms", "web-01")
			}
		}, fault.Conflict},
	} {
		lab, c, d := delivered(t, kube.Config{})
		lab.SetCallHook(func(n int) kube.Outcome { v.meanwhile(lab, n); return kube.Pass })
		_, err := c.Start(t.Context(), d.Definition)
		if v.kind == fault.Internal && err != nil || v.kind != fault.Internal && !fault.Is(err, v.kind) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Calls that are lost, whose answers are, or that are canceled, at any point: the VM runs in the end.
func TestStartGoesOn(t *testing.T) {
	for n := 1; n <= 5; n++ {
		for _, fate := range []kube.Outcome{kube.Lost, kube.Unanswered} {
			lab, c, d := delivered(t, kube.Config{})
			lab.SetCallHook(func(at int) kube.Outcome {
				if at == n {
					return fate
				}
				return kube.Pass
			})
			if _, err := c.Start(t.Context(), d.Definition); err != nil || field(t, lab, "status", "printableStatus") != "Running" {
				t.Errorf("call %d, fate %d: %v", n, fate, err)
			}
		}
		lab, c, d := delivered(t, kube.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		lab.SetCallHook(func(at int) kube.Outcome {
			if at == n {
				cancel()
				return kube.Unanswered // or the answer may come before the client notices that it is canceled
			}
			return kube.Pass
		})
		if _, err := c.Start(ctx, d.Definition); !fault.Is(err, fault.Canceled) {
			t.Errorf("canceled at call %d: %v", n, err)
		}
		lab.SetCallHook(nil)
		if _, err := c.Start(t.Context(), d.Definition); err != nil {
			t.Errorf("after call %d: %v", n, err)
		}
	}
}

func TestFolderStartsNothing(t *testing.T) {
	if _, ok := any(&Folder{}).(platform.Starter); ok {
		t.Error("a folder of manifests starts VMs")
	}
}

// Who may not start VMs is told before, and may still bring them.
func TestExamineSaysWhoMayNotStart(t *testing.T) {
	for _, denied := range []bool{false, true} {
		_, c := start(t, kube.Config{Denied: map[string]bool{"patch virtualmachines": denied}})
		looks := c.Examine(t.Context(), platform.Rights)
		last := looks[len(looks)-1]
		if (last.Err != nil) != denied || last.WarningOnly != denied || denied && !strings.Contains(fault.HintOf(last.Err), "--verb=patch") {
			t.Errorf("denied %v: %+v", denied, last)
		}
		if err := c.Check(t.Context(), biosVM()); err != nil {
			t.Error(err)
		}
	}
}
