package fleetdb

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetkey"
)

func newKeys(t *testing.T) *fleetkey.Keys {
	t.Helper()
	return ok(fleetkey.Create(filepath.Join(t.TempDir(), fleetkey.FileName)))(t)
}

// openWith opens the database with keys, which may be nil.
func (p *testDatabase) openWith(keys *fleetkey.Keys) *Database {
	p.t.Helper()
	r := ok(Open(p.t.Context(), Config{URL: p.url, Keys: keys}))(p.t)
	p.t.Cleanup(func() { r.Close() })
	return r
}

// columnNames returns the names of a table's columns.
func columnNames(t *testing.T, r *Database, table string) []string {
	t.Helper()
	rows := ok(r.db.durable.Query(`SELECT * FROM ` + table + ` WHERE 1 = 0`))(t)
	defer rows.Close()
	return ok(rows.Columns())(t)
}

// Every column of a plan and of a VM is signed, except those listed here. They contain the progress and the worker.
func TestChangedRowsAreRefused(t *testing.T) {
	unsigned := map[string][]string{
		"plans": {"listed", "ord", "state", "failure", "ended", "rev"},
		"vms": {"seq", "state", "step", "waits", "worker", "storage", "epoch", "asks", "holds", "since", "expected", "ord", "rehearse",
			"attempts", "not_before", "began", "ended", "failure", "rev"},
	}
	changes := map[string]string{ // SQL expressions for columns that are not text
		"created": "created + 1", "warm": "NOT warm", "listing": `'{"name":"web1","to":["dir:/etc"]}'`,
	}
	onBoth(t, func(t *testing.T, p *testDatabase) {
		ctx, r := t.Context(), p.openWith(newKeys(t))
		add := func(name string) (Plan, VM) {
			ok(r.Plans.Add(ctx, Plan{Name: name, Text: "version: 1", Folder: "/srv", By: "ann", Role: "admin"}))(t)
			must(t, r.VMs.Add(ctx, []VM{{Key: Key{name, "vm-1"}, Name: "web1", To: []string{"dir:/srv/vm"}, Spec: []byte(`{"mode":"cold"}`)}}))
			return ok(r.Plans.Get(ctx, name))(t), ok(r.VMs.Get(ctx, Key{name, "vm-1"}))(t)
		}
		whole, vm := add("whole")
		must(t, r.Plans.Verify(whole))
		must(t, r.VMs.Verify(whole, vm))
		if whole.Role != "admin" {
			t.Errorf("role %q", whole.Role)
		}
		for table, except := range unsigned {
			for _, column := range columnNames(t, r, table) {
				if slices.Contains(except, column) {
					continue
				}
				name := "p-" + table + "-" + strings.ReplaceAll(column, "_", "-")
				before, _ := add(name)
				key, now := map[string]string{"plans": "name", "vms": "plan"}[table], name
				change := changes[column]
				switch {
				case column == "vm":
					change = "'vm-2'"
				case column == key:
					now = name + "-x"
					change = "'" + now + "'"
				case change == "":
					change = column + " || 'x'"
				}
				ok(r.db.durable.Exec(`UPDATE ` + table + ` SET ` + column + ` = ` + change + ` WHERE ` + key + ` = '` + name + `'`))(t)
				var err error
				switch {
				case table == "plans":
					err = r.Plans.Verify(ok(r.Plans.Get(ctx, now))(t))
				case column == "vm":
					err = r.VMs.Verify(before, ok(r.VMs.Get(ctx, Key{now, "vm-2"}))(t))
				default:
					err = r.VMs.Verify(before, ok(r.VMs.Get(ctx, Key{now, "vm-1"}))(t))
				}
				if !fault.Is(err, fault.Denied) || fault.HintOf(err) == "" {
					t.Errorf("column %s of %s was changed: got %v, want Denied with a hint", column, table, err)
				}
			}
		}
	})
}

// The signature of a VM is valid for one plan only. It is invalid for a later plan of the same name.
func TestSignedRowsAreNotReplayed(t *testing.T) {
	onBoth(t, func(t *testing.T, p *testDatabase) {
		ctx, r := t.Context(), p.openWith(newKeys(t))
		var plans []Plan
		var vms []VM
		for range 2 {
			ok(r.Plans.Add(ctx, Plan{Name: "p", Text: "version: 1"}))(t)
			must(t, r.VMs.Add(ctx, someVMs("p", 1)))
			plans, vms = append(plans, ok(r.Plans.Get(ctx, "p"))(t)), append(vms, ok(r.VMs.Get(ctx, key(1)))(t))
			must(t, r.Plans.SetState(ctx, "p", PlanEnded, nil))
			must(t, r.Plans.Drop(ctx, "p"))
		}
		must(t, r.VMs.Verify(plans[0], vms[0]))
		must(t, r.VMs.Verify(plans[1], vms[1]))
		for i, vm := range []VM{vms[1], vms[0]} {
			if err := r.VMs.Verify(plans[i], vm); !fault.Is(err, fault.Denied) {
				t.Errorf("a VM of the other plan: got %v, want Denied", err)
			}
		}
		other := p.openWith(newKeys(t))
		if err := other.Plans.Verify(plans[0]); !fault.Is(err, fault.Denied) {
			t.Errorf("a plan of a fleet with another key: got %v, want Denied", err)
		}
		if err := p.openWith(nil).Plans.Verify(plans[0]); !fault.Is(err, fault.Denied) || !strings.Contains(fault.HintOf(err), "--fleet-key") {
			t.Errorf("without a key: got %v, want Denied with a hint on --fleet-key", err)
		}
	})
}

// A plan without a signature, or whose key was removed, is signed when it is submitted again.
func TestUnsignedPlanIsSignedWhenItIsSubmittedAgain(t *testing.T) {
	onBoth(t, func(t *testing.T, p *testDatabase) {
		ctx, old, r := t.Context(), p.openWith(nil), p.openWith(newKeys(t))
		submitted := ok(old.Plans.Add(ctx, Plan{Name: "p", Text: "version: 1", Folder: "/old", By: "eve"}))(t)
		must(t, old.VMs.Add(ctx, someVMs("p", 2)))
		must(t, old.Plans.SetState(ctx, "p", PlanRunning, &Failure{Text: "refused"}))
		if err := r.Plans.Verify(ok(r.Plans.Get(ctx, "p"))(t)); !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), "no signature") {
			t.Fatalf("a plan without a signature: got %v, want Denied", err)
		}

		ok(r.Plans.Add(ctx, Plan{Name: "p", Text: "version: 1", Folder: "/srv", By: "ann", Role: "operate"}))(t)
		plan := ok(r.Plans.Get(ctx, "p"))(t)
		must(t, r.Plans.Verify(plan))
		if plan.State != PlanListing || plan.Failure != nil || plan.By != "ann" || plan.Role != "operate" || plan.Folder != "/srv" || plan.Created != submitted.Created {
			t.Errorf("plan %+v", plan)
		}
		if err := r.VMs.Verify(plan, ok(r.VMs.Get(ctx, key(1)))(t)); !fault.Is(err, fault.Denied) {
			t.Errorf("a VM before it is listed again: got %v, want Denied", err)
		}
		again := someVMs("p", 3)
		again[0].To = []string{"dir:/srv/new"}
		must(t, r.VMs.Add(ctx, again))
		for n := range 3 {
			must(t, r.VMs.Verify(plan, ok(r.VMs.Get(ctx, key(n+1)))(t)))
		}
		again[0].To = []string{"dir:/srv/newer"}
		must(t, r.VMs.Add(ctx, again))
		if vm := ok(r.VMs.Get(ctx, key(1)))(t); vm.To[0] != "dir:/srv/new" {
			t.Errorf("a signed VM was replaced: %q", vm.To)
		}

		// A signed plan that is submitted again keeps its role.
		ok(r.Plans.Add(ctx, Plan{Name: "p", Text: "version: 1", Folder: "/x", By: "bob", Role: "view"}))(t)
		if same := ok(r.Plans.Get(ctx, "p"))(t); same.Role != "operate" || same.By != "ann" {
			t.Errorf("submitted by %s as %s", same.By, same.Role)
		}
	})
}

// A signed record is refused if its content, its ID or its kind was changed.
func TestChangedRecordsAreRefused(t *testing.T) {
	onBoth(t, func(t *testing.T, p *testDatabase) {
		const doc = "{\n \"what\": \"a<b\"}\n"
		ctx, r := t.Context(), p.openWith(newKeys(t))
		for _, id := range []string{"whole", "changed", "moved"} {
			must(t, r.Records.PutSigned(ctx, "leftover", id, []byte(doc)))
		}
		must(t, r.Records.Put(ctx, "leftover", "unsigned", []byte(`{"what":"snapshot"}`)))
		must(t, r.Records.PutSigned(ctx, "other", "kind", []byte(doc)))
		for _, change := range []string{
			`UPDATE records SET doc = replace(doc, 'a', 'b') WHERE id = 'changed'`,
			`UPDATE records SET id = 'elsewhere' WHERE id = 'moved'`,
			`UPDATE records SET kind = 'leftover' WHERE id = 'kind'`,
		} {
			ok(r.db.durable.Exec(change))(t)
		}
		docs, err := r.Records.ListSigned(ctx, "leftover")
		if len(docs) != 1 || string(docs["whole"]) != doc {
			t.Errorf("records %q, want the one that was not changed", docs)
		}
		for _, id := range []string{"changed", "elsewhere", "unsigned", "kind"} {
			if err == nil || !strings.Contains(err.Error(), "record "+id+" ") {
				t.Errorf("error %v, want one that names %s", err, id)
			}
		}
		if !fault.Is(err, fault.Denied) {
			t.Errorf("error %v, want Denied", err)
		}
	})
}
