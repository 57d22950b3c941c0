package fleet

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/decamp/decamp/internal/fleetdb"
)

// Each row is an attempt: what the hooks are told, and whether they are run.
func TestHooksOfAVMRunOnce(t *testing.T) {
	r := newRig(t, nil)
	r.submit("wave")
	h := VMHooks{r.db.Records, fleetdb.Key{Plan: "wave", VM: "vm-1"}}
	var ran []string
	run := func(when string, err error) func() error {
		return func() error { ran = append(ran, when); return err }
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	for _, step := range []struct {
		what string
		do   func() error
		fail error
		want []string
	}{
		{"a hook that fails", func() error { return h.RunPre(t.Context(), run("pre", errPlain)) }, errPlain, []string{"pre"}},
		{"retried", func() error { return h.RunPre(t.Context(), run("pre", nil)) }, nil, []string{"pre"}},
		{"taken over", func() error { return h.RunPre(t.Context(), run("pre", nil)) }, nil, nil},
		{"failed", func() error { return h.RunPost(t.Context(), false, run("post", nil)) }, nil, []string{"post"}},
		{"begun again", func() error { return h.RunPre(t.Context(), run("pre", nil)) }, nil, []string{"pre"}},
		{"undone", func() error { return h.Reset(t.Context()) }, nil, nil},
		{"begun again", func() error { return h.RunPre(t.Context(), run("pre", nil)) }, nil, []string{"pre"}},
		{"its hook fails", func() error { return h.RunPost(t.Context(), true, run("post", errPlain)) }, errPlain, []string{"post"}},
		{"begun again", func() error { return h.RunPre(t.Context(), run("pre", nil)) }, nil, nil},
		{"published", func() error { return h.RunPost(t.Context(), true, run("post", nil)) }, nil, []string{"post"}},
		{"died before that was on record", func() error { return h.RunPre(t.Context(), run("pre", nil)) }, nil, nil},
		{"published", func() error { return h.RunPost(t.Context(), true, run("post", nil)) }, nil, nil},
	} {
		ran = nil
		if err := step.do(); !errors.Is(err, step.fail) || !slices.Equal(ran, step.want) {
			t.Fatalf("%s: ran %v, want %v; %v", step.what, ran, step.want, err)
		}
	}
	if err := h.RunPre(stopped, run("pre", nil)); err == nil {
		t.Error("nobody knows what was run, and it goes on")
	}
}

// What a hook did is on record, although the attempt is stopped as it ends; and goes with its plan.
func TestHookOfAnAttemptThatIsStoppedIsRemembered(t *testing.T) {
	r := newRig(t, nil)
	r.submit("wave")
	r.submit("wave-2")
	for _, plan := range []string{"wave", "wave-2"} {
		h := VMHooks{r.db.Records, fleetdb.Key{Plan: plan, VM: "vm-1"}}
		ctx, stop := context.WithCancel(t.Context())
		if err := h.RunPre(ctx, func() error { stop(); return nil }); err != nil {
			t.Fatal(err)
		}
		if err := h.RunPre(t.Context(), func() error { return errPlain }); err != nil {
			t.Errorf("it was run again: %v", err)
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
		t.Errorf("left: %v, %v", left, err)
	}
}
