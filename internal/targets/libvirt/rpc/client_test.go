package rpc

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

const callTimeout = time.Minute

// newTestClient returns a client of a server that answers each message with respond. The server closes the connection
// if respond returns nil.
func newTestClient(t *testing.T, respond func(f frame) []frame) *Client {
	t.Helper()
	ours, theirs := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer theirs.Close()
		for r := bufio.NewReader(theirs); ; {
			f, err := readFrame(r)
			if err != nil {
				return
			}
			answers := respond(f)
			if answers == nil {
				return
			}
			for _, a := range answers {
				a.proc, a.serial = f.proc, f.serial
				if _, err := theirs.Write(a.encode()); err != nil {
					return
				}
			}
		}
	}()
	c := New(ours, callTimeout)
	t.Cleanup(func() {
		_ = c.Close() // the test may have closed it
		<-done
	})
	return c
}

// answerAlways returns a function that gives the same answers to every message.
func answerAlways(answers ...frame) func(frame) []frame {
	return func(frame) []frame { return answers }
}

func TestLogin(t *testing.T) {
	tests := []struct {
		name    string
		methods args
		deny    bool // polkit refuses the login
		want    fault.Kind
		good    bool
	}{
		{name: "nothing", methods: args{}.uint32(0), good: true},
		{name: "none", methods: args{}.uint32(1).uint32(authNone), good: true},
		{name: "polkit", methods: args{}.uint32(1).uint32(authPolkit), good: true},
		{name: "polkit refuses", methods: args{}.uint32(1).uint32(authPolkit), deny: true, want: fault.Denied},
		{name: "password", methods: args{}.uint32(1).uint32(1), want: fault.Denied},
		{name: "cut off", methods: args{}.uint32(9), want: fault.Corrupt},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newTestClient(t, func(f frame) []frame {
				switch {
				case f.proc == procAuthList:
					return []frame{{kind: reply, payload: tt.methods}}
				case f.proc == procAuthPolkit && tt.deny:
					return []frame{{kind: reply, status: failed, payload: errorPayload(AuthFailed, "no", 0)}}
				}
				return []frame{{kind: reply}}
			})
			err := c.Open(t.Context(), "qemu:///system")
			if tt.good && err != nil || !tt.good && (!fault.Is(err, tt.want) || fault.HintOf(err) == "") {
				t.Errorf("open: %v", err)
			}
		})
	}
}

// errorPayload returns an encoded remote_error.
func errorPayload(code Code, message string, errno syscall.Errno) args {
	a := args{}.uint32(uint32(code)).uint32(10).optional(message).uint32(2).uint32(0)
	return a.uint32(0).optional("x").uint32(0).uint32(uint32(errno)).uint32(0).uint32(0)
}

func TestErrorCode(t *testing.T) {
	c := newTestClient(t, answerAlways(frame{kind: reply, status: failed, payload: errorPayload(SystemError, "cannot write: no space", syscall.ENOSPC)}))
	_, err := c.CreateVolume(t.Context(), Pool{Name: "default"}, "<volume/>")
	if !IsCode(err, NoDomain, SystemError) || IsCode(err, NoVolume) || !errors.Is(err, syscall.ENOSPC) || err.Error() != "cannot write: no space" {
		t.Errorf("got %v, want ENOSPC with its code and message", err)
	}
}

// A call fails when its connection ends.
func TestBrokenConnection(t *testing.T) {
	c := newTestClient(t, func(frame) []frame { return nil })
	_, err := c.Domains(t.Context())
	if !fault.Is(err, fault.Transient) || fault.HintOf(err) == "" {
		t.Errorf("got %v, want transient with a hint", err)
	}
	if _, err := c.Domains(t.Context()); err == nil {
		t.Error("a call over a closed connection succeeds")
	}
}

func TestCallsEndWithTheirContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := newTestClient(t, func(frame) []frame { cancel(); return []frame{} })
	if _, err := c.Domains(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want canceled", err)
	}
}

func TestSilentServerTimesOut(t *testing.T) {
	c := newTestClient(t, answerAlways([]frame{}...))
	c.timeout = time.Millisecond
	if _, err := c.Domains(t.Context()); !fault.Is(err, fault.Transient) {
		t.Errorf("got %v, want transient", err)
	}
}

// readFrame refuses data of another protocol with a hint, and does not allocate memory for the length in the data.
func TestOtherProtocolsAreRefused(t *testing.T) {
	for _, text := range []string{"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n\r\n", "SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n", strings.Repeat("\x00", 64), strings.Repeat("\xff", 64)} {
		_, err := readFrame(strings.NewReader(text))
		if !fault.Is(err, fault.Unsupported) || fault.HintOf(err) == "" || !strings.Contains(err.Error(), fmt.Sprintf("%q", text[:16])) {
			t.Errorf("%q: %v", text[:16], err)
		}
	}
}

func TestUploadSendsDataAndHoles(t *testing.T) {
	src := disk.NewSparsePattern(40<<20, 0.5, 7)
	at, data := int64(0), int64(0)
	c := newTestClient(t, func(f frame) []frame {
		if f.kind == call || f.status == ok {
			return []frame{{kind: reply}}
		}
		n, err := f.contentLen()
		if err != nil {
			t.Error(err)
		}
		if f.kind == stream {
			want := make([]byte, n)
			if err := src.ReadAt(t.Context(), want, at); err != nil || !bytes.Equal(want, f.payload) {
				t.Errorf("%d bytes at %d differ: %v", n, at, err)
			}
			data += n
		}
		at += n
		return []frame{}
	})
	var reported int64
	if err := c.Upload(t.Context(), Volume{}, src, func(n int64) { reported += n }); err != nil {
		t.Fatal(err)
	}
	extents, err := src.Extents(t.Context(), disk.Range{Len: src.Size()})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range extents {
		if e.Kind == disk.Data {
			data -= e.Len
		}
	}
	if at != src.Size() || reported != src.Size() || data != 0 {
		t.Errorf("got %d bytes, progress reports %d, %d bytes of data too many", at, reported, data)
	}
}

// Upload stops if libvirt refuses the stream while data is being sent.
func TestUploadStopsAfterAnError(t *testing.T) {
	var messages atomic.Int64
	c := newTestClient(t, func(f frame) []frame {
		if messages.Add(1) == 3 {
			return []frame{{kind: stream, status: failed, payload: errorPayload(SystemError, "full", syscall.ENOSPC)}}
		}
		if f.kind == call {
			return []frame{{kind: reply}}
		}
		return []frame{}
	})
	err := c.Upload(t.Context(), Volume{}, disk.NewPattern(1<<30), nil)
	if !errors.Is(err, syscall.ENOSPC) || messages.Load() > 100 {
		t.Errorf("got %v after %d messages", err, messages.Load())
	}
}

// downloadBuffer stores the data and zeros of a download.
type downloadBuffer struct{ bytes.Buffer }

func (b *downloadBuffer) Data(_ int64, p []byte) error { _, err := b.Write(p); return err }
func (b *downloadBuffer) Zeros(r disk.Range) error {
	_, err := b.Write(make([]byte, r.Len))
	return err
}

// If libvirt ends a stream early, Download opens another one for the rest.
func TestDownloadResumesAfterEarlyEnd(t *testing.T) {
	opened := 0
	c := newTestClient(t, func(f frame) []frame {
		if f.kind != call {
			return []frame{{kind: stream}}
		}
		opened++
		end := frame{kind: stream, status: continues}
		switch opened {
		case 1:
			return []frame{{kind: reply}, end}
		case 2:
			return []frame{{kind: reply}, {kind: stream, status: continues, payload: []byte("abc")}, end}
		}
		return []frame{{kind: reply}, {kind: hole, status: continues, payload: args{}.uint64(5).uint32(0)}, end}
	})
	var got downloadBuffer
	if err := c.Download(t.Context(), Volume{}, 8, &got); err != nil || got.String() != "abc\x00\x00\x00\x00\x00" {
		t.Errorf("got %q, %v", got.String(), err)
	}
}

func TestInvalidDownloadsAreCorrupt(t *testing.T) {
	tests := map[string][]frame{
		"short":         {{kind: reply}, {kind: stream, status: continues}},
		"long":          {{kind: reply}, {kind: stream, status: continues, payload: make([]byte, 9)}},
		"long hole":     {{kind: reply}, {kind: hole, status: continues, payload: args{}.uint64(9).uint32(0)}},
		"negative hole": {{kind: reply}, {kind: hole, status: continues, payload: args{}.uint64(1 << 63).uint32(0)}},
		"half a hole":   {{kind: reply}, {kind: hole, status: continues, payload: []byte{1}}},
	}
	for name, answers := range tests {
		c := newTestClient(t, func(f frame) []frame {
			if f.kind != call {
				return []frame{{kind: stream}}
			}
			return answers
		})
		if err := c.Download(t.Context(), Volume{}, 8, &downloadBuffer{}); !fault.Is(err, fault.Corrupt) || fault.HintOf(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzFrame(f *testing.F) {
	f.Add(frame{proc: procOpen, kind: reply, serial: 1, payload: []byte("abcd")}.encode())
	f.Add(frame{kind: reply, status: failed, payload: errorPayload(NoDomain, "none", 0)}.encode())
	f.Fuzz(func(t *testing.T, p []byte) {
		got, err := readFrame(bytes.NewReader(p))
		if err != nil {
			return
		}
		if len(got.payload) > len(p) {
			t.Fatalf("payload of %d bytes from %d bytes", len(got.payload), len(p))
		}
		_ = got.toError() // must not panic
		again, err := readFrame(io.MultiReader(bytes.NewReader(got.encode())))
		if err != nil || again.serial != got.serial || !bytes.Equal(again.payload, got.payload) {
			t.Errorf("frame %+v decodes as %+v, %v", got, again, err)
		}
	})
}

func FuzzResult(f *testing.F) {
	f.Add([]byte(args{}.uint32(2).domain(Domain{Name: "web01", ID: -1}).domain(Domain{Name: "é"})))
	f.Add([]byte(args{}.uint32(1 << 31)))
	f.Fuzz(func(t *testing.T, p []byte) {
		for _, read := range []func(*result) int{
			func(r *result) int { return len(readList(r, r.domain)) },
			func(r *result) int { return len(readList(r, r.volume)) },
			func(r *result) int { return len(readList(r, r.optional)) },
		} {
			r := &result{rest: p}
			if n := read(r); n > len(p)/4 || n > 0 && r.err != nil {
				t.Errorf("%d items from %d bytes, err %v", n, len(p), r.err)
			}
		}
	})
}
