package nfs

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/image"
	"github.com/decamp/decamp/internal/lab/nfsclient"
)

// crawling is a Target on a disk that takes so many bytes a second, one write at a time.
type crawling struct {
	disk.Target
	rate int64

	mu sync.Mutex
}

func (c *crawling) WriteAt(ctx context.Context, p []byte, off int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	time.Sleep(time.Duration(int64(len(p)) * int64(time.Second) / c.rate))
	return c.Target.WriteAt(ctx, p, off)
}

// memory is the most memory that the victim has had, in bytes.
func (v *victim) memory() (n int64) {
	v.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", v.cmd.Process.Pid))
	if err != nil {
		v.Error(err)
		return 0
	}
	_, peak, _ := strings.Cut(string(status), "VmHWM:")
	if _, err := fmt.Sscanf(peak, "%d kB", &n); err != nil {
		v.Error(err)
	}
	return n << 10
}

// pulse counts what a host hears of its datastore.
type pulse struct {
	mu   sync.Mutex
	seen map[nfsclient.EventKind]int
	bad  []string
	rung chan struct{} // has room for one: something was heard
}

func newPulse() *pulse {
	return &pulse{seen: map[nfsclient.EventKind]int{}, rung: make(chan struct{}, 1)}
}

func (p *pulse) hear(e nfsclient.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen[e.Kind]++
	switch e.Kind {
	case nfsclient.HeartbeatMissed, nfsclient.LockNotRenewed, nfsclient.LockLost, nfsclient.APDStarted:
		p.bad = append(p.bad, fmt.Sprintf("%s: %v", e.Kind, e.Err))
	}
	select {
	case p.rung <- struct{}{}:
	default:
	}
}

func (p *pulse) count(k nfsclient.EventKind) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen[k]
}

// wait returns when so many more of each were heard.
func (p *pulse) wait(t *testing.T, more int, kinds ...nfsclient.EventKind) {
	t.Helper()
	var want []int
	for _, k := range kinds {
		want = append(want, p.count(k)+more)
	}
	end := time.After(patience)
	for i := 0; i < len(kinds); {
		if p.count(kinds[i]) >= want[i] {
			i++
			continue
		}
		select {
		case <-p.rung:
		case <-end:
			t.Fatalf("%d times %s, want %d", p.count(kinds[i]), kinds[i], want[i])
		}
	}
}

// regular fails if anything was late.
func (p *pulse) regular(t *testing.T) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.bad) > 0 {
		t.Errorf("the host was left waiting %d times: %s", len(p.bad), p.bad[0])
	}
	t.Logf("heard %v", p.seen)
}

// largeWrite is the most that the server takes in one write, and manyWrites of them are
// more than the landing's memory has room for, so that spare memory of package nfs is used.
// A host with so much in flight that both are used up has heartbeats that nobody can read;
// ESXi has 2 MiB in flight for each disk.
const (
	largeWrite = 1 << 20
	manyWrites = 40
)

// busy is a host with several connections and too much in flight that expects what ESXi does of its heartbeats
// and locks, each within 5 s, and asks often.
func busy(p *program, pulse *pulse) *esxi {
	h := newHost(p, 1)
	h.cfg.Connections, h.cfg.WriteSize, h.cfg.OnEvent = 4, largeWrite, pulse.hear
	h.cfg.Times.Heartbeat, h.cfg.Times.HeartbeatTimeout = 20*time.Millisecond, 5*time.Second
	h.cfg.Times.LockUpdate, h.cfg.Times.LockTimeout = 20*time.Millisecond, 5*time.Second
	return h
}

// A disk that is many times slower than the host slows the host down and nothing else: no
// heartbeat and no renewal of a lock waits for 5 s, the memory stays within its bounds, and
// the disk lands.
func TestSlowDiskKeepsHostAndMemory(t *testing.T) {
	const rate, others = 48 << 20, 100 << 20 // package nfs, see docs/architecture.md
	p, pulse := fullDisk(192, largeWrite), newPulse()
	p.inFlight = manyWrites
	o := orders{Dir: t.TempDir(), Names: t.TempDir(), Format: image.Raw, Size: p.size, Address: address(t), Rate: rate}
	k := &killing{T: t, orders: o, host: busy(p, pulse)}
	t.Cleanup(k.host.abandon)
	v := start(t, k.host, o)
	killed, err := v.serve()
	must(t, err)
	k.landed = !killed
	k.end()
	pulse.regular(t)
	const program = 40 << 20 // of a process that does nothing
	if t.Logf("at most %d MiB of memory", v.most>>20); v.most > landingMemory+others+program {
		t.Errorf("it has had %d MiB of memory, the budget is %d", v.most>>20, (landingMemory+others+program)>>20)
	}
}

// A disk that does not move at all for a while: the host's writes wait, its heartbeats and
// locks do not; then the copy goes on.
func TestStuckDiskKeepsHost(t *testing.T) {
	const often = 40
	p, pulse := fullDisk(192, largeWrite), newPulse()
	p.inFlight = manyWrites
	o := orders{Dir: t.TempDir(), Names: t.TempDir(), Format: image.Raw, Size: p.size, Address: address(t)}
	k := &killing{T: t, orders: o, host: busy(p, pulse)}
	t.Cleanup(k.host.abandon)
	s := &stuck{reached: make(chan struct{}), open: make(chan struct{})}
	ended := make(chan error, 1)
	go func() {
		ended <- o.land(t.Context(), o.job(), at{k.host}, func(t disk.Target) disk.Target { s.Target = t; return s })
	}()
	<-s.reached
	pulse.wait(t, often, nfsclient.HeartbeatAnswered, nfsclient.LockRenewed)
	close(s.open)
	must(t, <-ended)
	k.landed = true
	k.end()
	pulse.regular(t)
}

// stuck is a Target that does nothing until it is opened.
type stuck struct {
	disk.Target
	once    sync.Once
	reached chan struct{}
	open    chan struct{}
}

func (s *stuck) WriteAt(ctx context.Context, p []byte, off int64) error {
	s.once.Do(func() { close(s.reached) })
	<-s.open
	return s.Target.WriteAt(ctx, p, off)
}
