package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/lab/loopback"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/test/lane"
)

// flippedAt is the offset of a byte in the first MiB of a disk, which decamp reads again by default. Probes read only the
// sector before it.
const flippedAt = 700

// oneFullDisk returns a lab with one VM. Its disk is full and too large to be read again completely.
func oneFullDisk() lab.Config {
	return lab.Config{VMs: []lab.VM{{
		Name: "web01", ChangeTracking: true, NICs: []lab.NIC{{}},
		Disks: []lab.Disk{{Capacity: 96 << 20, Fill: 100, Seed: 1}},
	}}}
}

// rereadOf returns the entry in vm.json about the second reading of the only disk.
func (r *rig) rereadOf(folder string) (reread struct {
	Chunks, Of, Random int64
	By, Seed, NotRead  string
}) {
	r.t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, "vm.json"))
	must(r.t, err)
	var record struct {
		Checks []struct {
			Key    int32
			Reread json.RawMessage
		}
	}
	must(r.t, json.Unmarshal(text, &record))
	if len(record.Checks) != 1 || record.Checks[0].Key != 2000 {
		r.t.Fatalf("vm.json has the checks %+v", record.Checks)
	}
	must(r.t, json.Unmarshal(record.Checks[0].Reread, &reread))
	return reread
}

// By default decamp finds a bit that is wrong in the first reading and correct in the second one. It does not publish the
// VM. The same command copies the disk again.
func TestSpotFindsWrongSourceData(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]struct {
		fault lab.FaultKind
		path  string
		warm  bool
		by    string
		args  []string
	}{
		"https":      {fault: lab.FaultReadFlip, path: "-flat.vmdk", by: "https"},
		"nfc":        {fault: lab.FaultNFCFlip, by: "nfc", args: []string{"--transport", "nfc"}},
		"landing":    {fault: lab.FaultCloneFlip, by: "https", args: []string{"--transport", "landing"}},
		"warm https": {fault: lab.FaultReadFlip, path: "-flat.vmdk", warm: true, by: "https"},
		"warm nfc":   {fault: lab.FaultNFCFlip, warm: true, by: "nfc", args: []string{"--transport", "nfc"}},
	} {
		if !lane.Slow && name != "https" && name != "warm nfc" {
			continue // one cold and one warm migration
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := oneFullDisk()
			args := v.args
			if name == "landing" {
				portmap := loopback.Reserve(t)
				cfg.NFS = lab.NFS{Portmap: portmap}
				args = append(args, "--landing-listen", "127.0.0.1:0", "--landing-portmap", portmap)
			}
			if v.warm {
				cfg.Locks, cfg.VMs[0].PoweredOn = lab.LockActive, true
				args = append(args, "--warm", "--interval", "300ms", "--downtime-budget", "1h")
			}
			r := newRig(t, cfg).withFingerprint()
			_, err := r.lab.Faults().Add(lab.Fault{Kind: v.fault, Path: v.path, At: flippedAt, Count: 1})
			must(t, err)
			r.migrate("web01", args...).wantExit(8).wantOutput("disk 2000 at 0:", "differs from the copied data", "nothing was published", "--source-hash")
			if len(r.lab.Faults().List()) > 0 {
				t.Fatal("the bit was not flipped")
			}
			if left, _ := filepath.Glob(filepath.Join(r.vmsDir(), "web01")); len(left) > 0 {
				t.Fatal("the VM is published")
			}
			if chosen := r.journaledEvents(journal.SourceReread, "verify"); len(chosen) != 1 || len(chosen[0].Reread.Seed) != 64 || chosen[0].Reread.By != v.by {
				t.Errorf("events %+v", chosen)
			}
			r.migrate("web01", args...).wantExit(0).wantOutput("CHECKED\ndisk 2000: image = data read from the source (all); source re-read: ", " of 96 chunks equal", "--source-hash")
			r.compareImage(r.imagePath(0), "web01", 0)
			if got := r.rereadOf(filepath.Join(r.vmsDir(), "web01")); got.Chunks < 66 || got.Chunks > 95 || got.Of != 96 || got.Random != 64 || got.By != v.by || got.NotRead != "" {
				t.Errorf("vm.json: %+v", got)
			}
		})
	}
}

// With --spot 0 decamp reads nothing a second time, so it does not find the wrong bit. The result reports that.
func TestSpotZeroSkipsReread(t *testing.T) {
	t.Parallel()
	r := newRig(t, oneFullDisk()).withFingerprint()
	_, err := r.lab.Faults().Add(lab.Fault{Kind: lab.FaultReadFlip, Path: "-flat.vmdk", At: flippedAt, Count: 1})
	must(t, err)
	res := r.migrate("web01", "--spot", "0").wantExit(0).wantOutput("source re-read: none: turned off by the user", "--source-hash")
	if strings.Contains(res.stdout, "proven") {
		t.Errorf("the output contains \"proven\": %s", res.stdout)
	}
	if got := r.rereadOf(filepath.Join(r.vmsDir(), "web01")); got.Chunks != 0 || got.NotRead == "" {
		t.Errorf("vm.json: %+v", got)
	}
	if len(r.lab.Faults().List()) > 0 {
		t.Fatal("the bit was not flipped")
	}
	var out struct {
		Facts struct {
			Verified []struct{ Reread struct{ NotRead string } }
		}
	}
	r.migrate("web01", "--json").wantExit(0).decodeLast(&out)
	if v := out.Facts.Verified; len(v) != 1 || v[0].Reread.NotRead == "" {
		t.Errorf("as JSON: %+v", v)
	}
}

// A plan reports a VM as failed if a bit was wrong in the first reading. The second reading of a sample finds it: after a
// complete copy, or before an interrupted copy continues.
func TestWrongSourceDataFailsPlan(t *testing.T) {
	t.Parallel()
	for name, isInterrupted := range map[string]bool{"complete copy": false, "interrupted copy": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, oneFullDisk()).withFingerprint()
			plan := r.writeFile("plan.yaml", "version: 1\nname: wave\nsource:\n  url: "+r.url()+"\n  fingerprint: \""+r.lab.Fingerprint()+"\"\n  credentials: {file: password}\n"+
				"defaults: {to: [\"dir:"+r.vmsDir()+"\"]}\nvms:\n  - vm: web01\n")
			_, err := r.lab.Faults().Add(lab.Fault{Kind: lab.FaultReadFlip, Path: "-flat.vmdk", At: flippedAt, Count: 1})
			must(t, err)
			if isInterrupted {
				r.lab.SetLimits(lab.Limits{DatastoreRate: slowRate / 4})
				u := r.startCommand("plan", "run", plan)
				r.waitForManifests(1, "the manifest lists the first chunk", func(m *manifest.Log) bool { return m.Has(0) })
				u.endWith(syscall.SIGKILL)
				r.lab.SetLimits(lab.Limits{})
			}
			res := r.run("plan", "run", plan)
			out := res.stdout + res.stderr
			if res.code == 0 || !strings.Contains(out, "differs from the copied data") {
				t.Fatalf("exit code %d\n%s", res.code, out)
			}
			if left, _ := filepath.Glob(filepath.Join(r.vmsDir(), "web01")); len(left) > 0 {
				t.Fatal("the VM is published")
			}
			isResumed := strings.Contains(out, "check source before resuming") // also if the worker's lease was overdue
			if isInterrupted && !isResumed {
				t.Fatalf("the copy did not continue: %s", out)
			}
			if isResumed {
				r.run("rollback", "wave/web01").wantExit(0)
				r.run("plan", "run", plan).wantExit(130).wantOutput("1 of 1 VM was canceled")
			}
			r.run("retry", "wave").wantExit(0)
			r.run("plan", "run", plan).wantExit(0)
			r.compareImage(r.imagePath(0), "web01", 0)
			if got := r.rereadOf(filepath.Join(r.vmsDir(), "web01")); got.Chunks < 66 || got.By != "https" {
				t.Errorf("vm.json: %+v", got)
			}
		})
	}
}
