package oncrpc_test

import (
	"bytes"
	"context"
	"net"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/nfs/oncrpc"
	"github.com/decamp/decamp/internal/nfs/rpctest"
	"github.com/decamp/decamp/internal/nfs/xdr"
)

// quickCalls returns the records of n quick calls.
func quickCalls(c *rpctest.Client, xid uint32, n int) (wire []byte) {
	for i := range uint32(n) {
		wire = append(wire, rpctest.Record(append(c.Header(xid+i, echoProgram, 2, procQuick), encodeWord(1)...))...)
	}
	return wire
}

// receiveReplies receives n replies, in any order.
func (r *rig) receiveReplies(c *rpctest.Client, n int) {
	r.Helper()
	for i := range n {
		if _, err := c.TryReceive(); err != nil {
			r.Fatalf("reply %d of %d: %v", i, n, err)
		}
	}
}

// waitForStreamEnd waits until no connection streams.
func (r *rig) waitForStreamEnd() {
	r.Helper()
	for r.Context().Err() == nil && oncrpc.Streams(r.server) != 0 {
		time.Sleep(time.Millisecond)
	}
	if got := oncrpc.Streams(r.server); got != 0 {
		r.Fatalf("%d connections stream, want none", got)
	}
}

// startStream makes a connection stream. It repeats the call if a busy machine ends the stream before
// it is seen.
func (r *rig) startStream(c *rpctest.Client) {
	r.Helper()
	for xid := uint32(1 << 20); oncrpc.Streams(r.server) == 0; xid++ {
		c.SendRaw(quickCalls(c, xid, 1))
		r.receiveReplies(c, 1)
	}
}

// A connection streams during quick calls and returns to the poller after a pause.
func TestStreamsEndAfterPause(t *testing.T) {
	r := newRig(t, oncrpc.Options{Stall: 100 * time.Millisecond})
	c := rpctest.Dial(t, r.addr)
	for round := range uint32(3) {
		c.SendRaw(quickCalls(c, 100*round, 20))
		r.receiveReplies(c, 20)
		r.waitForStreamEnd()
		c.Call(echoProgram, 2, 0, nil) // read by the poller
	}
	if n := r.quick.Load(); n != 60 {
		t.Errorf("the reader answered %d calls, want 60", n)
	}
}

// Held replies are sent before the reader waits for the rest of a record, for a Decode or for the end of calls in
// work.
func TestHeldRepliesAreSentBeforeWaits(t *testing.T) {
	for name, next := range map[string]func(c *rpctest.Client) []byte{
		"nothing more":        func(*rpctest.Client) []byte { return nil },
		"a record that stops": func(c *rpctest.Client) []byte { return quickCalls(c, 900, 1)[:30] },
		"a Decode that waits": func(c *rpctest.Client) []byte { return rpctest.Record(c.Header(901, echoProgram, 2, procWait)) },
		"calls in work": func(c *rpctest.Client) []byte {
			gate := rpctest.Record(c.Header(902, echoProgram, 2, procGate))
			return append(gate, rpctest.Record(c.Header(903, echoProgram, 2, procGate))...)
		},
	} {
		for n := 1; n <= 9; n++ {
			r := newRig(t, oncrpc.Options{MaxCalls: 2})
			c := rpctest.Dial(t, r.addr)
			r.startStream(c)
			c.SendRaw(append(quickCalls(c, 1, n), next(c)...))
			r.receiveReplies(c, n)
			if t.Failed() {
				t.Fatalf("%d calls, then %s", n, name)
			}
			close(r.gate)
		}
	}
}

// A stream that stalls within a record is closed after Options.Stall.
func TestStalledStreamIsClosed(t *testing.T) {
	r := newRig(t, oncrpc.Options{Stall: 50 * time.Millisecond})
	c := rpctest.Dial(t, r.addr)
	c.SendRaw(append(quickCalls(c, 0, 1), quickCalls(c, 1, 1)[:20]...))
	r.receiveReplies(c, 1)
	if p, err := c.TryReceive(); !isEnd(err) {
		t.Errorf("got % x, error %v, want the end of the connection", p, err)
	}
}

// Serve returns although the readers of streams block in the kernel.
func TestServerEndsWithStreams(t *testing.T) {
	r := &rig{T: t}
	r.server = oncrpc.NewServer(oncrpc.Options{Programs: []*oncrpc.Program{r.newProgram()}})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.server.Serve(ctx, l) }()
	c := rpctest.Dial(t, l.Addr().String())
	r.startStream(c)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if p, err := c.TryReceive(); !isEnd(err) {
		t.Errorf("got % x, error %v, want the end of the connection", p, err)
	}
}

// A client may send all its calls before it reads a reply, as long as the socket buffers hold the replies.
func TestQuickCallsBehindUnreadReply(t *testing.T) {
	r := newRig(t, oncrpc.Options{})
	c := rpctest.Dial(t, r.addr)
	c.SendRaw(quickCalls(c, 0, 1))
	r.receiveReplies(c, 1)
	var wire []byte
	const large = 16
	for i := range uint32(large) {
		wire = append(wire, rpctest.Record(append(c.Header(1000+i, echoProgram, 2, procLarge), encodeWord(1<<20)...))...)
	}
	c.SendRaw(append(wire, quickCalls(c, 1, 40)...))
	for r.quick.Load() < 41 && t.Context().Err() == nil {
		time.Sleep(time.Millisecond)
	}
	r.receiveReplies(c, large+40)
}

// A payload is received correctly on a stream, whether it is sent in one or many pieces.
func TestStreamedPayloads(t *testing.T) {
	r := newRig(t, oncrpc.Options{MaxRecord: 1 << 20})
	c := rpctest.Dial(t, r.addr)
	r.startStream(c)
	payload := bytes.Repeat([]byte("decamp"), 20000)
	var e xdr.Encoder
	e.Opaque(payload)
	record := rpctest.Record(append(c.Header(7, echoProgram, 2, procEcho), e.Bytes()...))
	for _, step := range []int{len(record), 10007, 4096} {
		for rest := record; len(rest) > 0; {
			n := min(step, len(rest))
			c.SendRaw(rest[:n])
			rest = rest[n:]
		}
		if _, results := rpctest.Accepted(t, c.Receive()); !bytes.Equal(results.Opaque(1<<20), payload) {
			t.Errorf("sent %d bytes at a time: the payload differs", step)
		}
	}
}
