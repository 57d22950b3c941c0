package nfs_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/decamp/decamp/internal/nfs/rpctest"
)

// A retransmission of a WRITE that was executed does not overwrite a later WRITE to the same place.
func TestLateRetransmissionDoesNotOverwrite(t *testing.T) {
	r := newRig(t, nil)
	h := r.create(r.root, "a")
	lost := rpctest.Dial(t, r.addr)
	call := append(lost.Header(99, 100003, 3, pWrite), args(h, uint64(0), 3, 2, "old")...)
	lost.SendRaw(rpctest.Record(call))
	first := lost.Receive()
	lost.Close()
	r.write(h, 0, []byte("new"))
	r.SendRaw(rpctest.Record(call))
	if again := r.Receive(); !bytes.Equal(again, first) {
		t.Errorf("the retransmission got % x, want the first reply % x", again, first)
	}
	if got := r.readFile("a"); got != "new" {
		t.Errorf("the file contains %q, want %q", got, "new")
	}
	// A call with another payload is another call, even if only the last byte differs.
	long := bytes.Repeat([]byte("x"), 4096)
	for _, last := range []byte("yz") {
		long[len(long)-1] = last
		r.SendRaw(rpctest.Record(append(r.Header(100, 100003, 3, pWrite), args(h, uint64(0), len(long), 2, long)...)))
		r.Receive()
	}
	if got := r.readFile("a"); got != string(long) {
		t.Errorf("the file ends with %q, want %q", got[len(got)-1:], "z")
	}
}

// If the server restarts while a client writes, the client sends unanswered calls again with the same handle, and
// the file is correct.
func TestServerRestartsDuringWrites(t *testing.T) {
	r := newRig(t, nil)
	h := r.create(r.root, "disk")
	const size, writes, restarts = 64 << 10, 120, 5
	want := testPattern(size * writes)
	r.callNFS(pSetattr, h, sizeSattr(uint64(len(want))), 0).requireOK()
	open := map[uint32]bool{}
	for i := range uint32(writes) {
		open[i] = true
	}
	for round := range restarts {
		sent := 0
		for i := range open {
			off := int(i) * size
			call := append(r.Header(i, 100003, 3, pWrite), args(h, uint64(off), size, 2, want[off:off+size])...)
			r.SendRaw(rpctest.Record(call))
			if sent++; sent == writes/restarts {
				break
			}
		}
		for range sent / (1 + round%2) { // some replies are not read
			p := r.Receive()
			if binary.BigEndian.Uint32(p[24:]) != 0 {
				t.Fatalf("got reply % x, want status 0", p)
			}
			delete(open, binary.BigEndian.Uint32(p))
		}
		r.restart()
	}
	for i := range open {
		off := int(i) * size
		r.write(h, uint64(off), want[off:off+size])
	}
	if got := r.readFile("disk"); got != string(want) {
		t.Error("the file differs from the written data")
	}
}
