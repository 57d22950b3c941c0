package fleet

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/decamp/decamp/internal/fleetdb"
)

// Each step is a call of the hooks of one VM, in order, with the hooks that run.
func TestHooksOfAVMRunOnce(t *testing.T) {
	r := newTestFleet(t, nil)
	r.submitPlan("wave")
	h := VMHooks{r.db.Records, fleetdb.Key{Plan: "wave", VM: "vm-1"}}
	var ran []string
	run := func(when string, err error) func() error {
		return func() error { ran = append(ran, when); return err }
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	for _, step := range []struct {
		name string
		call func() error
		fail error
		want []string
	}{
		{"pre hook fails", func() error { return h.RunPre(t.Context(), run("pre", errOther)) }, errOther, []string{"pre"}},
		{"pre hook is retried", func() error { return h.RunPre(t.Context(), run("pre", nil)) }, nil, []string{"pre"}},
		{"VM is taken over", func() error { return h.RunPre(t.Context(), run("pre", nil)) }, nil, nil},
		{"VM fails", func() error { return h.RunPost(t.Context(), false, run("post", nil)) }, nil, []string{"post"}},
		{"VM starts after its failure", func() error { return h.RunPre(t.Context(), run("pre", nil)) }, nil, []string{"pre"}},
		{"VM is undone", func() error { return h.Reset(t.Context()) }, nil, nil},
		{"VM starts after its undo", func() error { return h.RunPre(t.Context(), run("pre", nil)) }, nil, []string{"pre"}},
		{"post hook fails", func() error { return h.RunPost(t.Context(), true, run("post", errOther)) }, errOther, []string{"post"}},
		{"VM starts after its post hook failed", func() error { return h.RunPre(t.Context(), run("pre", nil)) }, nil, nil},
		{"VM is published", func() error { return h.RunPost(t.Context(), true, run("post", nil)) }, nil, []string{"post"}},
		{"worker died before it recorded the VM", func() error { return h.RunPre(t.Context(), run("pre", nil)) }, nil, nil},
		{"VM is published again", func() error { return h.RunPost(t.Context(), true, run("post", nil)) }, nil, nil},
	} {
		ran = nil
		if err := step.call(); !errors.Is(err, step.fail) || !slices.Equal(ran, step.want) {
			t.Fatalf("%s: ran %v, want %v; error %v, want %v", step.name, ran, step.want, err, step.fail)
		}
	}
	if err := h.RunPre(stopped, run("pre", nil)); err == nil {
		t.Error("RunPre returned no error, although it could not read the hooks that have run")
	}
}

// The result of a hook is recorded even if the attempt is stopped when the hook ends. The record is deleted with its
// plan.
func TestHookResultOfStoppedAttemptIsRecorded(t *testing.T) {
	r := newTestFleet(t, nil)
	r.submitPlan("wave")
	r.submitPlan("wave-2")
	for _, plan := range []string{"wave", "wave-2"} {
		h := VMHooks{r.db.Records, fleetdb.Key{Plan: plan, VM: "vm-1"}}
		ctx, stop := context.WithCancel(t.Context())
		if err := h.RunPre(ctx, func() error { stop(); return nil }); err != nil {
			t.Fatal(err)
		}
		if err := h.RunPre(t.Context(), func() error { return errOther }); err != nil {
			t.Errorf("the hook ran again: %v", err)
		}
	}
	if err := r.db.Plans.SetState(t.Context(), "wave", fleetdb.PlanEnded, nil); err != nil {
		t.Fatal(err)
	}
	if err := r.db.Plans.Drop(t.Context(), "wave"); err != nil {
		t.Fatal(err)
	}
	left, err := r.db.Records.List(t.Context(), fleetdb.HooksOfVM)
	if err != nil || len(left) != 1 || left[0].ID != "wave-2/vm-1" {
		t.Errorf("records are %v, %v; want only that of wave-2/vm-1", left, err)
	}
}
