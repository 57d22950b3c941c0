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
		src, _ := openTest(t, want, func(_ *server, h *host, _ *Options) {
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
		t.Errorf("%v: %d bytes that differ", r, len(got))
	}
	return nil
}

// Where other disks are read a disk begins with little, so that whoever comes last has not to wait
// for a span of each; from then on it asks for whole spans.
func TestDiskBeginsWithLittleAmongOthers(t *testing.T) {
	for _, c := range []struct {
		others int
		want   []int64 // requests after each stream
	}{{0, []int64{1, 2, 3}}, {3, []int64{2, 3, 4}}} {
		want := disk.NewPattern(64 << 20)
		src, _ := openTest(t, want, nil)
		for range c.others {
			src.pool.addDisk()
		}
		for i, requests := range c.want {
			if err := readStream(t, src, want, disk.Range{Off: int64(i) * span, Len: span}); err != nil {
				t.Fatal(err)
			}
			if got := src.Report(); got.Requests != requests || got.Failures > 0 {
				t.Errorf("beside %d disks, stream %d: %+v, want %d requests", c.others, i, got, requests)
			}
		}
	}
}

func TestStreamSurvives(t *testing.T) {
	cases := []struct {
		name    string
		script  script
		resumes int64
	}{
		{"a reset in the body", firstN(3, reset(100_000)), 3},
		{"a reset before the body", firstN(3, reset(0)), 3},
		{"a short body with a clean end", firstN(3, short(1<<20)), 3},
		{"a burst of 503", firstN(5, plain(503, "Retry-After: 1\r\n")), 0},
		{"a moment of 500", firstN(2, plain(500)), 0},
		{"three wrong answers", firstN(3, shifted), 0},
		{"a restart that ends in wrong answers", inTurn(reset(0), reset(0), reset(0), plain(500), plain(500), shifted), 3},
		{"an interim answer", always(func(s *server, c net.Conn, r disk.Range) bool {
			_, _ = io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\n")
			return s.send(c, r, r.Len, r.Len)
		}), 0},
	}
	want := disk.NewPattern(8 << 20)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			src, s := openTest(t, want, nil)
			s.play(c.script)
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

// A machine under load may seem to stall where the script does not.
func TestStreamSurvivesAStall(t *testing.T) {
	want := disk.NewPattern(8 << 20)
	src, s := openTest(t, want, func(_ *server, _ *host, o *Options) { o.Stall = 200 * time.Millisecond })
	s.play(firstN(2, stall(4096)))
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
		answer answer
		kind   fault.Kind
	}{
		{"fewer bytes", shorter, fault.Corrupt},
		{"other bytes", shifted, fault.Corrupt},
		{"the whole file", whole, fault.Corrupt},
		{"garbage", func(_ *server, c net.Conn, _ disk.Range) bool {
			_, err := io.WriteString(c, "SSH-2.0-OpenSSH\r\n")
			return err == nil
		}, fault.Corrupt},
		{"chunked", func(_ *server, c net.Conn, r disk.Range) bool {
			_, err := io.WriteString(c, "HTTP/1.1 206 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n")
			return err == nil
		}, fault.Corrupt},
		{"401 for ever", plain(401), fault.Denied},
		{"403", plain(403), fault.Denied},
		{"404", plain(404), fault.NotFound},
		{"416", plain(416), fault.Corrupt},
		{"500 for ever", plain(500), fault.Conflict},
		{"503 for ever", plain(503), fault.Transient},
		{"resets for ever", reset(0), fault.Transient},
		{"a redirect", plain(302), fault.Unsupported},
	}
	want := disk.NewPattern(1 << 20)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			src, s := openTest(t, want, nil)
			s.play(always(c.answer))
			err := readStream(t, src, want, disk.Range{Off: 512, Len: 64 << 10})
			if !fault.Is(err, c.kind) || fault.HintOf(err) == "" {
				t.Errorf("got %v (%v, hint %q), want %v with a hint", err, fault.KindOf(err), fault.HintOf(err), c.kind)
			}
		})
	}
}

func TestFileOfAnotherSizeIsRefused(t *testing.T) {
	s := startServer(t, disk.NewPattern(2<<20))
	h := newHost(s)
	h.size = 1 << 20 // the descriptor and the VM say so
	tr := New(h, Options{Sleep: func(context.Context, time.Duration) error { return nil }})
	defer tr.Close()
	offer, err := tr.Probe(t.Context(), testDisk(1<<20))
	if err != nil || offer.Usable || offer.Reason == "" {
		t.Errorf("offer %+v, error %v", offer, err)
	}
}

func TestChangedCertificateIsFinal(t *testing.T) {
	want := disk.NewPattern(4 << 20)
	src, s := openTest(t, want, nil)
	other, err := newCertificate()
	if err != nil {
		t.Fatal(err)
	}
	s.play(func(n int64, _ disk.Range) answer {
		s.cert.Store(other)
		return reset(1 << 20)
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
	src, _ := openTest(t, want, func(s *server, h *host, _ *Options) {
		s.cookie.Store("vmware_soap_session=\"2\"")
		h.cookie.Store("vmware_soap_session=\"1\"")
		h.renew = func() (string, error) { renewals++; return "vmware_soap_session=\"2\"", nil }
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
	src, s := openTest(t, want, nil)
	s.play(always(stall(1 << 20)))
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

func TestEarlyCloseLeavesTheTransportUsable(t *testing.T) {
	want := disk.NewPattern(64 << 20)
	src, _ := openTest(t, want, func(_ *server, _ *host, o *Options) { o.MaxConnections = 1 })
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

func TestSecondRequestIsSentBeforeTheFirstAnswerEnds(t *testing.T) {
	want := disk.NewPattern(8 << 20)
	src, s := openTest(t, want, func(_ *server, _ *host, o *Options) { o.MaxConnections = 1 })
	first, err := src.Hints().Stream(t.Context(), disk.Range{Len: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	second := make(chan error, 1)
	go func() { second <- readStream(t, src, want, disk.Range{Off: 1 << 20, Len: 1 << 20}) }()
	for s.requests.Load() < 2 { // the first answer fits the socket's buffers: the server goes on
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
