package https

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/disktest"
	"github.com/decamp/decamp/internal/fault"
)

func TestSourceConformance(t *testing.T) {
	disktest.TestSource(t, func(t *testing.T, want disk.Source) disk.Source {
		src, _ := openTestDisk(t, want, func(_ *server, h *fakeHost, _ *Options) {
			h.allocated = func(r disk.Range) ([]disk.Extent, error) { return want.Extents(context.Background(), r) }
		})
		return src
	})
}

// readStream reads r as one stream and compares it.
func readStream(t *testing.T, src *Source, want disk.Source, r disk.Range) error {
	t.Helper()
	body, err := src.Hints().Stream(t.Context(), r)
	if err != nil {
		return err
	}
	defer body.Close()
	got, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	b := make([]byte, r.Len)
	if err := want.ReadAt(t.Context(), b, r.Off); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, b) {
		t.Errorf("%v: the %d bytes of the stream differ from the disk", r, len(got))
	}
	return nil
}

// While other disks are read, the first request of a disk is small, so that a new disk does not wait for a whole
// span of each. Later requests cover whole spans.
func TestFirstRequestIsSmallBesideOtherDisks(t *testing.T) {
	for _, c := range []struct {
		others int
		want   []int64 // requests after each stream
	}{{0, []int64{1, 2, 3}}, {3, []int64{2, 3, 4}}} {
		want := disk.NewPattern(64 << 20)
		src, _ := openTestDisk(t, want, nil)
		for range c.others {
			src.pool.addDisk()
		}
		for i, requests := range c.want {
			if err := readStream(t, src, want, disk.Range{Off: int64(i) * span, Len: span}); err != nil {
				t.Fatal(err)
			}
			if got := src.Report(); got.Requests != requests || got.Failures > 0 {
				t.Errorf("%d other disks, stream %d: %+v, want %d requests", c.others, i, got, requests)
			}
		}
	}
}

func TestStreamSurvivesHostFaults(t *testing.T) {
	cases := []struct {
		name    string
		script  script
		resumes int64
	}{
		{"a reset in the body", firstN(3, resetAfter(100_000)), 3},
		{"a reset before the body", firstN(3, resetAfter(0)), 3},
		{"a short body with a clean end", firstN(3, truncateAfter(1<<20)), 3},
		{"a burst of 503", firstN(5, respondStatus(503, "Retry-After: 1\r\n")), 0},
		{"a moment of 500", firstN(2, respondStatus(500)), 0},
		{"three wrong answers", firstN(3, wrongRange), 0},
		{"a restart that ends in wrong answers", sequence(resetAfter(0), resetAfter(0), resetAfter(0), respondStatus(500), respondStatus(500), wrongRange), 3},
		{"an interim answer", always(func(s *server, c net.Conn, r disk.Range) bool {
			_, _ = io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\n")
			return s.sendRange(c, r, r.Len, r.Len)
		}), 0},
	}
	want := disk.NewPattern(8 << 20)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			src, s := openTestDisk(t, want, nil)
			s.setScript(c.script)
			if err := readStream(t, src, want, disk.Range{Off: 12345, Len: 4 << 20}); err != nil {
				t.Fatal(err)
			}
			if got := src.Report().Resumes; got != c.resumes {
				t.Errorf("resumed %d times, want %d", got, c.resumes)
			}
			if got := src.Report().Body; got != 4<<20 {
				t.Errorf("%d bytes used, want each once", got)
			}
		})
	}
}

// A stalled stream resumes. The number of resumes is a minimum, because a busy machine may stall more often.
func TestStreamSurvivesAStall(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	want := disk.NewPattern(8 << 20)
	src, s := openTestDisk(t, want, func(_ *server, _ *fakeHost, o *Options) { o.Stall = time.Second })
	s.setScript(firstN(2, stallAfter(4096)))
	if err := readStream(t, src, want, disk.Range{Off: 12345, Len: 4 << 20}); err != nil {
		t.Fatal(err)
	}
	if r := src.Report(); r.Resumes < 2 || r.Body != 4<<20 {
		t.Errorf("resumed %d times for 2 stalls, %d bytes used", r.Resumes, r.Body)
	}
}

func TestStreamRefuses(t *testing.T) {
	cases := []struct {
		name   string
		answer responder
		kind   fault.Kind
	}{
		{"fewer bytes", wrongLength, fault.Corrupt},
		{"other bytes", wrongRange, fault.Corrupt},
		{"the whole file", wholeFile, fault.Corrupt},
		{"garbage", func(_ *server, c net.Conn, _ disk.Range) bool {
			_, err := io.WriteString(c, "SSH-2.0-OpenSSH\r\n")
			return err == nil
		}, fault.Corrupt},
		{"chunked", func(_ *server, c net.Conn, r disk.Range) bool {
			_, err := io.WriteString(c, "HTTP/1.1 206 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n")
			return err == nil
		}, fault.Corrupt},
		{"endless 401", respondStatus(401), fault.Denied},
		{"403", respondStatus(403), fault.Denied},
		{"404", respondStatus(404), fault.NotFound},
		{"416", respondStatus(416), fault.Corrupt},
		{"endless 500", respondStatus(500), fault.Conflict},
		{"endless 503", respondStatus(503), fault.Transient},
		{"endless resets", resetAfter(0), fault.Transient},
		{"a redirect", respondStatus(302), fault.Unsupported},
	}
	want := disk.NewPattern(1 << 20)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			src, s := openTestDisk(t, want, nil)
			s.setScript(always(c.answer))
			err := readStream(t, src, want, disk.Range{Off: 512, Len: 64 << 10})
			if !fault.Is(err, c.kind) || fault.HintOf(err) == "" {
				t.Errorf("got %v (%v, hint %q), want %v with a hint", err, fault.KindOf(err), fault.HintOf(err), c.kind)
			}
		})
	}
}

func TestFileOfAnotherSizeIsRefused(t *testing.T) {
	s := startServer(t, disk.NewPattern(2<<20))
	h := newFakeHost(s)
	h.size = 1 << 20 // size in the descriptor and the VM
	tr := New(h, Options{Sleep: func(context.Context, time.Duration) error { return nil }})
	defer tr.Close()
	offer, err := tr.Probe(t.Context(), testDisk(1<<20))
	if err != nil || offer.Usable || offer.Reason == "" {
		t.Errorf("offer %+v, error %v, want a reason against it", offer, err)
	}
}

func TestChangedCertificateIsFinal(t *testing.T) {
	want := disk.NewPattern(4 << 20)
	src, s := openTestDisk(t, want, nil)
	other, err := newCertificate()
	if err != nil {
		t.Fatal(err)
	}
	s.setScript(func(n int64, _ disk.Range) responder {
		s.cert.Store(other)
		return resetAfter(1 << 20)
	})
	err = readStream(t, src, want, disk.Range{Len: 4 << 20})
	if !fault.Is(err, fault.Denied) || fault.HintOf(err) == "" {
		t.Errorf("got %v, want Denied with a hint", err)
	}
	if n := s.requests.Load(); n != 1 {
		t.Errorf("%d requests, want none after the change", n)
	}
}

func TestExpiredSessionIsRenewedOnce(t *testing.T) {
	want := disk.NewPattern(1 << 20)
	var renewals int
	src, _ := openTestDisk(t, want, func(s *server, h *fakeHost, _ *Options) {
		s.cookie.Store("vmware_soap_session=\"2\"")
		h.cookie.Store("vmware_soap_session=\"1\"")
		h.renewCookie = func() (string, error) { renewals++; return "vmware_soap_session=\"2\"", nil }
	})
	for range 3 {
		if err := readStream(t, src, want, disk.Range{Len: 1 << 20}); err != nil {
			t.Fatal(err)
		}
	}
	if renewals != 1 {
		t.Errorf("renewed %d times, want once", renewals)
	}
}

func TestCanceledStreamStops(t *testing.T) {
	want := disk.NewPattern(4 << 20)
	src, s := openTestDisk(t, want, nil)
	s.setScript(always(stallAfter(1 << 20)))
	ctx, cancel := context.WithCancel(t.Context())
	body, err := src.Hints().Stream(ctx, disk.Range{Len: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if _, err := io.ReadFull(body, make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := io.ReadFull(body, make([]byte, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the cancellation", err)
	}
}

func TestEarlyCloseKeepsTransportUsable(t *testing.T) {
	want := disk.NewPattern(64 << 20)
	src, _ := openTestDisk(t, want, func(_ *server, _ *fakeHost, o *Options) { o.MaxConnections = 1 })
	for _, keep := range []int64{1, 4 << 20} {
		body, err := src.Hints().Stream(t.Context(), disk.Range{Len: 4<<20 + 10_000})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(io.Discard, body, keep); err != nil {
			t.Fatal(err)
		}
		if err := body.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := readStream(t, src, want, disk.Range{Off: 1 << 20, Len: 1 << 20}); err != nil {
		t.Fatal(err)
	}
}

func TestRequestsOverlap(t *testing.T) {
	want := disk.NewPattern(8 << 20)
	src, s := openTestDisk(t, want, func(_ *server, _ *fakeHost, o *Options) { o.MaxConnections = 1 })
	first, err := src.Hints().Stream(t.Context(), disk.Range{Len: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	second := make(chan error, 1)
	go func() { second <- readStream(t, src, want, disk.Range{Off: 1 << 20, Len: 1 << 20}) }()
	for s.requests.Load() < 2 { // the first answer fits into the socket buffers, so the server reads the second request
		select {
		case err := <-second:
			t.Fatalf("the second stream ended before its turn: %v", err)
		default:
		}
		if _, err := first.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := io.Copy(io.Discard, first); err != nil {
		t.Fatal(err)
	}
	if err := <-second; err != nil {
		t.Fatal(err)
	}
}
