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

// sqlitePage is the size of a page of both files.
const sqlitePage = 4096

// A damage is the effect of a machine crash or a disk error on closed files of a state directory.
type damage struct {
	t   *testing.T
	rnd *rand.Rand
	n   int // files that were damaged
}

// cut removes up to most bytes from the end of a file.
func (d *damage) cut(path string, most int) {
	d.t.Helper()
	size := d.size(path)
	must(d.t, os.Truncate(path, max(0, size-1-d.rnd.Int64N(min(int64(most), size)))))
	d.n++
}

// empty leaves nothing of a file.
func (d *damage) empty(path string) {
	d.t.Helper()
	must(d.t, os.Truncate(path, 0))
	d.n++
}

// append puts garbage behind the end of a file.
func (d *damage) append(path string) { d.garble(path, d.size(path), 1+d.rnd.IntN(3*sqlitePage)) }

// spoil makes garbage of the last page of a file, or of its last part only.
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

// each does something to all files of a name under a folder that are not published.
func (d *damage) each(folder, pattern string, do func(path string)) {
	d.t.Helper()
	must(d.t, filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
		if _, pub := os.Stat(filepath.Join(filepath.Dir(path), "vm.json")); pub == nil {
			return err
		}
		if ok, _ := filepath.Match(pattern, e.Name()); ok && e.Type().IsRegular() {
			do(path)
		}
		return err
	}))
}

// uneven returns a slow lab whose first VM ends long before the others, so that none of those is about to be published
// then. A publication that could not be recorded any more is not part of this test.
func uneven(n int) lab.Config {
	cfg := slow(n)
	for i := range cfg.VMs {
		cfg.VMs[i].Disks[0].Capacity = 10 << 20
	}
	cfg.VMs[0].Disks[0].Capacity = 1 << 20
	return cfg
}

// asAfterACrash begins a plan and kills it in the middle, once one of its VMs is done.
func (r *rig) asAfterACrash(file string, vms int) {
	r.t.Helper()
	p := r.begin("plan", "run", file)
	v := r.until("damaged", "a VM is done, and the others are under way", func(v view) bool {
		return v.count(fleetdb.Done) > 0 && v.count(fleetdb.Done, fleetdb.Running) == vms
	})
	eventually(r.t, "there are manifests", func() bool { return r.growing() >= v.count(fleetdb.Running) })
	must(r.t, r.seen.Close()) // not the last one, or the log would be gone
	r.seen = nil
	p.kill()
	r.t.Logf("killed with %d of %d done", v.count(fleetdb.Done), vms)
}

// growing is how many images that are not published have a manifest with something in it.
func (r *rig) growing() (n int) {
	r.t.Helper()
	found, err := filepath.Glob(filepath.Join(r.vms(), "*.partial-*", "*.manifest"))
	must(r.t, err)
	for _, path := range found {
		if st, err := os.Stat(path); err == nil && st.Size() > 0 {
			n++
		}
	}
	return n
}

// setAside follows the remedy for a file that cannot be read: it moves the file away with its -wal. It returns its
// name.
func (r *rig) setAside(said result) string {
	r.t.Helper()
	if !strings.Contains(said.stderr, "Remedy: ") || !strings.Contains(said.stderr, "move it away with its -wal") {
		r.t.Fatalf("exit code %d, and nobody was told what to do\nstderr: %s", said.code, said.stderr)
	}
	for _, name := range []string{"fleet.db", "state.db"} {
		if strings.Contains(said.stderr, name) {
			for _, tail := range []string{"", "-wal", "-shm"} {
				_ = os.Rename(filepath.Join(r.state(), name+tail), filepath.Join(r.dir, name+tail)) // it need not be there
			}
			return name
		}
	}
	r.t.Fatalf("the remedy names no file: %s", said.stderr)
	return ""
}

// After a crash the ends of files are torn, lost, or garbage. The same command continues, or prints a remedy and
// continues after it. No VM is wrong or published twice.
func TestDamagedStateGoesOnOrSaysWhatToDo(t *testing.T) {
	t.Parallel()
	slow := map[string]bool{ // the others do the same to another file, or to more of it
		"the database's log is gone": true, "the record's log is gone": true, "a part of the record's last page": true,
		"the database's file is cut": true, "the record's last page without its log": true,
		"the record's log is cut": true, "garbage behind logs": true, "manifests are cut": true,
	}
	for name, do := range map[string]func(*rig, *damage){
		"the database's log is cut":  func(r *rig, d *damage) { d.cut(filepath.Join(r.state(), "fleet.db-wal"), 8*sqlitePage) },
		"the record's log is cut":    func(r *rig, d *damage) { d.cut(filepath.Join(r.state(), "state.db-wal"), 8*sqlitePage) },
		"the database's log is gone": func(r *rig, d *damage) { d.empty(filepath.Join(r.state(), "fleet.db-wal")) },
		"the record's log is gone":   func(r *rig, d *damage) { d.empty(filepath.Join(r.state(), "state.db-wal")) },
		"garbage behind logs":        func(r *rig, d *damage) { d.each(r.state(), "*.db-wal", d.append) },
		"garbage behind journals and manifests": func(r *rig, d *damage) {
			d.each(r.state(), "journal.jsonl", d.append)
			d.each(r.vms(), "*.manifest", d.append)
		},
		"manifests are cut": func(r *rig, d *damage) {
			d.each(r.vms(), "*.manifest", func(path string) { d.cut(path, 100) })
		},
		"the database's last page": func(r *rig, d *damage) {
			r.run("status").ends(0) // whoever closes it last puts its log into it
			d.spoil(filepath.Join(r.state(), "fleet.db"), sqlitePage)
		},
		"a part of the record's last page": func(r *rig, d *damage) {
			d.spoil(filepath.Join(r.state(), "state.db"), sqlitePage/2)
		},
		"the database's file is cut": func(r *rig, d *damage) {
			r.run("status").ends(0)
			d.cut(filepath.Join(r.state(), "fleet.db"), 3*sqlitePage)
		},
		"the record's file is cut without its log": func(r *rig, d *damage) {
			d.empty(filepath.Join(r.state(), "state.db-wal"))
			d.cut(filepath.Join(r.state(), "state.db"), 3*sqlitePage)
		},
		"the record's last page without its log": func(r *rig, d *damage) {
			d.empty(filepath.Join(r.state(), "state.db-wal"))
			d.spoil(filepath.Join(r.state(), "state.db"), sqlitePage)
		},
	} {
		if slow[name] && !lane.Slow {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const vms = 4
			d := &damage{t: t, rnd: seeded(t)}
			r := newRig(t, uneven(vms))
			file := r.all("damaged")
			r.asAfterACrash(file, vms)
			do(r, d)
			if d.n == 0 {
				t.Fatal("nothing was damaged")
			}
			r.lab.SetLimits(lab.Limits{})
			ran := r.run("plan", "run", file)
			for range 2 {
				if ran.code != 0 {
					t.Logf("%s is set aside: %s", r.setAside(ran), ran.stderr)
					ran = r.run("plan", "run", file)
				}
			}
			ran.ends(0).says("4 done")
			r.allIsHere("damaged", r.vms(), vms, r.state())
		})
	}
}
