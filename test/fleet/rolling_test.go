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

// Two workers of an old version share the storage of a plan. Each is stopped by SIGTERM during its copies, and started
// again with a new version. Every VM is moved once, and the list of workers contains their versions. After that an
// incompatible version upgrades the database, and the workers end with a remedy.
func TestWorkersAreUpgradedOneByOne(t *testing.T) {
	t.Parallel()
	newer := filepath.Join(t.TempDir(), "decamp")
	must(t, program.BuildVersion(newer, "0.2.0-test"))
	r := newPostgresEnv(t, slowLabOf(6))
	versions := func() (a, b string) {
		workers, err := r.database().Workers.List(t.Context())
		must(t, err)
		if len(workers) != 2 {
			t.Fatalf("workers are %+v, want 2", workers)
		}
		return workers[0].Version, workers[1].Version
	}
	a, b := r.startWorker("a", r.vmFolder(), "--vms", "3"), r.startWorker("b", r.vmFolder(), "--vms", "3")
	r.submitPlan(r.writePlanOfAll("rolling"))
	r.waitFor("rolling", "both have begun", func(v view) bool { return len(v.runningOn("a")) > 0 && len(v.runningOn("b")) > 0 })
	r.waitForSent(slowRate)
	old, _ := versions()
	for _, m := range []*machine{a, b} {
		if code := m.stop(); code != 0 {
			t.Errorf("worker %s ended with %d", m.name, code)
		}
		v := r.waitFor("rolling", "its VMs are returned", func(v view) bool { return len(v.runningOn(m.name)) == 0 })
		if n := v.count(fleetdb.Failed, fleetdb.Stranded); n > 0 {
			t.Errorf("worker %s ended with failed or stranded VMs: %s", m.name, v)
		}
		m.process = r.startWorkerOf(newer, m.name, r.vmFolder(), "--vms", "3").process
		r.waitFor("rolling", "the new process has VMs", func(v view) bool { return len(v.runningOn(m.name)) > 0 })
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
	r.checkAllMoved("rolling", r.vmFolder(), 6, a.state, b.state)
	r.setIncompatibleVersion()
	for _, m := range []*machine{a, b} {
		m.wantExit(7).wantOutput("the fleet database has schema version 99", "install the version of decamp that the other servers and workers have")
	}
	r.run("status", "rolling").wantExit(7).wantOutput("the fleet database has schema version 99")
}

// setIncompatibleVersion changes the version of the database as an incompatible release does.
func (r *testEnv) setIncompatibleVersion() {
	r.t.Helper()
	db, err := sql.Open("pgx", r.db)
	must(r.t, err)
	_, err = db.Exec(`UPDATE decamp.meta SET version = 99, oldest = 99`)
	must(r.t, errors.Join(err, db.Close()))
}
