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

const patience = time.Minute

// serve answers each message by what respond makes of it, and ends the connection where that is nil.
func serve(t *testing.T, respond func(f frame) []frame) *Client {
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
	c := New(ours, patience)
	t.Cleanup(func() {
		_ = c.Close() // it may be closed already
		<-done
	})
	return c
}

// always gives the same answers to everything.
func always(answers ...frame) func(frame) []frame {
	return func(frame) []frame { return answers }
}

func TestLoginFollowsWhatLibvirtAsks(t *testing.T) {
	tests := []struct {
		name string
		ways args
		deny bool // of polkit
		want fault.Kind
		good bool
	}{
		{name: "nothing", ways: args{}.uint32(0), good: true},
		{name: "none", ways: args{}.uint32(1).uint32(authNone), good: true},
		{name: "polkit", ways: args{}.uint32(1).uint32(authPolkit), good: true},
		{name: "polkit refuses", ways: args{}.uint32(1).uint32(authPolkit), deny: true, want: fault.Denied},
		{name: "password", ways: args{}.uint32(1).uint32(1), want: fault.Denied},
		{name: "cut off", ways: args{}.uint32(9), want: fault.Corrupt},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := serve(t, func(f frame) []frame {
				switch {
				case f.proc == procAuthList:
					return []frame{{kind: reply, payload: tt.ways}}
				case f.proc == procAuthPolkit && tt.deny:
					return []frame{{kind: reply, status: failed, payload: said(AuthFailed, "no", 0)}}
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

// said is a remote_error.
func said(code Code, message string, errno syscall.Errno) args {
	a := args{}.uint32(uint32(code)).uint32(10).optional(message).uint32(2).uint32(0)
	return a.uint32(0).optional("x").uint32(0).uint32(uint32(errno)).uint32(0).uint32(0)
}

func TestRefusalsAreErrorsWithACode(t *testing.T) {
	c := serve(t, always(frame{kind: reply, status: failed, payload: said(SystemError, "cannot write: no space", syscall.ENOSPC)}))
	_, err := c.CreateVolume(t.Context(), Pool{Name: "default"}, "<volume/>")
	if !IsCode(err, NoDomain, SystemError) || IsCode(err, NoVolume) || !errors.Is(err, syscall.ENOSPC) || err.Error() != "cannot write: no space" {
		t.Errorf("%v", err)
	}
}

// Nothing waits for an answer that cannot come any more.
func TestCallsEndWithTheirConnection(t *testing.T) {
	c := serve(t, func(frame) []frame { return nil })
	_, err := c.Domains(t.Context())
	if !fault.Is(err, fault.Transient) || fault.HintOf(err) == "" {
		t.Errorf("%v, want transient with a remedy", err)
	}
	if _, err := c.Domains(t.Context()); err == nil {
		t.Error("a call over a connection that is gone")
	}
}

func TestCallsEndWithTheirContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := serve(t, func(frame) []frame { cancel(); return []frame{} })
	if _, err := c.Domains(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want canceled", err)
	}
}

func TestSilenceEnds(t *testing.T) {
	c := serve(t, always([]frame{}...))
	c.timeout = time.Millisecond
	if _, err := c.Domains(t.Context()); !fault.Is(err, fault.Transient) {
		t.Errorf("%v, want transient", err)
	}
}

// A stranger at the port gets no memory, and the user a word.
func TestStrangersAreTold(t *testing.T) {
	for _, word := range []string{"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n\r\n", "SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n", strings.Repeat("\x00", 64), strings.Repeat("\xff", 64)} {
		_, err := readFrame(strings.NewReader(word))
		if !fault.Is(err, fault.Unsupported) || fault.HintOf(err) == "" || !strings.Contains(err.Error(), fmt.Sprintf("%q", word[:16])) {
			t.Errorf("%q: %v", word[:16], err)
		}
	}
}

func TestUploadSendsDataAndHoles(t *testing.T) {
	src := disk.NewSparsePattern(40<<20, 0.5, 7)
	at, data := int64(0), int64(0)
	c := serve(t, func(f frame) []frame {
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
	var told int64
	if err := c.Upload(t.Context(), Volume{}, src, func(n int64) { told += n }); err != nil {
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
	if at != src.Size() || told != src.Size() || data != 0 {
		t.Errorf("%d bytes, told %d, %d of data too many", at, told, data)
	}
}

// An upload that libvirt refuses in the middle goes on to nowhere no longer.
func TestUploadStopsWhenItIsRefused(t *testing.T) {
	var parts atomic.Int64
	c := serve(t, func(f frame) []frame {
		if parts.Add(1) == 3 {
			return []frame{{kind: stream, status: failed, payload: said(SystemError, "full", syscall.ENOSPC)}}
		}
		if f.kind == call {
			return []frame{{kind: reply}}
		}
		return []frame{}
	})
	err := c.Upload(t.Context(), Volume{}, disk.NewPattern(1<<30), nil)
	if !errors.Is(err, syscall.ENOSPC) || parts.Load() > 100 {
		t.Errorf("%v, after %d parts", err, parts.Load())
	}
}

// taken is what a download brought.
type taken struct{ bytes.Buffer }

func (b *taken) Data(_ int64, p []byte) error { _, err := b.Write(p); return err }
func (b *taken) Zeros(r disk.Range) error     { _, err := b.Write(make([]byte, r.Len)); return err }

// Libvirt ends streams early, and a second one brings the rest.
func TestDownloadGoesOnWhereItEnded(t *testing.T) {
	opened := 0
	c := serve(t, func(f frame) []frame {
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
	var got taken
	if err := c.Download(t.Context(), Volume{}, 8, &got); err != nil || got.String() != "abc\x00\x00\x00\x00\x00" {
		t.Errorf("%q, %v", got.String(), err)
	}
}

func TestDownloadsThatAreWrong(t *testing.T) {
	tests := map[string][]frame{
		"short":         {{kind: reply}, {kind: stream, status: continues}},
		"long":          {{kind: reply}, {kind: stream, status: continues, payload: make([]byte, 9)}},
		"long hole":     {{kind: reply}, {kind: hole, status: continues, payload: args{}.uint64(9).uint32(0)}},
		"negative hole": {{kind: reply}, {kind: hole, status: continues, payload: args{}.uint64(1 << 63).uint32(0)}},
		"half a hole":   {{kind: reply}, {kind: hole, status: continues, payload: []byte{1}}},
	}
	for name, answers := range tests {
		c := serve(t, func(f frame) []frame {
			if f.kind != call {
				return []frame{{kind: stream}}
			}
			return answers
		})
		if err := c.Download(t.Context(), Volume{}, 8, &taken{}); !fault.Is(err, fault.Corrupt) || fault.HintOf(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzFrame(f *testing.F) {
	f.Add(frame{proc: procOpen, kind: reply, serial: 1, payload: []byte("abcd")}.encode())
	f.Add(frame{kind: reply, status: failed, payload: said(NoDomain, "none", 0)}.encode())
	f.Fuzz(func(t *testing.T, p []byte) {
		got, err := readFrame(bytes.NewReader(p))
		if err != nil {
			return
		}
		if len(got.payload) > len(p) {
			t.Fatalf("%d bytes of %d", len(got.payload), len(p))
		}
		_ = got.toError() // whatever it says
		again, err := readFrame(io.MultiReader(bytes.NewReader(got.encode())))
		if err != nil || again.serial != got.serial || !bytes.Equal(again.payload, got.payload) {
			t.Errorf("%+v became %+v, %v", got, again, err)
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
				t.Errorf("%d things in %d bytes, err %v", n, len(p), r.err)
			}
		}
	})
}
