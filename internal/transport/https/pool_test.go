package https

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

func oneConnection(_ *server, _ *fakeHost, o *Options) { o.MaxConnections = 1 }

// holdConnection opens a stream of 4 MiB at off and reads nothing from it, so that its connection is in use.
func holdConnection(t *testing.T, src *Source, off int64) io.ReadCloser {
	t.Helper()
	body, err := src.Hints().Stream(t.Context(), disk.Range{Off: off, Len: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// waitForState waits until state returns true. It calls state with the pool's mu held.
func waitForState(p *pool, state func() bool) {
	for {
		p.mu.Lock()
		ok := state()
		p.mu.Unlock()
		if ok {
			return
		}
		runtime.Gosched()
	}
}

// connBusy returns a state in which the only connection has n requests.
func connBusy(p *pool, n int) func() bool {
	return func() bool { return len(p.conns) == 1 && p.conns[0].busy == n }
}

func TestCancelDoesNotDisturbOtherStream(t *testing.T) {
	want := disk.NewPattern(16 << 20)
	src, s := openTestDisk(t, want, oneConnection)
	first := holdConnection(t, src, 0)
	ctx, cancel := context.WithCancel(t.Context())
	second := make(chan error, 1)
	go func() {
		_, err := src.Hints().Stream(ctx, disk.Range{Off: 4 << 20, Len: 1 << 20})
		second <- err
	}()
	waitForState(src.pool, connBusy(src.pool, 2))
	cancel()
	if err := <-second; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the cancellation", err)
	}
	if n, err := io.Copy(io.Discard, first); n != 4<<20 || err != nil {
		t.Errorf("the first stream returned %d bytes, error %v, want %d", n, err, 4<<20)
	}
	if err := readStream(t, src, want, disk.Range{Off: 8 << 20, Len: 1 << 20}); err != nil {
		t.Error(err)
	}
	if r := src.Report(); r.Resumes != 0 || s.requests.Load() > 3 {
		t.Errorf("report %+v, %d requests", r, s.requests.Load())
	}
}

func TestWaitingRequests(t *testing.T) {
	want := disk.NewPattern(16 << 20)
	src, _ := openTestDisk(t, want, oneConnection)
	p := src.pool
	first := holdConnection(t, src, 0)
	open := func(ctx context.Context) <-chan error {
		done := make(chan error, 1)
		go func() {
			body, err := src.Hints().Stream(ctx, disk.Range{Off: 4 << 20, Len: 512})
			if err == nil {
				err = body.Close()
			}
			done <- err
		}()
		return done
	}
	second := open(t.Context())
	waitForState(p, connBusy(p, 2))
	ctx, cancel := context.WithCancel(t.Context())
	third := open(ctx)
	waitForState(p, func() bool { return p.rotation.waitingCount() == 1 })
	cancel()
	if err := <-third; !errors.Is(err, context.Canceled) {
		t.Errorf("canceled while waiting: error %v, want Canceled", err)
	}
	fourth := open(t.Context())
	waitForState(p, func() bool { return p.rotation.waitingCount() == 1 })
	if _, err := io.Copy(io.Discard, first); err != nil {
		t.Fatal(err)
	}
	for name, done := range map[string]<-chan error{"second": second, "fourth": fourth} {
		if err := <-done; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	holdConnection(t, src, 0)
	fifth := open(t.Context())
	waitForState(p, connBusy(p, 2))
	sixth := open(t.Context())
	waitForState(p, func() bool { return p.rotation.waitingCount() == 1 })
	p.close()
	if err := <-sixth; !fault.Is(err, fault.Canceled) {
		t.Errorf("waiting while the pool closes: error %v, want kind Canceled", err)
	}
	if err := <-fifth; !fault.Is(err, fault.Canceled) {
		t.Errorf("sent while the pool closes: error %v, want kind Canceled", err)
	}
}

func TestConnectionsStayWithinTheLimit(t *testing.T) {
	for _, most := range []int{1, 3, 8} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			want := disk.NewPattern(64 << 20)
			src, s := openTestDisk(t, want, func(_ *server, _ *fakeHost, o *Options) { o.MaxConnections = most })
			var g errgroup.Group
			for i := range int64(64) {
				g.Go(func() error { return readStream(t, src, want, disk.Range{Off: i << 20, Len: 256 << 10}) })
			}
			if err := g.Wait(); err != nil {
				t.Fatal(err)
			}
			if got := s.peak.Load(); got < 1 || got > int64(most) {
				t.Errorf("%d connections at a time, want at most %d", got, most)
			}
		})
	}
}

// If a host closes an idle connection, with or without Connection: close, the request is repeated at once on
// another connection. This does not count as distress.
func TestClosedIdleConnectionDoesNotCountAsDistress(t *testing.T) {
	quiet := func(s *server, c net.Conn, r disk.Range) bool { s.sendRange(c, r, r.Len, r.Len); return false }
	announced := func(s *server, c net.Conn, r disk.Range) bool {
		_, _ = io.WriteString(c, "HTTP/1.1 206 x\r\nConnection: close\r\n")
		_, _ = fmt.Fprintf(c, "Content-Length: %d\r\nContent-Range: bytes %d-%d/%d\r\n\r\n", r.Len, r.Off, r.End()-1, s.content.Size())
		b := make([]byte, r.Len)
		_ = s.content.ReadAt(context.Background(), b, r.Off)
		_, _ = c.Write(b)
		return false
	}
	for name, a := range map[string]responder{"quiet": quiet, "announced": announced} {
		t.Run(name, func(t *testing.T) {
			want := disk.NewPattern(8 << 20)
			var slept atomic.Int64
			src, s := openTestDisk(t, want, func(_ *server, _ *fakeHost, o *Options) {
				sleep := o.Sleep
				o.Sleep = func(ctx context.Context, d time.Duration) error { slept.Add(1); return sleep(ctx, d) }
			})
			s.setScript(always(a))
			for i := range int64(8) {
				if err := readStream(t, src, want, disk.Range{Off: i << 20, Len: 1 << 20}); err != nil {
					t.Fatal(err)
				}
			}
			if n := slept.Load(); n != 0 || src.pool.control.want != startConnections {
				t.Errorf("%d back-offs and %d connections, want 0 and %d", n, src.pool.control.want, startConnections)
			}
		})
	}
}

func TestOverloadHalvesTheConnections(t *testing.T) {
	want := disk.NewPattern(8 << 20)
	src, s := openTestDisk(t, want, nil)
	s.setScript(firstN(2, respondStatus(503)))
	if err := readStream(t, src, want, disk.Range{Len: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	if got := src.pool.control.want; got != startConnections/2 {
		t.Errorf("control wants %d connections after 503, want %d", got, startConnections/2)
	}
}

func TestBackOff(t *testing.T) {
	for failures, most := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 5: 16 * time.Second, 6: 30 * time.Second, 60: 30 * time.Second} {
		for range 100 {
			if d := backOff(failures, io.EOF); d < most/2 || d > most {
				t.Fatalf("back-off %v after %d failures, want %v to %v", d, failures, most/2, most)
			}
		}
	}
	busy := response{status: 503, retryAfter: 20 * time.Second}.statusFault(disk.Range{}, 0)
	if d := backOff(1, fmt.Errorf("read: %w", busy)); d != 20*time.Second {
		t.Errorf("back-off %v, want the 20 s of Retry-After", d)
	}
}
