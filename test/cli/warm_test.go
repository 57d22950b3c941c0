package cli

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/lab/loopback"
	"github.com/decamp/decamp/test/lane"
)

// writing is a lab with one VM that runs, and whose guest writes all the time.
func writing() lab.Config {
	cfg := small()
	cfg.Locks = lab.LockActive // or /folder has nothing for https
	vm := &cfg.VMs[0]
	vm.PoweredOn, vm.ChangeTracking, vm.Disks = true, false, fewBytes()
	vm.Guest.Writes = lab.Writes{Seed: 7, Rate: 2 << 20, Spread: 40, AtStop: 9}
	return cfg
}

// warm begins a warm migration whose rounds follow each other soon.
func (r *rig) warm(more ...string) *under {
	r.t.Helper()
	return r.begin("web01", append([]string{"--warm", "--interval", "1s"}, more...)...)
}

// rounds waits for n of them to be done.
func (u *under) rounds(n int) {
	u.t.Helper()
	for range n {
		u.untilEvent(journal.RoundDone, "round")
	}
}

// onlyRun is the id of the only run.
func (r *rig) onlyRun() string {
	r.t.Helper()
	runs, err := journal.NewStore(r.state()).Runs()
	must(r.t, err)
	if len(runs) != 1 {
		r.t.Fatalf("%d runs on record", len(runs))
	}
	return string(runs[0].Plan.ID)
}

// vm returns the VM as a separate session reads it.
func (r *rig) vm(name string) *inventory.VM {
	r.t.Helper()
	vm, err := r.session().VM(r.t.Context(), name)
	must(r.t, err)
	return vm
}

// asFound checks that the host has nothing of ours and the VM is in that state of power.
func (r *rig) asFound(power inventory.Power) {
	r.t.Helper()
	vm := r.vm("web01")
	if vm.Snapshots > 0 || vm.ConsolidationNeeded || vm.ChangeTracking || vm.Power != power {
		r.t.Errorf("the VM has %d snapshots, consolidation needed %v, tracking %v, is %s; want none, and %s",
			vm.Snapshots, vm.ConsolidationNeeded, vm.ChangeTracking, vm.Power, power)
	}
	if left := r.lab.Mounts(); len(left) > 0 {
		r.t.Errorf("the host still has %v", left)
	}
}

// moved checks that the images are what the disks were when the VM was powered off.
func (r *rig) moved() {
	r.t.Helper()
	r.asFound(inventory.PoweredOff)
	r.sameAsSource(r.image(0), "web01", 0)
	r.sameAsSource(r.image(1), "web01", 1)
	r.onlyPublished("web01")
}

// ways are the transports that a running VM can be copied by, with their flags.
func ways(t *testing.T, cfg *lab.Config) map[string][]string {
	portmap := loopback.Reserve(t)
	cfg.NFS = lab.NFS{Portmap: portmap}
	return map[string][]string{
		"https":   {"--transport", "https"},
		"nfc":     {"--transport", "nfc"},
		"landing": {"--transport", "landing", "--landing-listen", "127.0.0.1:0", "--landing-portmap", portmap},
	}
}

func TestWarmMigration(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"https", "nfc", "landing"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			cfg := writing()
			args := ways(t, &cfg)[way]
			r := newRig(t, cfg).trusting()
			u := r.warm(args...)
			u.rounds(2)
			r.run("cutover", r.onlyRun()).ends(0).says("cuts over when no round is running")
			u.succeeds()
			r.moved()
			r.run("verify", r.vms()+"/web01").ends(0)
		})
	}
}

// A qcow2 gets its tables while the VM is off. What the rounds proved of it stays proven: of
// most of its bytes the outage reads none.
func TestWarmMigrationToQCOW2(t *testing.T) {
	t.Parallel()
	cfg := writing()
	cfg.VMs[0].Disks = manyBytes() // of most of them, the outage changes little
	cfg.VMs[0].Guest.Writes.Rate, cfg.VMs[0].Guest.Writes.AtStop = 0, 2
	r := newRig(t, cfg).trusting()
	u := r.warm("--transport", "nfc", "--format", "qcow2")
	u.rounds(1)
	must(t, r.lab.GuestWrites("web01", 20))
	u.rounds(2)
	r.run("cutover", r.onlyRun()).ends(0)
	var out struct {
		Facts struct {
			Images   []struct{ Size int64 }
			Verified []struct {
				VerifiedBefore int64
				SHA256         string
			}
		}
	}
	must(t, json.Unmarshal(u.last(), &out))
	u.succeeds()
	if len(out.Facts.Verified) != 2 {
		t.Fatalf("verified %+v", out.Facts.Verified)
	}
	for i, v := range out.Facts.Verified {
		if size := out.Facts.Images[i].Size; v.VerifiedBefore < size/2 || v.VerifiedBefore > size || v.SHA256 != "" {
			t.Errorf("disk %d of %d bytes: %d were proven before the outage, sum %q", i, size, v.VerifiedBefore, v.SHA256)
		}
	}
	r.asFound(inventory.PoweredOff)
	r.run("verify", r.vms()+"/web01").ends(0)
	r.matchesSource(filepath.Join(r.vms(), "web01"), "qcow2")
}

// last reads all that is printed, and returns the last line.
func (u *under) last() (line []byte) {
	for u.events.Scan() {
		line = bytes.Clone(u.events.Bytes())
	}
	return line
}

// succeeds waits for the end of a migration.
func (u *under) succeeds() {
	u.t.Helper()
	if code := u.finished(); code != 0 {
		u.t.Fatalf("exit code %d: %s", code, u.screen.String())
	}
}

// wasCanceled waits for the end of a run that decamp cancel stops, and returns false if it was done before.
func (u *under) wasCanceled() bool {
	u.t.Helper()
	code := u.finished()
	if code != 0 && code != canceled {
		u.t.Fatalf("exit code %d: %s", code, u.screen.String())
	}
	return code == canceled
}

// Killed at any moment, snapshot and all, the same command goes on, and ends with the disks
// as they were when the VM was powered off.
func TestWarmMigrationKilledAtRandomMoments(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"https", "nfc", "landing"} {
		if !lane.Slow && way != "landing" {
			continue // the host has a datastore of decamp, too
		}
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			cfg := writing()
			args := ways(t, &cfg)[way]
			r := newRig(t, cfg).trusting().steps()
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			rnd := rand.New(rand.NewPCG(seed, 0))
			for range map[bool]int{false: 2, true: 4}[lane.Slow] {
				u := r.warm(args...)
				u.someEvents(1 + rnd.IntN(25))
				u.end(syscall.SIGKILL)
			}
			u := r.warm(args...)
			u.rounds(1)
			r.run("cutover", r.onlyRun()).ends(0)
			u.someEvents(rnd.IntN(20)) // somewhere in the cutover
			u.end(syscall.SIGKILL)
			r.warm(args...).succeeds()
			r.moved()
		})
	}
}

// someEvents reads so many events, whatever they tell.
func (u *under) someEvents(n int) {
	for range n {
		if !u.events.Scan() {
			return
		}
	}
}
