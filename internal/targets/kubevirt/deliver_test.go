package kubevirt

import (
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/lab/kube"
)

// Only conditions that explain a failure are reported: a Failure that is true, and others that are not true.
func TestFailureText(t *testing.T) {
	var s state
	s.Status.Conditions = []condition{
		{"Ready", "False", "no node"},
		{"Ready", "True", "ignored: ready"},
		{"Failure", "True", "no memory"},
		{"Failure", "False", "ignored: no failure"},
		{"Bound", "Unknown", "waits"},
		{"Running", "False", ""},
	}
	if got, want := s.failureText(), ", Ready: no node, Failure: no memory, Bound: waits"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Withdraw refuses a VM if the cluster reports that it is created, or if its run strategy starts it.
func TestWithdrawRefusesARunningVM(t *testing.T) {
	_, c := startCluster(t, kube.Config{})
	for name, change := range map[string]func(*state){
		"created": func(s *state) { s.Status.Created, s.Spec.RunStrategy = true, "Halted" },
		"to run":  func(s *state) { s.Spec.RunStrategy = "Always" },
	} {
		var s state
		s.Metadata.Name = "web-01"
		change(&s)
		if err := c.deleteObject(t.Context(), machines, s); !fault.Is(err, fault.Conflict) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A VM that another tool creates between Check and Deliver is a conflict. A VM from an earlier request is not.
func TestVMCreatedMeanwhileIsAConflict(t *testing.T) {
	lab, c := startCluster(t, kube.Config{})
	d, _ := newDelivery(t)
	o, err := newObjects(d.Definition, c.opts)
	if err != nil {
		t.Fatal(err)
	}
	lab.Put("virtualmachines", "vms", o.vm.Metadata.Name, map[string]any{"spec": map[string]any{"runStrategy": "Halted"}})
	if err := c.createObjects(t.Context(), o, d); !fault.Is(err, fault.Conflict) {
		t.Errorf("got %v, want a conflict", err)
	}
	lab2, c2 := startCluster(t, kube.Config{})
	if _, err := c2.Deliver(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	if err := c2.createObjects(t.Context(), o, d); err != nil || len(lab2.Objects("virtualmachines")) != 1 {
		t.Errorf("a VM that an earlier request created: %v", err)
	}
}
