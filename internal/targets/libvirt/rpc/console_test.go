package rpc

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/fault"
)

// opened is a console of a libvirt that says answers once it is open, and echoes what is typed.
func opened(t *testing.T, answers ...frame) *Console {
	t.Helper()
	c := serve(t, func(f frame) []frame {
		switch {
		case f.kind == call:
			want := args{}.domain(Domain{Name: "web01", ID: 7}).uint32(0).uint32(consoleSafe)
			if f.proc != 201 || !bytes.Equal(f.payload, want) {
				t.Errorf("call %d with %x, want %x", f.proc, f.payload, want)
			}
			return append([]frame{{kind: reply}}, answers...)
		case f.status == continues:
			return []frame{{kind: stream, status: continues, payload: f.payload}}
		}
		return []frame{{kind: stream, status: continues, payload: []byte("late")}, {kind: stream, status: ok}}
	})
	k, err := c.OpenConsole(t.Context(), Domain{Name: "web01", ID: 7})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// part is what a guest says.
func part(text string) frame {
	return frame{kind: stream, status: continues, payload: []byte(text)}
}

func TestConsoleGoesBothWays(t *testing.T) {
	k := opened(t, part("log"), part("in: "))
	p := make([]byte, 2) // less than a frame
	if _, err := io.ReadFull(k, p); err != nil || string(p) != "lo" {
		t.Errorf("%q, %v", p, err)
	}
	rest := make([]byte, 5)
	if _, err := io.ReadFull(k, rest); err != nil || string(rest) != "gin: " {
		t.Errorf("%q, %v", rest, err)
	}
	typed := bytes.Repeat([]byte("0123456789"), maxInput/4) // more than a frame
	go func() {
		if n, err := k.Write(typed); err != nil || n != len(typed) {
			t.Errorf("%d bytes, %v", n, err)
		}
	}()
	heard := make([]byte, len(typed))
	if _, err := io.ReadFull(k, heard); err != nil || !bytes.Equal(heard, typed) {
		t.Errorf("what is typed comes back otherwise: %v", err)
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	if _, err := k.Read(p); err != net.ErrClosed {
		t.Errorf("read after close: %v", err)
	}
	if _, err := k.Write(p); err != net.ErrClosed {
		t.Errorf("write after close: %v", err)
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
}

// Who waits for what the guest says does not, once the console is closed.
func TestConsoleIsClosedWhileSomebodyReads(t *testing.T) {
	k := opened(t)
	ended := make(chan error)
	go func() {
		_, err := io.ReadAll(k)
		ended <- err
	}()
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil && err != net.ErrClosed { // nil: it was told of the end first
		t.Error(err)
	}
}

func TestConsolesThatEnd(t *testing.T) {
	tests := map[string]struct {
		last frame
		end  func(error) bool
	}{
		"an empty part": {part(""), func(err error) bool { return err == io.EOF }},
		"the end":       {frame{kind: stream, status: ok}, func(err error) bool { return err == io.EOF }},
		"an error": {frame{kind: stream, status: failed, payload: said(InternalError, "hung up", 0)},
			func(err error) bool { return IsCode(err, InternalError) && err.Error() == "hung up" }},
		"half an error": {frame{kind: stream, status: failed, payload: []byte{0}}, func(err error) bool { return fault.Is(err, fault.Corrupt) }},
		"a hole":        {frame{kind: hole, status: continues, payload: args{}.uint64(1 << 40).uint32(0)}, func(err error) bool { return fault.Is(err, fault.Corrupt) }},
		"a status":      {frame{kind: stream, status: 9}, func(err error) bool { return fault.Is(err, fault.Corrupt) }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			k := opened(t, part("bye"), tt.last)
			for _, want := range []string{"bye", "", ""} {
				p := make([]byte, 10)
				n, err := k.Read(p)
				if string(p[:n]) != want || (want == "") != (err != nil) || err != nil && !tt.end(err) {
					t.Errorf("%q, %v; want %q", p[:n], err, want)
				}
			}
			if err := k.Close(); err != nil { // waits for nobody
				t.Error(err)
			}
		})
	}
}

func TestConsoleThatSomebodyElseHas(t *testing.T) {
	c := serve(t, always(frame{kind: reply, status: failed, payload: said(OperationFailed, "Active console session exists", 0)}))
	if k, err := c.OpenConsole(t.Context(), Domain{}); k != nil || !IsCode(err, OperationFailed) {
		t.Errorf("%v, %v", k, err)
	}
}

// torn is a console whose connection ends after so many bytes of stream.
func torn(t *testing.T, stream []byte) *Console {
	t.Helper()
	ours, theirs := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer theirs.Close()
		f, err := readFrame(bufio.NewReader(theirs))
		if err == nil {
			_, err = theirs.Write(append(frame{proc: f.proc, kind: reply, serial: f.serial}.encode(), stream...))
		}
		if err != nil && !errors.Is(err, io.ErrClosedPipe) { // who gave up first
			t.Error(err)
		}
	}()
	c := New(ours, patience)
	t.Cleanup(func() {
		_ = c.Close()
		<-done
	})
	k, err := c.OpenConsole(t.Context(), Domain{})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// Wherever the connection breaks, what came whole is read, and the rest is no end of the VM.
func TestConsoleWhoseFramesAreTorn(t *testing.T) {
	whole := frame{proc: procDomainOpenConsole, kind: stream, serial: 1, status: continues, payload: []byte("whole")}.encode()
	for cut := range whole {
		k := torn(t, append(bytes.Clone(whole), whole[:cut]...))
		text, err := io.ReadAll(k)
		if string(text) != "whole" || !fault.Is(err, fault.Transient) || fault.HintOf(err) == "" {
			t.Errorf("cut at %d: %q, %v", cut, text, err)
		}
		if _, err := k.Write([]byte("x")); err == nil {
			t.Errorf("cut at %d: it can be written to", cut)
		}
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	}
}

// FuzzConsole: whatever comes as a console, no more is read than came, and it ends.
func FuzzConsole(f *testing.F) {
	of := func(status status, payload string) []byte {
		return frame{proc: procDomainOpenConsole, kind: stream, serial: 1, status: status, payload: []byte(payload)}.encode()
	}
	f.Add(append(of(continues, "login: "), of(continues, "")...))
	f.Add(append(of(continues, "login: "), of(ok, "")...))
	f.Add(of(failed, string(said(InternalError, "hung up", 0))))
	f.Add([]byte(strings.Repeat("\x00", headerSize)))
	f.Add(frame{kind: hole, serial: 1, status: continues, payload: args{}.uint64(1 << 40).uint32(0)}.encode())
	f.Fuzz(func(t *testing.T, p []byte) {
		k := torn(t, p)
		text, err := io.ReadAll(k)
		if len(text) > len(p) || !bytes.Contains(p, text[:min(len(text), 1)]) {
			t.Errorf("%d bytes of %d, %v", len(text), len(p), err)
		}
		if again, err := k.Read(make([]byte, 1)); again != 0 || err == nil {
			t.Errorf("after the end: %d bytes, %v", again, err)
		}
	})
}
