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

// slowTarget is a Target that limits the rate of writes and does one write at a time.
type slowTarget struct {
	disk.Target
	rate int64 // bytes per second

	mu sync.Mutex
}

func (c *slowTarget) WriteAt(ctx context.Context, p []byte, off int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	time.Sleep(time.Duration(int64(len(p)) * int64(time.Second) / c.rate))
	return c.Target.WriteAt(ctx, p, off)
}

// readPeakMemory returns the peak memory of the victim in bytes.
func (v *victim) readPeakMemory() (n int64) {
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

// eventRecorder counts the events of a host's datastore.
type eventRecorder struct {
	mu     sync.Mutex
	seen   map[nfsclient.EventKind]int
	bad    []string
	signal chan struct{} // receives a value after an event; capacity 1
}

func newEventRecorder() *eventRecorder {
	return &eventRecorder{seen: map[nfsclient.EventKind]int{}, signal: make(chan struct{}, 1)}
}

func (p *eventRecorder) record(e nfsclient.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen[e.Kind]++
	switch e.Kind {
	case nfsclient.HeartbeatMissed, nfsclient.LockNotRenewed, nfsclient.LockLost, nfsclient.APDStarted:
		p.bad = append(p.bad, fmt.Sprintf("%s: %v", e.Kind, e.Err))
	}
	select {
	case p.signal <- struct{}{}:
	default:
	}
}

func (p *eventRecorder) count(k nfsclient.EventKind) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen[k]
}

// waitForMore waits until more further events of each kind have been recorded.
func (p *eventRecorder) waitForMore(t *testing.T, more int, kinds ...nfsclient.EventKind) {
	t.Helper()
	var want []int
	for _, k := range kinds {
		want = append(want, p.count(k)+more)
	}
	end := time.After(testTimeout)
	for i := 0; i < len(kinds); {
		if p.count(kinds[i]) >= want[i] {
			i++
			continue
		}
		select {
		case <-p.signal:
		case <-end:
			t.Fatalf("got %d events %s, want %d", p.count(kinds[i]), kinds[i], want[i])
		}
	}
}

// requireNoDelay fails if a heartbeat or a lock update was late.
func (p *eventRecorder) requireNoDelay(t *testing.T) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.bad) > 0 {
		t.Errorf("%d heartbeats or lock updates were late, the first: %s", len(p.bad), p.bad[0])
	}
	t.Logf("events: %v", p.seen)
}

// largeWrite is the largest write that the server accepts. manyWrites of them exceed the memory of the
// landing, so that package nfs uses its spare memory. If a host uses up both, the server cannot read its
// heartbeats. ESXi has 2 MiB in flight for each disk.
const (
	largeWrite = 1 << 20
	manyWrites = 40
)

// newBusyHost returns a host with several connections and many large writes in flight. It sends heartbeats
// and lock updates every 20 ms and, like ESXi, expects each reply within 5 s.
func newBusyHost(p *program, events *eventRecorder) *esxi {
	h := newHost(p, 1)
	h.cfg.Connections, h.cfg.WriteSize, h.cfg.OnEvent = 4, largeWrite, events.record
	h.cfg.Times.Heartbeat, h.cfg.Times.HeartbeatTimeout = 20*time.Millisecond, 5*time.Second
	h.cfg.Times.LockUpdate, h.cfg.Times.LockTimeout = 20*time.Millisecond, 5*time.Second
	return h
}

// A disk that is much slower than the host only slows down the host's writes: no heartbeat and no
// lock renewal takes 5 s, the memory stays within its limit, and the disk lands.
func TestSlowDiskKeepsHeartbeatsAndMemoryLimit(t *testing.T) {
	const rate, others = 48 << 20, 100 << 20 // memory of package nfs, see docs/architecture.md
	p, events := fullDisk(192, largeWrite), newEventRecorder()
	p.inFlight = manyWrites
	o := victimOrders{Dir: t.TempDir(), Names: t.TempDir(), Format: image.Raw, Size: p.size, Address: testAddress(t), Rate: rate}
	k := &killTest{T: t, victimOrders: o, host: newBusyHost(p, events)}
	t.Cleanup(k.host.abandon)
	v := startVictim(t, k.host, o)
	killed, err := v.serve()
	must(t, err)
	k.landed = !killed
	k.checkLanded()
	events.requireNoDelay(t)
	const program = 40 << 20 // memory of an idle process
	if t.Logf("peak memory: %d MiB", v.peakMemory>>20); v.peakMemory > landingMemory+others+program {
		t.Errorf("peak memory is %d MiB, want at most %d MiB", v.peakMemory>>20, (landingMemory+others+program)>>20)
	}
}

// While the disk blocks all writes, the host's heartbeats and lock renewals are answered. When the disk
// works again, the copy completes.
func TestStuckDiskKeepsHeartbeats(t *testing.T) {
	const often = 40
	p, events := fullDisk(192, largeWrite), newEventRecorder()
	p.inFlight = manyWrites
	o := victimOrders{Dir: t.TempDir(), Names: t.TempDir(), Format: image.Raw, Size: p.size, Address: testAddress(t)}
	k := &killTest{T: t, victimOrders: o, host: newBusyHost(p, events)}
	t.Cleanup(k.host.abandon)
	s := &stuckTarget{reached: make(chan struct{}), release: make(chan struct{})}
	ended := make(chan error, 1)
	go func() {
		ended <- o.landDisk(t.Context(), o.imageJob(), landingHost{k.host}, func(t disk.Target) disk.Target { s.Target = t; return s })
	}()
	<-s.reached
	events.waitForMore(t, often, nfsclient.HeartbeatAnswered, nfsclient.LockRenewed)
	close(s.release)
	must(t, <-ended)
	k.landed = true
	k.checkLanded()
	events.requireNoDelay(t)
}

// stuckTarget is a Target whose writes block until release is closed.
type stuckTarget struct {
	disk.Target
	once    sync.Once
	reached chan struct{}
	release chan struct{}
}

func (s *stuckTarget) WriteAt(ctx context.Context, p []byte, off int64) error {
	s.once.Do(func() { close(s.reached) })
	<-s.release
	return s.Target.WriteAt(ctx, p, off)
}
