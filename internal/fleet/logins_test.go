package fleet

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/roster"
)

// Sessions of two processes find at the same time that the password expired: those of a process
// spend one login together, those of the next none. Resume lets them try again.
func TestSessionsSpendOneLoginTogether(t *testing.T) {
	r := newRig(t, nil)
	here, there := NewLogins(r.roster, "vc1:443", ""), NewLogins(r.roster, "vc1:443", "")
	var tried atomic.Int32
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if pass, _, err := here.Admit(t.Context()); err == nil {
				tried.Add(1)
				pass(errDenied)
			}
		})
	}
	all.Wait()
	if n := tried.Load(); n != 1 {
		t.Errorf("%d logins were refused", n)
	}
	if _, _, err := there.Admit(t.Context()); !fault.Is(err, fault.Denied) || fault.HintOf(err) == "" {
		t.Errorf("another process: %v", err)
	}
	if err := r.roster.Records.Drop(t.Context(), refusals, "vc1:443"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []bool{true, false} {
		pass, again, err := here.Admit(t.Context())
		if err != nil || again != want {
			t.Fatalf("after resume: again is %v, want %v; %v", again, want, err)
		}
		pass(nil)
	}
}

// Logins of many processes follow each other. One that a process died in is over with its lease.
func TestLoginsFollowEachOther(t *testing.T) {
	c := newClock()
	r := newRig(t, c)
	life, dies := context.WithCancel(t.Context())
	if _, _, err := NewLogins(r.roster, "vc1:443", "").Admit(life); err != nil {
		t.Fatal(err)
	}
	waited, end := context.WithCancel(t.Context())
	end()
	if _, _, err := NewLogins(r.roster, "vc1:443", "").Admit(waited); err == nil {
		t.Fatal("two log in")
	}
	dies()
	c.add(2 * loginTTL)
	var under, over atomic.Int32
	var all sync.WaitGroup
	for range 4 {
		process := NewLogins(r.roster, "vc1:443", "")
		for range 5 {
			all.Go(func() {
				err := process.try(t.Context(), func() error {
					if under.Add(1) > 1 {
						t.Error("two log in")
					}
					runtime.Gosched()
					under.Add(-1)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
				over.Add(1)
			})
		}
	}
	all.Wait()
	if over.Load() != 20 {
		t.Errorf("%d logins, of 20", over.Load())
	}
}

// What keeps from a login is told to people once, as a refusal is.
func TestCertificateThatChangedIsARefusal(t *testing.T) {
	r := newRig(t, nil)
	here := NewLogins(r.roster, "vc1:443", "")
	changed := fault.New(fault.Denied, "the certificate changed").WithHint("compare it")
	if err := here.Refuse(t.Context(), changed); !errors.Is(err, fault.ErrLogin) || fault.HintOf(err) != "compare it" {
		t.Errorf("it is %v", err)
	}
	if err := here.Refuse(t.Context(), errAway); errors.Is(err, fault.ErrLogin) {
		t.Errorf("marked: %v", err)
	}
	if _, _, err := NewLogins(r.roster, "vc1:443", "esx1").Admit(t.Context()); !errors.Is(err, fault.ErrLogin) {
		t.Errorf("somebody logs in by SSH: %v", err)
	}
}

// VMs of a plan come together: none waits for another, whoever of them logs in.
func TestVMsDoNotWaitForEachOthersLogins(t *testing.T) {
	const vms = 5
	r := newRig(t, nil)
	m := newMover(t, vmsOn(vms, 1)...)
	var begun atomic.Int32
	all := make(chan struct{})
	m.move = func(ctx context.Context, vm roster.VM, d Driver) error {
		if begun.Add(1) == vms {
			close(all)
		}
		select {
		case <-all:
		case <-ctx.Done():
			return ctx.Err()
		}
		return m.transfer(ctx, vm, d)
	}
	r.submit("wave")
	r.start(r.config(m, "w1"))
	r.waitFor("wave", roster.Done, vms)
}

// What a session refuses is no refused login: the others go on.
func TestWhatASessionRefusesIsNoRefusedLogin(t *testing.T) {
	r := newRig(t, nil)
	m := newMover(t, vmsOn(2, 1)...)
	m.move = func(ctx context.Context, vm roster.VM, d Driver) error {
		if vm.VM == "vm-1" {
			return fault.New(fault.Denied, "no permission to read the VM")
		}
		return m.transfer(ctx, vm, d)
	}
	r.submit("wave")
	r.start(r.config(m, "w1"))
	r.waitFor("wave", roster.Failed, 1)
	r.waitFor("wave", roster.Done, 1)
}
