package fleet

import (
	"database/sql"
	"errors"
	"path/filepath"
	"testing"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/test/program"
)

// Two workers of an old version share the storage of a plan. Each is ended by SIGTERM amid its copies, and started
// again with a new version. Every VM ends once, and the list of workers shows their versions. Then a later,
// incompatible version upgrades the database: the workers end with the remedy.
func TestWorkersAreUpgradedOneByOne(t *testing.T) {
	t.Parallel()
	newer := filepath.Join(t.TempDir(), "decamp")
	must(t, program.BuildVersion(newer, "0.2.0-test"))
	r := newFleet(t, slow(6))
	versions := func() (a, b string) {
		workers, err := r.database().Workers.List(t.Context())
		must(t, err)
		if len(workers) != 2 {
			t.Fatalf("workers %+v", workers)
		}
		return workers[0].Version, workers[1].Version
	}
	a, b := r.worker("a", r.vms(), "--vms", "3"), r.worker("b", r.vms(), "--vms", "3")
	r.submits(r.all("rolling"))
	r.until("rolling", "both have begun", func(v view) bool { return len(v.of("a")) > 0 && len(v.of("b")) > 0 })
	r.sent(slowRate)
	old, _ := versions()
	for _, m := range []*machine{a, b} {
		if code := m.stops(); code != 0 {
			t.Errorf("worker %s ended with %d", m.name, code)
		}
		v := r.until("rolling", "its VMs are returned", func(v view) bool { return len(v.of(m.name)) == 0 })
		if n := v.count(fleetdb.Failed, fleetdb.Stranded); n > 0 {
			t.Errorf("worker %s ended, and left %s", m.name, v)
		}
		m.process = r.workerOf(newer, m.name, r.vms(), "--vms", "3").process
		r.until("rolling", "the new process has VMs", func(v view) bool { return len(v.of(m.name)) > 0 })
		if m == a {
			if a, b := versions(); a != "0.2.0-test" || b != old {
				t.Errorf("the versions are %s and %s", a, b)
			}
		}
	}
	if a, b := versions(); a != "0.2.0-test" || b != "0.2.0-test" {
		t.Errorf("the versions are %s and %s", a, b)
	}
	r.lab.SetLimits(lab.Limits{})
	r.allIsHere("rolling", r.vms(), 6, a.state, b.state)
	r.upgradedIncompatibly()
	for _, m := range []*machine{a, b} {
		m.ends(7).says("the fleet database has schema version 99", "install the version of decamp that the other servers and workers have")
	}
	r.run("status", "rolling").ends(7).says("the fleet database has schema version 99")
}

// upgradedIncompatibly changes the version of the database as an incompatible release does.
func (r *rig) upgradedIncompatibly() {
	r.t.Helper()
	db, err := sql.Open("pgx", r.db)
	must(r.t, err)
	_, err = db.Exec(`UPDATE decamp.meta SET version = 99, oldest = 99`)
	must(r.t, errors.Join(err, db.Close()))
}
