package fleet

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/lab/loopback"
	"github.com/decamp/decamp/test/lane"
)

// An extent is how much of a chaos there is.
type extent struct {
	size  int           // VMs of a plan
	kills int           // at most, while it goes on
	rate  lab.Bytes     // bytes a second that the source gives, over https and by NFC
	gap   time.Duration // at most, until the same process is killed again
	plans time.Duration // for so long further ones are begun
}

// brief is the one of make test, medium that of make test-slow, long that of make test-chaos.
var (
	brief  = extent{size: 12, kills: 5, rate: 6 << 20, gap: 15 * time.Second}
	medium = extent{size: 24, kills: 10, rate: 6 << 20, gap: 30 * time.Second}
	long   = extent{size: 200, kills: 1000, rate: 3 << 20, gap: time.Minute}
)

// extentOf returns the duration in $DECAMP_CHAOS, or a short default.
func extentOf(t *testing.T) extent {
	t.Helper()
	text, x := os.Getenv("DECAMP_CHAOS"), long
	if text == "" && lane.Slow {
		return medium
	}
	if text == "" {
		return brief
	}
	var err error
	x.plans, err = time.ParseDuration(text)
	must(t, err)
	return x
}

// kinds is how the nth VM of a chaos is moved.
type kinds struct{ warm, tracked, qcow2, nfc, landing, hashed bool }

func kindsOf(n int) (k kinds) {
	k.warm = n%10 == 3
	k.tracked = n%20 == 3
	k.qcow2 = n%7 == 1
	k.landing = n%20 == 8
	k.nfc = n%4 == 2
	k.hashed = n%13 == 5 && !k.warm && !k.landing
	return k
}

// A chaos is a lab, a plan of all kinds of VMs, and processes that are killed.
type chaos struct {
	*rig
	rnd *rand.Rand
	cfg lab.Config
	extent
	landed string // the folder of what only one machine takes

	start   []func() *process // the processes
	running []*process
	states  []string
}

func newChaos(t *testing.T, rnd *rand.Rand, x extent) *chaos {
	t.Helper()
	cfg, ssh := behindSSH(t, x.size)
	for i := range cfg.VMs {
		if k := kindsOf(i); k.warm {
			vm := &cfg.VMs[i]
			vm.PoweredOn, vm.ChangeTracking = true, k.tracked
			vm.Guest = lab.Guest{Writes: lab.Writes{Seed: uint64(i + 1), Rate: 128 << 10, Spread: 40, AtStop: 9}}
		}
	}
	cfg.Locks, cfg.SSH.SHA256Sum = lab.LockActive, true
	cfg.NFS.Portmap = loopback.Reserve(t)
	cfg.Limits.DatastoreRate, cfg.NFC.HostRate = x.rate, x.rate
	c := &chaos{rig: newRig(t, cfg), rnd: rnd, cfg: cfg, extent: x}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("hosts have %v\n%s", c.lab.Mounts(), c.logged("datastore", "leftover", "left", "plan"))
		}
	})
	c.landed = filepath.Join(c.dir, "landed")
	must(t, os.Mkdir(c.landed, 0o700))
	c.write("ssh-port", ssh)
	return c
}

// file writes the plan.
func (c *chaos) file() string {
	c.t.Helper()
	ssh, err := os.ReadFile(filepath.Join(c.dir, "ssh-port"))
	must(c.t, err)
	var b strings.Builder
	fmt.Fprintf(&b, "  ssh: {port: %s, credentials: {file: %s}}\n", ssh, filepath.Join(c.dir, "password"))
	fmt.Fprintf(&b, "defaults:\n  to: [dir:%s]\n  warm: {interval: 1s}\n  landing: {memory: 64M, listen: %q, portmap: %q}\nselect: name ~ *\nvms:\n",
		c.vms(), loopback.Reserve(c.t), c.cfg.NFS.Portmap)
	for i, vm := range c.cfg.VMs {
		fmt.Fprintf(&b, "  - {vm: %s%s}\n", vm.Name, c.options(kindsOf(i)))
	}
	return c.plan("chaos", b.String())
}

// logged are the lines of all logs that have one of these words.
func (c *chaos) logged(words ...string) string {
	var b strings.Builder
	logs, _ := filepath.Glob(filepath.Join(c.dir, "*.log")) // the pattern is right
	for _, log := range logs {
		text, err := os.ReadFile(log)
		must(c.t, err)
		for line := range strings.Lines(string(text)) {
			if slices.ContainsFunc(words, func(w string) bool { return strings.Contains(line, w) }) {
				b.WriteString(filepath.Base(log) + ": " + line)
			}
		}
	}
	return b.String()
}

func (c *chaos) options(k kinds) (s string) {
	add := func(is bool, text string) {
		if is {
			s += ", " + text
		}
	}
	add(k.warm, "mode: warm")
	add(k.qcow2, "format: qcow2")
	add(k.hashed, "sourceHash: true")
	add(k.landing, "transport: landing, to: [dir:"+c.landed+"]")
	add(k.nfc && !k.landing || k.warm && !k.landing, "transport: nfc")
	return s
}

// alone has one server do it all.
func (c *chaos) alone() {
	listen := loopback.Reserve(c.t)
	c.states = []string{c.state()}
	c.start = append(c.start, func() *process {
		return c.begin("serve", "--listen", listen, "--name", "server", "--offer", c.vms(), "--offer", c.landed, "--log-file", filepath.Join(c.dir, "server.log"))
	})
}

// machines has two of them with the same storage do it, and a server that moves nothing.
func (c *chaos) machines() {
	c.db = shared.NewDatabase(c.t)
	listen := loopback.Reserve(c.t)
	a, b := filepath.Join(c.dir, "state-a"), filepath.Join(c.dir, "state-b")
	c.states = []string{a, b}
	c.start = append(c.start,
		func() *process {
			return c.begin("serve", "--listen", listen, "--name", "server", "--log-file", filepath.Join(c.dir, "server.log"))
		},
		func() *process { return c.worker("a", c.vms(), "--offer", c.landed).process },
		func() *process { return c.worker("b", c.vms()).process })
}

// kill ends one process as a crash does, or all of them, and starts them again: at once, or
// after others may have taken over.
func (c *chaos) kill() {
	first, behind := c.rnd.IntN(len(c.start)+1), 0
	if first < len(c.start) {
		behind = first + 1
	} else {
		first, behind = 0, len(c.start)
	}
	for i := first; i < behind; i++ {
		c.running[i].kill()
	}
	if c.rnd.IntN(3) == 0 {
		c.quiet(8*time.Second, 1<<62)
	}
	for i := first; i < behind; i++ {
		c.running[i] = c.start[i]()
	}
}

// quiet waits for a while, or for some changes in the database.
func (c *chaos) quiet(most time.Duration, changes int64) {
	c.t.Helper()
	late, rev := time.Now().Add(time.Duration(c.rnd.Int64N(int64(most)))), c.rev()+1+c.rnd.Int64N(changes)
	eventually(c.t, "a random moment", func() bool { return time.Now().After(late) || c.rev() >= rev })
}

// run carries the plan out while it is disturbed, until all but the last tenth of its VMs is over.
func (c *chaos) run() {
	c.t.Helper()
	for _, start := range c.start {
		c.running = append(c.running, start())
	}
	c.until("", "a process is there", func(view) bool { return true })
	file := c.file()
	c.submits(file)
	kills := 0
	for ; kills < c.kills && !c.nearlyOver(); kills++ {
		c.quiet(c.gap/time.Duration(len(c.start)), 8*int64(c.size))
		c.kill()
		if kills == 4 {
			c.rig.run("cutover", "chaos").ends(0)
		}
	}
	if kills <= 4 {
		c.rig.run("cutover", "chaos").ends(0)
	}
	c.lab.SetLimits(lab.Limits{})
	c.t.Logf("%d kills", kills)
}

func (c *chaos) nearlyOver() bool {
	v := c.until("chaos", "there", func(v view) bool { return v.plan.Name != "" })
	return v.count(fleetdb.Done, fleetdb.Failed) > c.size*9/10
}

// ends waits for the plan's end, for as long as it goes on.
func (c *chaos) ends() view {
	c.t.Helper()
	for over := -1; ; {
		v := c.until("chaos", "going on", func(v view) bool {
			return v.plan.State == fleetdb.PlanEnded || v.count(fleetdb.Done, fleetdb.Failed) > over
		})
		if v.plan.State == fleetdb.PlanEnded {
			return v
		}
		over = v.count(fleetdb.Done, fleetdb.Failed)
	}
}

// right checks how every VM ended, and what is left of us anywhere.
func (c *chaos) right(v view) {
	c.t.Helper()
	if v.count(fleetdb.Done) != c.size {
		c.t.Fatalf("%d of %d VMs are done: %s", v.count(fleetdb.Done), c.size, v)
	}
	folders := map[string][]string{}
	for i, vm := range c.cfg.VMs {
		k := kindsOf(i)
		folder, format := c.vms(), "raw"
		if k.landing {
			folder = c.landed
		}
		if k.qcow2 {
			format = "qcow2"
		}
		folders[folder] = append(folders[folder], vm.Name)
		if lane.Slow || i < 3 {
			c.published(folder, vm.Name, format, 1)
		} else {
			c.sameAsSource(folder, vm.Name, format, 1)
		}
	}
	for folder, vms := range folders {
		c.onlyPublished(folder, vms...)
	}
	c.publishedOnce(v, c.states...)
	eventually(c.t, "what hosts still have is taken off", func() bool { return len(c.lab.Mounts()) == 0 })
	eventually(c.t, "what was changed on hosts is on record no more", func() bool { return len(c.leftovers()) == 0 })
	for _, p := range c.running {
		if status := p.stops(); status != 0 {
			c.t.Errorf("%s ended with %d", p.Args[1], status)
		}
	}
	c.clean()
}

// clean checks that the source is as it was, but for the power of what was moved.
func (c *chaos) clean() {
	c.t.Helper()
	s := c.session()
	for _, want := range c.cfg.VMs {
		vm, err := s.VM(c.t.Context(), want.Name)
		must(c.t, err)
		if vm.Snapshots > 0 || vm.ConsolidationNeeded || vm.ChangeTracking != want.ChangeTracking || vm.Power != inventory.PoweredOff {
			c.t.Errorf("VM %s has %d snapshots, consolidation needed %v, tracking %v (was %v), is %s", want.Name,
				vm.Snapshots, vm.ConsolidationNeeded, vm.ChangeTracking, want.ChangeTracking, vm.Power)
		}
	}
	eventually(c.t, "NFC sessions end", func() bool { return c.lab.Stats().NFC.SessionsOpen == 0 })
	if left := c.lab.Mounts(); len(left) > 0 {
		c.t.Errorf("a host still has %v", left)
	}
	if left := c.leftovers(); len(left) > 0 {
		c.t.Errorf("on record: %v", left)
	}
}

// leftovers are the records of what was changed on hosts, in the database and in state directories.
func (c *chaos) leftovers() (all []string) {
	c.t.Helper()
	records, err := c.database().Records.List(c.t.Context(), "leftover")
	must(c.t, err)
	for _, r := range records {
		all = append(all, string(r.Doc))
	}
	for _, state := range append(slices.Clone(c.states), c.state()) {
		files, err := filepath.Glob(filepath.Join(state, "leftovers", "*.json"))
		must(c.t, err)
		for _, file := range files {
			if doc, err := os.ReadFile(file); err == nil { // else it went meanwhile
				all = append(all, string(doc))
			}
		}
	}
	return all
}

// Processes are killed at random moments during a plan, plan after plan. Every VM ends correctly and once, and nothing
// of decamp is left at the source.
func TestChaos(t *testing.T) {
	t.Parallel()
	x := extentOf(t)
	end := time.Now().Add(x.plans)
	for round := 1; round == 1 || time.Now().Before(end) && !t.Failed(); round++ {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Run("machines", func(t *testing.T) { x.carriedOut(t, (*chaos).machines) })
			if !lane.Slow && x.plans == 0 {
				return // TestPlanIsKilledAtRandomMoments kills a process that executes its plan alone
			}
			t.Run("alone", func(t *testing.T) { x.carriedOut(t, (*chaos).alone) })
		})
	}
}

// carriedOut has a plan carried out by such processes.
func (x extent) carriedOut(t *testing.T, by func(*chaos)) {
	t.Parallel()
	c := newChaos(t, seeded(t), x)
	began := time.Now()
	by(c)
	c.run()
	c.right(c.ends())
	t.Logf("%d VMs in %v", x.size, time.Since(began).Round(time.Second))
}
