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

// An extent is the size and the duration of a chaos test.
type extent struct {
	size  int           // number of VMs in a plan
	kills int           // maximum number of kills
	rate  lab.Bytes     // bytes per second of the source, over HTTPS and by NFC each
	gap   time.Duration // maximum time between two kills of a process
	plans time.Duration // time in which further plans begin
}

// Extents of make test, make test-slow and make test-chaos.
var (
	brief  = extent{size: 12, kills: 5, rate: 6 << 20, gap: 15 * time.Second}
	medium = extent{size: 24, kills: 10, rate: 6 << 20, gap: 30 * time.Second}
	long   = extent{size: 200, kills: 1000, rate: 3 << 20, gap: time.Minute}
)

// extentOf returns the long extent with the duration in $DECAMP_CHAOS. Without that variable it returns a shorter one.
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

// A vmKind is how a VM of a chaos test is moved.
type vmKind struct{ warm, tracked, qcow2, nfc, landing, hashed bool }

// kindOf returns the kind of the VM with index n.
func kindOf(n int) (k vmKind) {
	k.warm = n%10 == 3
	k.tracked = n%20 == 3
	k.qcow2 = n%7 == 1
	k.landing = n%20 == 8
	k.nfc = n%4 == 2
	k.hashed = n%13 == 5 && !k.warm && !k.landing
	return k
}

// A chaos is a lab, a plan of all kinds of VMs, and processes that the test kills.
type chaos struct {
	*testEnv
	rnd *rand.Rand
	cfg lab.Config
	extent
	landed string // folder that only one machine offers

	start   []func() *process // functions that start the processes
	running []*process
	states  []string // state directories of the processes that move VMs
}

func newChaos(t *testing.T, rnd *rand.Rand, x extent) *chaos {
	t.Helper()
	cfg, ssh := sshLabOf(t, x.size)
	for i := range cfg.VMs {
		if k := kindOf(i); k.warm {
			vm := &cfg.VMs[i]
			vm.PoweredOn, vm.ChangeTracking = true, k.tracked
			vm.Guest = lab.Guest{Writes: lab.Writes{Seed: uint64(i + 1), Rate: 128 << 10, Spread: 40, AtStop: 9}}
		}
	}
	cfg.Locks, cfg.SSH.SHA256Sum = lab.LockActive, true
	cfg.NFS.Portmap = loopback.Reserve(t)
	cfg.Limits.DatastoreRate, cfg.NFC.HostRate = x.rate, x.rate
	c := &chaos{testEnv: newTestEnv(t, cfg), rnd: rnd, cfg: cfg, extent: x}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("hosts have the datastores %v\n%s", c.lab.Mounts(), c.logLines("datastore", "leftover", "left", "plan"))
		}
	})
	c.landed = filepath.Join(c.dir, "landed")
	must(t, os.Mkdir(c.landed, 0o700))
	c.writeFile("ssh-port", ssh)
	return c
}

// writeChaosPlan writes the plan.
func (c *chaos) writeChaosPlan() string {
	c.t.Helper()
	ssh, err := os.ReadFile(filepath.Join(c.dir, "ssh-port"))
	must(c.t, err)
	var b strings.Builder
	fmt.Fprintf(&b, "  ssh: {port: %s, credentials: {file: %s}}\n", ssh, filepath.Join(c.dir, "password"))
	fmt.Fprintf(&b, "defaults:\n  to: [dir:%s]\n  warm: {interval: 1s}\n  landing: {memory: 64M, listen: %q, portmap: %q}\nselect: name ~ *\nvms:\n",
		c.vmFolder(), loopback.Reserve(c.t), c.cfg.NFS.Portmap)
	for i, vm := range c.cfg.VMs {
		fmt.Fprintf(&b, "  - {vm: %s%s}\n", vm.Name, c.vmOptions(kindOf(i)))
	}
	return c.writePlan("chaos", b.String())
}

// logLines returns the lines of all logs that contain one of these words.
func (c *chaos) logLines(words ...string) string {
	var b strings.Builder
	logs, _ := filepath.Glob(filepath.Join(c.dir, "*.log")) // the pattern is valid
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

// vmOptions returns the options of a VM in the plan.
func (c *chaos) vmOptions(k vmKind) (s string) {
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

// useServer makes one server execute the plan.
func (c *chaos) useServer() {
	listen := loopback.Reserve(c.t)
	c.states = []string{c.stateDir()}
	c.start = append(c.start, func() *process {
		return c.startCommand("serve", "--listen", listen, "--name", "server", "--offer", c.vmFolder(), "--offer", c.landed, "--log-file", filepath.Join(c.dir, "server.log"))
	})
}

// useMachines makes two machines with the same storage execute the plan, beside a server that moves no VMs.
func (c *chaos) useMachines() {
	c.db = shared.NewDatabase(c.t)
	listen := loopback.Reserve(c.t)
	a, b := filepath.Join(c.dir, "state-a"), filepath.Join(c.dir, "state-b")
	c.states = []string{a, b}
	c.start = append(c.start,
		func() *process {
			return c.startCommand("serve", "--listen", listen, "--name", "server", "--log-file", filepath.Join(c.dir, "server.log"))
		},
		func() *process { return c.startWorker("a", c.vmFolder(), "--offer", c.landed).process },
		func() *process { return c.startWorker("b", c.vmFolder()).process })
}

// killRandom kills one process or all of them, and starts them again, at once or after a while.
func (c *chaos) killRandom() {
	first, after := c.rnd.IntN(len(c.start)+1), 0
	if first < len(c.start) {
		after = first + 1
	} else {
		first, after = 0, len(c.start)
	}
	for i := first; i < after; i++ {
		c.running[i].kill()
	}
	if c.rnd.IntN(3) == 0 {
		c.waitRandom(8*time.Second, 1<<62) // another process may take over
	}
	for i := first; i < after; i++ {
		c.running[i] = c.start[i]()
	}
}

// waitRandom waits for a random time, or for a random number of changes in the database.
func (c *chaos) waitRandom(most time.Duration, changes int64) {
	c.t.Helper()
	late, rev := time.Now().Add(time.Duration(c.rnd.Int64N(int64(most)))), c.revision()+1+c.rnd.Int64N(changes)
	eventually(c.t, "a random moment", func() bool { return time.Now().After(late) || c.revision() >= rev })
}

// run starts the plan, and kills processes until nine tenths of its VMs have ended.
func (c *chaos) run() {
	c.t.Helper()
	for _, start := range c.start {
		c.running = append(c.running, start())
	}
	c.waitFor("", "a process has opened the database", func(view) bool { return true })
	file := c.writeChaosPlan()
	c.submitPlan(file)
	kills := 0
	for ; kills < c.kills && !c.nearlyOver(); kills++ {
		c.waitRandom(c.gap/time.Duration(len(c.start)), 8*int64(c.size))
		c.killRandom()
		if kills == 4 {
			c.testEnv.run("cutover", "chaos").wantExit(0)
		}
	}
	if kills <= 4 {
		c.testEnv.run("cutover", "chaos").wantExit(0)
	}
	c.lab.SetLimits(lab.Limits{})
	c.t.Logf("%d kills", kills)
}

func (c *chaos) nearlyOver() bool {
	v := c.waitFor("chaos", "in the database", func(v view) bool { return v.plan.Name != "" })
	return v.count(fleetdb.Done, fleetdb.Failed) > c.size*9/10
}

// waitEnded waits for the end of the plan, as long as it makes progress.
func (c *chaos) waitEnded() view {
	c.t.Helper()
	for ended := -1; ; {
		v := c.waitFor("chaos", "making progress", func(v view) bool {
			return v.plan.State == fleetdb.PlanEnded || v.count(fleetdb.Done, fleetdb.Failed) > ended
		})
		if v.plan.State == fleetdb.PlanEnded {
			return v
		}
		ended = v.count(fleetdb.Done, fleetdb.Failed)
	}
}

// checkResult checks every VM, and that decamp left nothing.
func (c *chaos) checkResult(v view) {
	c.t.Helper()
	if v.count(fleetdb.Done) != c.size {
		c.t.Fatalf("%d of %d VMs are done: %s", v.count(fleetdb.Done), c.size, v)
	}
	folders := map[string][]string{}
	for i, vm := range c.cfg.VMs {
		k := kindOf(i)
		folder, format := c.vmFolder(), "raw"
		if k.landing {
			folder = c.landed
		}
		if k.qcow2 {
			format = "qcow2"
		}
		folders[folder] = append(folders[folder], vm.Name)
		if lane.Slow || i < 3 {
			c.checkPublished(folder, vm.Name, format, 1)
		} else {
			c.checkImages(folder, vm.Name, format, 1)
		}
	}
	for folder, vms := range folders {
		c.checkOnlyPublished(folder, vms...)
	}
	c.checkPublishedOnce(v, c.states...)
	eventually(c.t, "the datastores are removed from the hosts", func() bool { return len(c.lab.Mounts()) == 0 })
	eventually(c.t, "the records of changes on hosts are removed", func() bool { return len(c.leftovers()) == 0 })
	for _, p := range c.running {
		if status := p.stop(); status != 0 {
			c.t.Errorf("%s ended with %d", p.Args[1], status)
		}
	}
	c.checkSource()
}

// checkSource checks that the source is unchanged, apart from the power state of the moved VMs.
func (c *chaos) checkSource() {
	c.t.Helper()
	s := c.newSession()
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
		c.t.Errorf("hosts still have the datastores %v", left)
	}
	if left := c.leftovers(); len(left) > 0 {
		c.t.Errorf("records of changes on hosts are left: %v", left)
	}
}

// leftovers returns the records of changes on hosts, in the database and in state directories.
func (c *chaos) leftovers() (all []string) {
	c.t.Helper()
	records, err := c.database().Records.List(c.t.Context(), "leftover")
	must(c.t, err)
	for _, r := range records {
		all = append(all, string(r.Doc))
	}
	for _, state := range append(slices.Clone(c.states), c.stateDir()) {
		files, err := filepath.Glob(filepath.Join(state, "leftovers", "*.json"))
		must(c.t, err)
		for _, file := range files {
			if doc, err := os.ReadFile(file); err == nil { // an error if it was removed meanwhile
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
			t.Run("machines", func(t *testing.T) { x.runChaos(t, (*chaos).useMachines) })
			if !lane.Slow && x.plans == 0 {
				return // TestPlanIsKilledAtRandomMoments kills a process that executes its plan alone
			}
			t.Run("alone", func(t *testing.T) { x.runChaos(t, (*chaos).useServer) })
		})
	}
}

// runChaos runs a chaos test. configure defines its processes.
func (x extent) runChaos(t *testing.T, configure func(*chaos)) {
	t.Parallel()
	c := newChaos(t, newRand(t), x)
	began := time.Now()
	configure(c)
	c.run()
	c.checkResult(c.waitEnded())
	t.Logf("%d VMs in %v", x.size, time.Since(began).Round(time.Second))
}
