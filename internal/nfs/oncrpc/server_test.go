package oncrpc_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/nfs/oncrpc"
	"github.com/decamp/decamp/internal/nfs/rpctest"
	"github.com/decamp/decamp/internal/nfs/xdr"
)

// The program of the tests.
const (
	echoProgram = 0x20000001

	procEcho  = 1 // returns its argument
	procCount = 2 // returns the number of executed calls; has a Cache
	procGate  = 3 // waits for the rig's gate
	procPanic = 4
	procLarge = 5 // returns the requested number of bytes
	procQuick = 6 // returns the number of executed calls; quick unless its argument is 0; has a Cache
	procWait  = 7 // waits for the rig's gate before it is decoded
)

type rig struct {
	*testing.T
	server   *oncrpc.Server
	addr     string
	gate     chan struct{}
	executed atomic.Uint32 // calls of procCount, procGate and procQuick
	quick    atomic.Uint32 // calls of procQuick that the reader executed
	freed    atomic.Int32  // calls of procCount that were freed
	begun    chan struct{} // receives a value for each call of procGate whose Answer has started
}

func newRig(t *testing.T, o oncrpc.Options) *rig {
	t.Helper()
	r := &rig{T: t, gate: make(chan struct{}), begun: make(chan struct{}, 10000)}
	o.Programs = []*oncrpc.Program{r.newProgram()}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.addr = l.Addr().String()
	r.server = oncrpc.NewServer(o)
	startServing(t, r.server, l)
	return r
}

func startServing(t *testing.T, s *oncrpc.Server, l net.Listener) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
}

func (r *rig) newProgram() *oncrpc.Program {
	once := oncrpc.NewCache(64)
	procs := map[uint32]*oncrpc.Procedure{
		0: oncrpc.Null,
		procEcho: {Name: "ECHO", Decode: func(_ context.Context, c *oncrpc.Call) (oncrpc.Answer, error) {
			p := c.Args.Opaque(1 << 20)
			return func(_ context.Context, e *xdr.Encoder) error { e.Opaque(p); return nil }, nil
		}},
		procCount: {Name: "COUNT", Once: once, Decode: func(_ context.Context, c *oncrpc.Call) (oncrpc.Answer, error) {
			c.Args.Uint32()
			c.Free = func() { r.freed.Add(1) }
			return func(_ context.Context, e *xdr.Encoder) error { e.Uint32(r.executed.Add(1)); return nil }, nil
		}},
		procGate: {Name: "GATE", Once: once, Decode: func(context.Context, *oncrpc.Call) (oncrpc.Answer, error) {
			return func(ctx context.Context, e *xdr.Encoder) error {
				r.begun <- struct{}{}
				select {
				case <-r.gate:
				case <-ctx.Done():
					return oncrpc.ErrNoReply
				}
				e.Uint32(r.executed.Add(1))
				return nil
			}, nil
		}},
		procPanic: {Name: "PANIC", Decode: func(_ context.Context, c *oncrpc.Call) (oncrpc.Answer, error) {
			if c.Args.Bool() {
				panic("in decode")
			}
			return func(context.Context, *xdr.Encoder) error { panic("in answer") }, nil
		}},
		procLarge: {Name: "LARGE", Decode: func(_ context.Context, c *oncrpc.Call) (oncrpc.Answer, error) {
			n := min(c.Args.Uint32(), 1<<20)
			c.Expect = int(n)
			return func(_ context.Context, e *xdr.Encoder) error { e.Opaque(make([]byte, n)); return nil }, nil
		}},
		procQuick: {Name: "QUICK", Once: once, Decode: func(_ context.Context, c *oncrpc.Call) (oncrpc.Answer, error) {
			how, did := c.Args.Uint32(), false
			c.Quick = func() bool {
				if how == quickPanic {
					panic("in quick")
				}
				if did = how != 0; did {
					r.quick.Add(1)
					r.executed.Add(1)
				}
				return did
			}
			return func(_ context.Context, e *xdr.Encoder) error {
				if !did {
					r.executed.Add(1)
				}
				e.Uint32(r.executed.Load())
				return nil
			}, nil
		}},
		procWait: {Name: "WAIT", Decode: func(ctx context.Context, c *oncrpc.Call) (oncrpc.Answer, error) {
			c.Pause()
			select {
			case <-r.gate:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			return func(context.Context, *xdr.Encoder) error { return nil }, nil
		}},
	}
	return &oncrpc.Program{
		Number: echoProgram, Name: "echo", Low: 2, High: 3,
		Procedure: func(_, n uint32) *oncrpc.Procedure { return procs[n] },
	}
}

const quickPanic = 13

func encodeWord(v uint32) []byte { return binary.BigEndian.AppendUint32(nil, v) }

func decodeHex(t testing.TB, s string) []byte {
	t.Helper()
	p, err := hex.DecodeString(strings.ReplaceAll(strings.ReplaceAll(s, " ", ""), "\n", ""))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Calls and replies have the bytes of RFC 5531 sections 9 and 11.
func TestReplyBytes(t *testing.T) {
	r := newRig(t, oncrpc.Options{})
	const none = "00000000 00000000 00000000 00000000" // credential and verifier AUTH_NONE
	for name, c := range map[string]struct{ call, reply string }{
		"NULL": {
			"80000028 000000a1 00000000 00000002 20000001 00000002 00000000" + none,
			"80000018 000000a1 00000001 00000000 00000000 00000000 00000000"},
		"ECHO in AUTH_SYS": {
			"80000048 000000a2 00000000 00000002 20000001 00000003 00000001" +
				"00000001 00000018 00000007 00000001 61000000 00000000 00000000 00000000" +
				"00000000 00000000 00000002 6f6b0000",
			"80000020 000000a2 00000001 00000000 00000000 00000000 00000000 00000002 6f6b0000"},
		"PROG_UNAVAIL": {
			"80000028 000000a3 00000000 00000002 20000002 00000002 00000000" + none,
			"80000018 000000a3 00000001 00000000 00000000 00000000 00000001"},
		"PROG_MISMATCH": {
			"80000028 000000a4 00000000 00000002 20000001 00000004 00000000" + none,
			"80000020 000000a4 00000001 00000000 00000000 00000000 00000002 00000002 00000003"},
		"PROC_UNAVAIL": {
			"80000028 000000a5 00000000 00000002 20000001 00000002 00000063" + none,
			"80000018 000000a5 00000001 00000000 00000000 00000000 00000003"},
		"GARBAGE_ARGS": {
			"8000002c 000000a6 00000000 00000002 20000001 00000002 00000001" + none + "00000004",
			"80000018 000000a6 00000001 00000000 00000000 00000000 00000004"},
		"SYSTEM_ERR from a panic in an answer": {
			"8000002c 000000a7 00000000 00000002 20000001 00000002 00000004" + none + "00000000",
			"80000018 000000a7 00000001 00000000 00000000 00000000 00000005"},
		"SYSTEM_ERR from a panic in decode": {
			"8000002c 000000a8 00000000 00000002 20000001 00000002 00000004" + none + "00000001",
			"80000018 000000a8 00000001 00000000 00000000 00000000 00000005"},
		"RPC_MISMATCH": {
			"80000028 000000a9 00000000 00000003 20000001 00000002 00000000" + none,
			"80000018 000000a9 00000001 00000001 00000000 00000002 00000002"},
		"AUTH_ERROR for an unknown flavor": {
			"80000028 000000aa 00000000 00000002 20000001 00000002 00000000 00000006 00000000 00000000 00000000",
			"80000014 000000aa 00000001 00000001 00000001 00000001"},
		"AUTH_ERROR for a torn credential": {
			"8000002c 000000ab 00000000 00000002 20000001 00000002 00000000 00000001 00000004 00000007 00000000 00000000",
			"80000014 000000ab 00000001 00000001 00000001 00000001"},
		"bytes after the arguments": {
			"80000030 000000ac 00000000 00000002 20000001 00000002 00000000" + none + "ffffffff ffffffff",
			"80000018 000000ac 00000001 00000000 00000000 00000000 00000000"},
	} {
		c1 := rpctest.Dial(t, r.addr)
		c1.SendRaw(decodeHex(t, c.call))
		if got, want := rpctest.Record(c1.Receive()), decodeHex(t, c.reply); !bytes.Equal(got, want) {
			t.Errorf("%s: the reply is\n% x, want\n% x", name, got, want)
		}
		// The connection is still usable.
		if got := c1.Call(echoProgram, 2, procEcho, decodeHex(t, "00000001 78000000")).String(1); got != "x" {
			t.Errorf("%s: the next call returned %q, want %q", name, got, "x")
		}
	}
}

func TestRecordsInManyFragments(t *testing.T) {
	r := newRig(t, oncrpc.Options{MaxRecord: 1 << 20})
	c := rpctest.Dial(t, r.addr)
	payload := bytes.Repeat([]byte("decamp"), 500)
	var e xdr.Encoder
	e.Opaque(payload)
	body := append(c.Header(7, echoProgram, 2, procEcho), e.Bytes()...)
	for _, size := range []int{2, 17, 1000, len(body)} {
		var wire []byte
		for rest := body; ; {
			n := min(size, len(rest))
			mark := uint32(n)
			if n == len(rest) {
				mark |= 1 << 31
			}
			wire = append(binary.BigEndian.AppendUint32(wire, mark), rest[:n]...)
			if rest = rest[n:]; len(rest) == 0 {
				break
			}
		}
		// An empty first fragment is unusual but valid.
		go func() { _, _ = c.Conn().Write(append(encodeWord(0), wire...)) }()
		reply, err := c.TryReceive()
		if size == 2 { // more than the maximum number of fragments
			if err == nil {
				t.Errorf("a record of %d fragments got a reply, want a reset", len(body)/2)
			}
			c = rpctest.Dial(t, r.addr)
			continue
		}
		if err != nil {
			t.Fatalf("fragments of %d: %v", size, err)
		}
		if _, results := rpctest.Accepted(t, reply); !bytes.Equal(results.Opaque(1<<20), payload) {
			t.Errorf("fragments of %d: the payload differs", size)
		}
	}
}

// A connection that sends data other than RPC calls is reset at once.
func TestGarbageIsReset(t *testing.T) {
	r := newRig(t, oncrpc.Options{})
	for name, garbage := range map[string][]byte{
		"HTTP":              []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"TLS":               decodeHex(t, "16030100c8010000c40303"),
		"SSH":               []byte("SSH-2.0-OpenSSH_9.2\r\n"),
		"a record too long": encodeWord(1<<31 | 65<<10),
		"a reply":           decodeHex(t, "8000000c 00000001 00000001 00000000"),
		"a short call":      decodeHex(t, "8000000c 00000001 00000000 00000002"),
		"a credential too long": decodeHex(t,
			"80000028 00000001 00000000 00000002 20000001 00000002 00000000 00000001 00000191 00000000 00000000"),
	} {
		c := rpctest.Dial(t, r.addr)
		c.SendRaw(garbage)
		if p, err := c.TryReceive(); !isEnd(err) {
			t.Errorf("%s: got % x, error %v, want a reset", name, p, err)
		}
	}
}

func isEnd(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) }

func TestSilentConnectionsEnd(t *testing.T) {
	r := newRig(t, oncrpc.Options{Hello: 50 * time.Millisecond})
	silent := rpctest.Dial(t, r.addr)
	if _, err := silent.TryReceive(); !isEnd(err) {
		t.Errorf("silent connection: error %v, want its end", err)
	}
	r = newRig(t, oncrpc.Options{Stall: 50 * time.Millisecond})
	stalled := rpctest.Dial(t, r.addr)
	stalled.SendRaw(decodeHex(t, "80000028 00000001 00000000"))
	if _, err := stalled.TryReceive(); !isEnd(err) {
		t.Errorf("stalled record: error %v, want the end of the connection", err)
	}
}

// A client is served while ten thousand connections send garbage.
func TestClientIsServedDespiteGarbageConnections(t *testing.T) {
	r := newRig(t, oncrpc.Options{MaxConnections: 64})
	good := rpctest.Dial(t, r.addr)
	good.Call(echoProgram, 2, 0, nil)
	const senders, each = 20, 500
	var wg sync.WaitGroup
	for range senders {
		wg.Go(func() {
			for range each {
				nc, err := net.Dial("tcp", r.addr)
				if err != nil {
					continue // the queue of the listener is full
				}
				_, _ = nc.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
				nc.(*net.TCPConn).SetLinger(0) // leaves no ports in TIME_WAIT
				nc.Close()
			}
		})
	}
	ended := make(chan struct{})
	go func() { wg.Wait(); close(ended) }()
	for calls := 0; ; calls++ {
		good.Call(echoProgram, 2, procEcho, decodeHex(t, "00000001 78000000"))
		select {
		case <-ended:
			if calls == 0 {
				t.Error("no call was answered during the garbage connections")
			}
			// After the server has read their ends, the garbage connections do not count
			// towards MaxConnections.
			for range 32 {
				for !r.canCall() {
				}
			}
			return
		default:
		}
	}
}

// canCall reports whether a call on a new connection succeeds. The connection stays open.
func (r *rig) canCall() bool {
	r.Helper()
	nc, err := net.Dial("tcp", r.addr)
	if err != nil {
		return false
	}
	c := rpctest.New(r.T, nc)
	if _, err := nc.Write(rpctest.Record(c.Header(1, echoProgram, 2, 0))); err != nil {
		return false
	}
	_, err = c.TryReceive()
	return err == nil
}

func TestConnectionsAreCapped(t *testing.T) {
	r := newRig(t, oncrpc.Options{MaxPerAddress: 3})
	var held []*rpctest.Client
	for range 3 {
		c := rpctest.Dial(t, r.addr)
		c.Call(echoProgram, 2, 0, nil)
		held = append(held, c)
	}
	r.requireRefused()
	held[0].Call(echoProgram, 2, 0, nil)
}

// requireRefused fails unless a new connection is refused or reset.
func (r *rig) requireRefused() {
	r.Helper()
	nc, err := net.Dial("tcp", r.addr)
	if err == nil {
		_, err = rpctest.New(r.T, nc).TryReceive()
	}
	if !isEnd(err) {
		r.Fatalf("new connection: error %v, want a reset", err)
	}
}

func TestOnlyAdmittedPeersAreServed(t *testing.T) {
	var admitted atomic.Value
	r := newRig(t, oncrpc.Options{Admit: func(a netip.Addr) bool { admitted.Store(a); return false }})
	r.requireRefused()
	if admitted.Load() != netip.MustParseAddr("127.0.0.1") {
		t.Errorf("Admit was called with %v, want 127.0.0.1", admitted.Load())
	}
}

// Each reply is sent when it is ready: a slow call does not delay later ones.
func TestSlowCallDoesNotDelayOthers(t *testing.T) {
	r := newRig(t, oncrpc.Options{})
	c := rpctest.Dial(t, r.addr)
	slow := c.Send(echoProgram, 2, procGate, nil)
	<-r.begun
	c.Call(echoProgram, 2, 0, nil)
	close(r.gate)
	if xid, _ := rpctest.Accepted(t, c.Receive()); xid != slow {
		t.Errorf("reply to %#x, want %#x", xid, slow)
	}
}

// A connection with MaxCalls calls in work is not read.
func TestCallsInWorkAreBounded(t *testing.T) {
	const bound = 4
	r := newRig(t, oncrpc.Options{MaxCalls: bound})
	c := rpctest.Dial(t, r.addr)
	for i := range 3 * bound {
		c.Send(echoProgram, 2, procGate, encodeWord(uint32(i)))
	}
	for range bound {
		<-r.begun
	}
	other := rpctest.Dial(t, r.addr) // the limit is for a connection, not for the server
	other.Call(echoProgram, 2, 0, nil)
	if n := len(r.begun); n != 0 {
		t.Errorf("%d more than %d calls are in work", n, bound)
	}
	close(r.gate)
	for range 3 * bound {
		c.Receive()
	}
}

func TestLargeRepliesAreBounded(t *testing.T) {
	const size = 1 << 20
	r := newRig(t, oncrpc.Options{ReplyMemory: size})
	c := rpctest.Dial(t, r.addr)
	for range 8 {
		c.Send(echoProgram, 2, procLarge, encodeWord(size))
	}
	for range 8 {
		_, results := rpctest.Accepted(t, c.Receive())
		if n := len(results.Opaque(size)); n != size {
			t.Fatalf("got %d bytes, want %d", n, size)
		}
	}
}

// A call that is repeated on another connection gets the first reply and is not executed again.
func TestRepeatedCallsGetCachedReply(t *testing.T) {
	r := newRig(t, oncrpc.Options{})
	c := rpctest.Dial(t, r.addr)
	call := rpctest.Record(append(c.Header(77, echoProgram, 2, procCount), encodeWord(5)...))
	c.SendRaw(call)
	first := c.Receive()
	c.Close()
	again := rpctest.Dial(t, r.addr)
	again.SendRaw(call)
	if got := again.Receive(); !bytes.Equal(got, first) {
		t.Errorf("the repetition got % x, want the first reply % x", got, first)
	}
	if n := r.executed.Load(); n != 1 {
		t.Errorf("executed %d times, want once", n)
	}
	if n := r.freed.Load(); n != 1 {
		t.Errorf("%d calls were freed, want 1, the repetition", n)
	}
	// The same xid with other arguments is another call.
	again.SendRaw(rpctest.Record(append(c.Header(77, echoProgram, 2, procCount), encodeWord(6)...)))
	if again.Receive(); r.executed.Load() != 2 {
		t.Errorf("executed %d times, want 2", r.executed.Load())
	}
}

// A repeated quick call is not executed again, and a panic in Quick fails only its call.
func TestQuickCalls(t *testing.T) {
	r := newRig(t, oncrpc.Options{})
	c := rpctest.Dial(t, r.addr)
	call := rpctest.Record(append(c.Header(77, echoProgram, 2, procQuick), encodeWord(1)...))
	var first []byte
	for i := range 3 {
		c.SendRaw(call)
		got := c.Receive()
		if first == nil {
			first = got
		}
		if !bytes.Equal(got, first) {
			t.Errorf("repetition %d got % x, want the first reply % x", i, got, first)
		}
	}
	if n, quick := r.executed.Load(), r.quick.Load(); n != 1 || quick != 1 {
		t.Errorf("executed %d times, %d of them by the reader, want 1 and 1", n, quick)
	}
	c.SendRaw(rpctest.Record(append(c.Header(78, echoProgram, 2, procQuick), encodeWord(quickPanic)...)))
	want := decodeHex(t, "0000004e 00000001 00000000 00000000 00000000 00000005")
	if got := c.Receive(); !bytes.Equal(got, want) {
		t.Errorf("a panic got % x, want % x", got, want)
	}
	if d := c.Call(echoProgram, 2, procQuick, encodeWord(0)); d.Uint32() != 2 || r.quick.Load() != 1 {
		t.Errorf("executed %d times, %d of them by the reader, want 2 and 1", r.executed.Load(), r.quick.Load())
	}
}

// Two clients on one host may use the same xids for the same calls.
func TestTwoClientsOnOneHost(t *testing.T) {
	r := newRig(t, oncrpc.Options{})
	for i := range uint32(3) {
		c := rpctest.Dial(t, r.addr)
		c.SendRaw(rpctest.Record(append(c.Header(77, echoProgram, 2, procCount), encodeWord(5)...)))
		if _, results := rpctest.Accepted(t, c.Receive()); results.Uint32() != i+1 {
			t.Error("the call of another client was treated as a repetition")
		}
	}
}

func TestRepetitionWaitsForFirstCall(t *testing.T) {
	r := newRig(t, oncrpc.Options{})
	lost, again := rpctest.Dial(t, r.addr), rpctest.Dial(t, r.addr)
	call := rpctest.Record(lost.Header(78, echoProgram, 2, procGate))
	lost.SendRaw(call)
	<-r.begun
	lost.Close()
	again.SendRaw(call)
	again.Call(echoProgram, 2, 0, nil)
	close(r.gate)
	if xid, _ := rpctest.Accepted(t, again.Receive()); xid != 78 || r.executed.Load() != 1 {
		t.Errorf("reply to call %d, executed %d times, want call 78 executed once", xid, r.executed.Load())
	}
}

// A client that reconnects from the port of its lost connection is served at once.
func TestReconnectFromSamePort(t *testing.T) {
	r := newRig(t, oncrpc.Options{})
	first := rpctest.Dial(t, r.addr)
	first.Send(echoProgram, 2, procGate, nil) // blocks during the whole test
	<-r.begun
	port := first.Conn().LocalAddr().(*net.TCPAddr)
	first.Conn().(*net.TCPConn).SetLinger(0)
	first.Close()
	dialer := net.Dialer{LocalAddr: port, Timeout: time.Minute}
	nc, err := dialer.Dial("tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	rpctest.New(t, nc).Call(echoProgram, 2, 0, nil)
	close(r.gate)
}

// The connection of a client that does not read its replies is reset.
func TestClientNotReadingRepliesIsReset(t *testing.T) {
	r := newRig(t, oncrpc.Options{Stall: 100 * time.Millisecond})
	c := rpctest.Dial(t, r.addr)
	c.Conn().SetWriteDeadline(time.Now().Add(time.Minute))
	for i := 0; ; i++ {
		call := rpctest.Record(append(c.Header(uint32(i), echoProgram, 2, procLarge), encodeWord(1<<20)...))
		if _, err := c.Conn().Write(call); err != nil {
			if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
				return
			}
			t.Fatal(err)
		}
	}
}

func TestDatagrams(t *testing.T) {
	r := &rig{T: t, gate: make(chan struct{})}
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	s := oncrpc.NewServer(oncrpc.Options{Programs: []*oncrpc.Program{r.newProgram()}})
	go func() { ended <- s.ServePacket(ctx, pc) }()
	c, err := net.Dial("udp", pc.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetReadDeadline(time.Now().Add(time.Minute))
	for _, p := range []string{
		"00", // garbage gets no reply
		"000000a1 00000000 00000002 20000001 00000002 00000000 00000000 00000000 00000000 00000000",
	} {
		if _, err := c.Write(decodeHex(t, p)); err != nil {
			t.Fatal(err)
		}
	}
	buf := make([]byte, 100)
	n, err := c.Read(buf)
	if want := decodeHex(t, "000000a1 00000001 00000000 00000000 00000000 00000000"); err != nil || !bytes.Equal(buf[:n], want) {
		t.Errorf("got reply % x, error %v, want % x", buf[:n], err, want)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// For any stream, the server does not panic, and each reply has a valid header.
func FuzzStream(f *testing.F) {
	for _, seed := range []string{
		"80000028 000000a1 00000000 00000002 20000001 00000002 00000000 00000000 00000000 00000000 00000000",
		"00000000 00000004 000000a1 80000024 00000000 00000002 20000001 00000002 00000000 00000000 00000000 00000000 00000000",
		"80000048 000000a2 00000000 00000002 20000001 00000003 00000001 00000001 00000018 00000007 00000001 61000000" +
			"00000000 00000000 00000000 00000000 00000000 00000002 6f6b0000",
		"80000028 000000a9 00000000 00000003 20000001 00000002 00000000 00000000 00000000 00000000 00000000",
		"474554202f20",
	} {
		f.Add(decodeHex(f, seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		r := &rig{T: t, gate: make(chan struct{}), begun: make(chan struct{}, len(in)+1)}
		close(r.gate)
		s := oncrpc.NewServer(oncrpc.Options{Programs: []*oncrpc.Program{r.newProgram()}, MaxRecord: 4096})
		replies, err := oncrpc.Replay(t.Context(), s, in)
		if err == nil {
			t.Fatal("Replay returned no error for the end of the stream")
		}
		for _, reply := range replies {
			if err := wellFormed(reply); err != nil {
				t.Fatalf("reply % x: %v", reply, err)
			}
		}
	})
}

// wellFormed checks the record mark and the header of a reply.
func wellFormed(reply []byte) error {
	if len(reply) < 20 || len(reply)%4 != 0 {
		return fmt.Errorf("%d bytes", len(reply))
	}
	if mark := binary.BigEndian.Uint32(reply); mark != uint32(len(reply)-4)|1<<31 {
		return fmt.Errorf("record mark %#x", mark)
	}
	if kind := binary.BigEndian.Uint32(reply[8:]); kind != 1 {
		return fmt.Errorf("message type %d", kind)
	}
	if stat := binary.BigEndian.Uint32(reply[12:]); stat > 1 {
		return fmt.Errorf("reply status %d", stat)
	}
	return nil
}
