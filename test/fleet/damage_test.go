package fleet

import (
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/test/lane"
)

// sqlitePage is the page size of both SQLite files.
const sqlitePage = 4096

// A damage is the effect of a machine crash or a disk error on closed files of a state directory.
type damage struct {
	t   *testing.T
	rnd *rand.Rand
	n   int // number of damaged files
}

// cut removes up to most bytes from the end of a file.
func (d *damage) cut(path string, most int) {
	d.t.Helper()
	size := d.size(path)
	must(d.t, os.Truncate(path, max(0, size-1-d.rnd.Int64N(min(int64(most), size)))))
	d.n++
}

// empty truncates a file to length 0.
func (d *damage) empty(path string) {
	d.t.Helper()
	must(d.t, os.Truncate(path, 0))
	d.n++
}

// append appends garbage to a file.
func (d *damage) append(path string) { d.garble(path, d.size(path), 1+d.rnd.IntN(3*sqlitePage)) }

// spoil overwrites the last bytes of a file with garbage.
func (d *damage) spoil(path string, length int) {
	size := d.size(path)
	d.garble(path, max(0, size-int64(length)), length)
}

func (d *damage) garble(path string, off int64, length int) {
	d.t.Helper()
	garbage := make([]byte, length)
	for i := range garbage {
		garbage[i] = byte(d.rnd.Uint32())
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	must(d.t, err)
	_, err = f.WriteAt(garbage, off)
	must(d.t, err)
	must(d.t, f.Close())
	d.n++
}

func (d *damage) size(path string) int64 {
	d.t.Helper()
	st, err := os.Stat(path)
	must(d.t, err)
	return st.Size()
}

// each calls f for all unpublished files under a folder whose names match the pattern.
func (d *damage) each(folder, pattern string, f func(path string)) {
	d.t.Helper()
	must(d.t, filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
		if _, pub := os.Stat(filepath.Join(filepath.Dir(path), "vm.json")); pub == nil {
			return err
		}
		if ok, _ := filepath.Match(pattern, e.Name()); ok && e.Type().IsRegular() {
			f(path)
		}
		return err
	}))
}

// unevenLabOf returns a slow lab whose first VM ends long before the others. No other VM is being published then: a
// publication that cannot be recorded is not part of this test.
func unevenLabOf(n int) lab.Config {
	cfg := labOf(n)
	cfg.Limits.DatastoreRate = slowRate
	for i := range cfg.VMs {
		cfg.VMs[i].Disks[0].Capacity = 10 << 20
	}
	cfg.VMs[0].Disks[0].Capacity = 1 << 20
	return cfg
}

// killPlan runs a plan, and kills the process when one of its VMs is done.
func (r *testEnv) killPlan(file string, vms int) {
	r.t.Helper()
	p := r.startCommand("plan", "run", file)
	v := r.waitFor("damaged", "a VM is done, and the others are under way", func(v view) bool {
		return v.count(fleetdb.Done) > 0 && v.count(fleetdb.Done, fleetdb.Running) == vms
	})
	r.lab.SetLimits(lab.Limits{DatastoreRate: trickle}) // no other VM is done before the kill
	eventually(r.t, "all running VMs have manifests", func() bool { return r.countManifests() >= v.count(fleetdb.Running) })
	must(r.t, r.seen.Close()) // before the kill, because the last Close removes the WAL
	r.seen = nil
	p.kill()
	r.t.Logf("killed with %d of %d done", v.count(fleetdb.Done), vms)
}

// countManifests returns the number of unpublished images whose manifest is not empty.
func (r *testEnv) countManifests() (n int) {
	r.t.Helper()
	found, err := filepath.Glob(filepath.Join(r.vmFolder(), "*.partial-*", "*.manifest"))
	must(r.t, err)
	for _, path := range found {
		if st, err := os.Stat(path); err == nil && st.Size() > 0 {
			n++
		}
	}
	return n
}

// moveAway follows the remedy for an unreadable file: it moves the file away with its -wal. It returns its name.
func (r *testEnv) moveAway(failed result) string {
	r.t.Helper()
	if !strings.Contains(failed.stderr, "Remedy: ") || !strings.Contains(failed.stderr, "move it away with its -wal") {
		r.t.Fatalf("exit code %d without the remedy to move the file away\nstderr: %s", failed.code, failed.stderr)
	}
	for _, name := range []string{"fleet.db", "state.db"} {
		if strings.Contains(failed.stderr, name) {
			for _, tail := range []string{"", "-wal", "-shm"} {
				_ = os.Rename(filepath.Join(r.stateDir(), name+tail), filepath.Join(r.dir, name+tail)) // an error if it does not exist
			}
			return name
		}
	}
	r.t.Fatalf("the remedy names no file: %s", failed.stderr)
	return ""
}

// After a crash the ends of files are truncated, lost, or garbage. The same command continues, or prints a remedy
// and continues after it. Each VM is correct and published once.
func TestDamagedStateResumesOrHasRemedy(t *testing.T) {
	t.Parallel()
	slow := map[string]bool{ // only in slow tests; the others do the same to another file, or to more of it
		"the database's log is gone": true, "the record's log is gone": true, "a part of the record's last page": true,
		"the database's file is cut": true, "the record's last page without its log": true,
		"the record's log is cut": true, "garbage after logs": true, "manifests are cut": true,
	}
	for name, apply := range map[string]func(*testEnv, *damage){
		"the database's log is cut":  func(r *testEnv, d *damage) { d.cut(filepath.Join(r.stateDir(), "fleet.db-wal"), 8*sqlitePage) },
		"the record's log is cut":    func(r *testEnv, d *damage) { d.cut(filepath.Join(r.stateDir(), "state.db-wal"), 8*sqlitePage) },
		"the database's log is gone": func(r *testEnv, d *damage) { d.empty(filepath.Join(r.stateDir(), "fleet.db-wal")) },
		"the record's log is gone":   func(r *testEnv, d *damage) { d.empty(filepath.Join(r.stateDir(), "state.db-wal")) },
		"garbage after logs":         func(r *testEnv, d *damage) { d.each(r.stateDir(), "*.db-wal", d.append) },
		"garbage after journals and manifests": func(r *testEnv, d *damage) {
			d.each(r.stateDir(), "journal.jsonl", d.append)
			d.each(r.vmFolder(), "*.manifest", d.append)
		},
		"manifests are cut": func(r *testEnv, d *damage) {
			d.each(r.vmFolder(), "*.manifest", func(path string) { d.cut(path, 100) })
		},
		"the database's last page": func(r *testEnv, d *damage) {
			r.run("status").wantExit(0) // the last Close merges the WAL into the file
			d.spoil(filepath.Join(r.stateDir(), "fleet.db"), sqlitePage)
		},
		"a part of the record's last page": func(r *testEnv, d *damage) {
			d.spoil(filepath.Join(r.stateDir(), "state.db"), sqlitePage/2)
		},
		"the database's file is cut": func(r *testEnv, d *damage) {
			r.run("status").wantExit(0)
			d.cut(filepath.Join(r.stateDir(), "fleet.db"), 3*sqlitePage)
		},
		"the record's file is cut without its log": func(r *testEnv, d *damage) {
			d.empty(filepath.Join(r.stateDir(), "state.db-wal"))
			d.cut(filepath.Join(r.stateDir(), "state.db"), 3*sqlitePage)
		},
		"the record's last page without its log": func(r *testEnv, d *damage) {
			d.empty(filepath.Join(r.stateDir(), "state.db-wal"))
			d.spoil(filepath.Join(r.stateDir(), "state.db"), sqlitePage)
		},
	} {
		if slow[name] && !lane.Slow {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const vms = 4
			d := &damage{t: t, rnd: newRand(t)}
			r := newTestEnv(t, unevenLabOf(vms))
			file := r.writePlanOfAll("damaged")
			r.killPlan(file, vms)
			apply(r, d)
			if d.n == 0 {
				t.Fatal("nothing was damaged")
			}
			r.lab.SetLimits(lab.Limits{})
			ran := r.run("plan", "run", file)
			for range 2 {
				if ran.code != 0 {
					t.Logf("%s is moved away: %s", r.moveAway(ran), ran.stderr)
					ran = r.run("plan", "run", file)
				}
			}
			ran.wantExit(0).wantOutput("4 done")
			r.checkAllMoved("damaged", r.vmFolder(), vms, r.stateDir())
		})
	}
}
