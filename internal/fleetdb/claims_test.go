package fleetdb

import (
	"errors"
	"testing"
	"time"
)

func TestVMLifeCycleFromGrantToFinish(t *testing.T) {
	onBoth(t, func(t *testing.T, p *testDatabase) {
		ctx := t.Context()
		f := newFleet(t, p.open(), 3)
		if v := f.getVM(1); v.State != Queued || v.Requested != First || v.Epoch != 0 {
			t.Fatalf("new VM: %+v", v)
		}
		c := f.grantVM(1, "w1")
		must(t, f.Claims.Begin(ctx, c, []string{"id-w1"}))
		must(t, f.Claims.SetStep(ctx, c, "copy", "waits for the image's lock"))
		if v := f.getVM(1); v.State != Running || v.Step != "copy" || v.WaitReason == "" || v.Began.IsZero() || v.Storage[0] != "id-w1" || v.Since.IsZero() || v.Expected != time.Hour {
			t.Fatalf("running VM: %+v", v)
		}
		must(t, f.Claims.EndTransfer(ctx, c))
		must(t, f.Claims.RequestTransfer(ctx, c, Cutover, time.Minute))
		if v := f.getVM(1); v.Granted || v.Requested != Cutover || v.Expected != time.Minute || !v.Since.IsZero() {
			t.Fatalf("VM that requests a transfer: %+v", v)
		}
		vms := ok(f.Scheduling.Grant(ctx, f.sched, []Granted{{Key: key(1), Worker: "w1", Expected: time.Minute}}))(t)
		if len(vms) != 1 || vms[0].State != Running || !vms[0].Granted || vms[0].Epoch != c.Epoch {
			t.Fatalf("VM with the requested transfer: %+v", vms)
		}
		must(t, f.Claims.Finish(ctx, c, End{State: Done}))
		must(t, f.Claims.Finish(ctx, c, End{State: Done})) // the response was lost
		if v := f.getVM(1); v.State != Done || v.Granted || v.Requested != NoTransfer || v.Ended.IsZero() || v.Attempts != 0 {
			t.Fatalf("VM that is done: %+v", v)
		}
		if err := f.Claims.SetStep(ctx, c, "copy", ""); !errors.Is(err, ErrFenced) {
			t.Errorf("SetStep after the end: got %v, want ErrFenced", err)
		}
	})
}
