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

// openTestConsole opens a console at a server that sends answers after the call and echoes the input.
func openTestConsole(t *testing.T, answers ...frame) *Console {
	t.Helper()
	c := newTestClient(t, func(f frame) []frame {
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

// dataFrame returns a frame with output of a guest.
func dataFrame(text string) frame {
	return frame{kind: stream, status: continues, payload: []byte(text)}
}

func TestConsole(t *testing.T) {
	k := openTestConsole(t, dataFrame("log"), dataFrame("in: "))
	p := make([]byte, 2) // less than a frame
	if _, err := io.ReadFull(k, p); err != nil || string(p) != "lo" {
		t.Errorf("got %q, %v", p, err)
	}
	rest := make([]byte, 5)
	if _, err := io.ReadFull(k, rest); err != nil || string(rest) != "gin: " {
		t.Errorf("got %q, %v", rest, err)
	}
	typed := bytes.Repeat([]byte("0123456789"), maxInput/4) // more than a frame
	go func() {
		if n, err := k.Write(typed); err != nil || n != len(typed) {
			t.Errorf("Write = %d, %v", n, err)
		}
	}()
	received := make([]byte, len(typed))
	if _, err := io.ReadFull(k, received); err != nil || !bytes.Equal(received, typed) {
		t.Errorf("the echo differs from the input: %v", err)
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	if _, err := k.Read(p); err != net.ErrClosed {
		t.Errorf("Read after Close: %v", err)
	}
	if _, err := k.Write(p); err != net.ErrClosed {
		t.Errorf("Write after Close: %v", err)
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
}

// Close ends a Read that waits for output of the guest.
func TestConsoleCloseEndsRead(t *testing.T) {
	k := openTestConsole(t)
	ended := make(chan error)
	go func() {
		_, err := io.ReadAll(k)
		ended <- err
	}()
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil && err != net.ErrClosed { // it is nil if Read detects the end of the stream first
		t.Error(err)
	}
}

func TestConsoleEnd(t *testing.T) {
	tests := map[string]struct {
		last frame
		end  func(error) bool
	}{
		"an empty frame": {dataFrame(""), func(err error) bool { return err == io.EOF }},
		"the end":        {frame{kind: stream, status: ok}, func(err error) bool { return err == io.EOF }},
		"an error": {frame{kind: stream, status: failed, payload: errorPayload(InternalError, "hung up", 0)},
			func(err error) bool { return IsCode(err, InternalError) && err.Error() == "hung up" }},
		"half an error": {frame{kind: stream, status: failed, payload: []byte{0}}, func(err error) bool { return fault.Is(err, fault.Corrupt) }},
		"a hole":        {frame{kind: hole, status: continues, payload: args{}.uint64(1 << 40).uint32(0)}, func(err error) bool { return fault.Is(err, fault.Corrupt) }},
		"a status":      {frame{kind: stream, status: 9}, func(err error) bool { return fault.Is(err, fault.Corrupt) }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			k := openTestConsole(t, dataFrame("bye"), tt.last)
			for _, want := range []string{"bye", "", ""} {
				p := make([]byte, 10)
				n, err := k.Read(p)
				if string(p[:n]) != want || (want == "") != (err != nil) || err != nil && !tt.end(err) {
					t.Errorf("got %q, %v; want %q", p[:n], err, want)
				}
			}
			if err := k.Close(); err != nil { // must not wait
				t.Error(err)
			}
		})
	}
}

func TestConsoleOpenError(t *testing.T) {
	c := newTestClient(t, answerAlways(frame{kind: reply, status: failed, payload: errorPayload(OperationFailed, "Active console session exists", 0)}))
	if k, err := c.OpenConsole(t.Context(), Domain{}); k != nil || !IsCode(err, OperationFailed) {
		t.Errorf("got %v, %v, want a failed operation", k, err)
	}
}

// openTornConsole opens a console at a server that sends stream and then closes the connection.
func openTornConsole(t *testing.T, stream []byte) *Console {
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
		if err != nil && !errors.Is(err, io.ErrClosedPipe) { // the client may close the connection first
			t.Error(err)
		}
	}()
	c := New(ours, callTimeout)
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

// If the connection breaks within a frame, the complete frames can be read. The error is transient and not the end of
// the stream.
func TestTornConsoleFrameIsTransient(t *testing.T) {
	whole := frame{proc: procDomainOpenConsole, kind: stream, serial: 1, status: continues, payload: []byte("whole")}.encode()
	for cut := range whole {
		k := openTornConsole(t, append(bytes.Clone(whole), whole[:cut]...))
		text, err := io.ReadAll(k)
		if string(text) != "whole" || !fault.Is(err, fault.Transient) || fault.HintOf(err) == "" {
			t.Errorf("cut at %d: got %q, %v", cut, text, err)
		}
		if _, err := k.Write([]byte("x")); err == nil {
			t.Errorf("cut at %d: Write succeeds", cut)
		}
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	}
}

// streamData returns the payloads of the console's frames in p, up to the frame that ends the stream.
func streamData(p []byte, serial uint32) string {
	var data []byte
	for r := bytes.NewReader(p); ; {
		f, err := readFrame(r)
		switch {
		case err != nil:
			return string(data)
		case !f.belongsTo(serial):
		case f.kind != stream || f.status != continues || len(f.payload) == 0:
			return string(data)
		default:
			data = append(data, f.payload...)
		}
	}
}

// For any data from a server, the console returns the payloads of the complete frames, and ends.
func FuzzConsole(f *testing.F) {
	encode := func(status status, payload string) []byte {
		return frame{proc: procDomainOpenConsole, kind: stream, serial: 1, status: status, payload: []byte(payload)}.encode()
	}
	f.Add(append(encode(continues, "login: "), encode(continues, "")...))
	f.Add(append(encode(continues, "login: "), encode(ok, "")...))
	f.Add(encode(failed, string(errorPayload(InternalError, "hung up", 0))))
	f.Add([]byte(strings.Repeat("\x00", headerSize)))
	f.Add(frame{kind: hole, serial: 1, status: continues, payload: args{}.uint64(1 << 40).uint32(0)}.encode())
	f.Fuzz(func(t *testing.T, p []byte) {
		k := openTornConsole(t, p)
		text, err := io.ReadAll(k)
		if want := streamData(p, k.serial); string(text) != want {
			t.Errorf("got %q, want %q; error %v", text, want, err)
		}
		if again, err := k.Read(make([]byte, 1)); again != 0 || err == nil {
			t.Errorf("Read after the end = %d, %v", again, err)
		}
	})
}
