package migrate_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/testboot"
)

// migrateWithTrial runs a migration whose trial boot returns r and err. It returns the domains that were booted.
func (b *testBed) migrateWithTrial(permit migrate.Permit, r testboot.Report, err error) (domains []string, out migrate.Outcome, _ error) {
	b.t.Helper()
	p := b.newProcess()
	env := b.newEnvironment(b.t, b.dir)
	env.Boot = func(_ context.Context, domain string, _ []testboot.Static) (testboot.Report, error) {
		if b.published != nil {
			b.t.Error("the VM was published before the trial")
		}
		domains = append(domains, domain)
		return r, err
	}
	out, err = p.Migrate(b.t.Context(), b.plan(), env, permit)
	if err := p.engine.Close(); err != nil {
		b.t.Fatal(err)
	}
	return domains, out, err
}

func TestBootedImageIsPublished(t *testing.T) {
	t.Parallel()
	b := newTestBed(t)
	domains, out, err := b.migrateWithTrial(migrate.Permit{Trial: true}, testboot.Report{Verdict: testboot.Booted, Reason: "login:", Accel: testboot.TCG, Elapsed: time.Minute}, nil)
	if err != nil || len(domains) != 1 || !strings.Contains(domains[0], "domain of "+b.vm.Name+" with "+b.dir) {
		t.Fatalf("%q: %v", domains, err)
	}
	b.checkPublished(out)
	if out.Facts.Trial == nil || !out.Facts.Trial.Booted() {
		t.Errorf("recorded: %+v", out.Facts.Trial)
	}
}

// A VM that does not boot is kept and not published. A command without --trial publishes it.
func TestUnbootableVMIsNotPublished(t *testing.T) {
	t.Parallel()
	b := newTestBed(t)
	stuck := testboot.Report{Verdict: testboot.Initramfs, Reason: "(initramfs)", Remedy: "convert it", Screen: "screen.png", Serial: "serial.log"}
	_, _, err := b.migrateWithTrial(migrate.Permit{Trial: true}, stuck, nil)
	hint := fault.HintOf(err)
	if !fault.Is(err, fault.Unsupported) || !strings.Contains(err.Error(), "does not boot (initramfs): (initramfs); see its screen in screen.png and its serial port in serial.log") || !strings.Contains(hint, "convert it. Nothing is published") {
		t.Errorf("%v (remedy: %s)", err, hint)
	}
	if b.published != nil {
		t.Fatal("the VM is published")
	}
	written := b.written.Load()
	domains, out, err := b.migrateWithTrial(migrate.Permit{}, stuck, nil)
	if err != nil || len(domains) != 0 {
		t.Fatalf("%q: %v", domains, err)
	}
	b.checkPublished(out)
	if b.written.Load() != written {
		t.Error("the disks were copied again")
	}
}

// A guest that boots without one of its addresses is published, and decamp reports and records a warning.
func TestMissingAddressesCauseWarning(t *testing.T) {
	t.Parallel()
	b := newTestBed(t)
	lost := testboot.Static{MAC: "00:50:56:ab:cd:01", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.5")}}
	_, out, err := b.migrateWithTrial(migrate.Permit{Trial: true}, testboot.Report{Verdict: testboot.Booted, Reason: "login:", Agent: &testboot.Agent{OS: "Debian"}, Missing: []testboot.Static{lost}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	b.checkPublished(out)
	is := func(w inventory.Warning) bool {
		return w.Code == "address-missing" && strings.Contains(w.Text, "00:50:56:ab:cd:01 has not got 10.0.0.5") && w.Remedy != ""
	}
	if !slices.ContainsFunc(out.Facts.Warnings, is) || !slices.ContainsFunc(b.published.Warnings, is) {
		t.Errorf("recorded warnings %+v, published warnings %+v", out.Facts.Warnings, b.published.Warnings)
	}
	if notes := b.eventsOf(journal.Noted); !slices.ContainsFunc(notes, func(e journal.Event) bool { return strings.HasSuffix(e.Message, "login:; its agent answers: Debian") }) {
		t.Errorf("notes %+v", notes)
	}
}

// If the trial cannot run, the migration fails with its error before it publishes the VM.
func TestFailedTrialPreventsPublish(t *testing.T) {
	t.Parallel()
	b := newTestBed(t)
	gone := errors.New("no QEMU")
	if _, _, err := b.migrateWithTrial(migrate.Permit{Trial: true}, testboot.Report{}, gone); !errors.Is(err, gone) || b.published != nil {
		t.Errorf("%v", err)
	}
}
