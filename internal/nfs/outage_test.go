package nfs_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/decamp/decamp/internal/nfs/rpctest"
)

// A WRITE that was done, and is sent again after a later one to the same place, does not
// come back over it.
func TestALateRepetitionDoesNotOverwrite(t *testing.T) {
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
		t.Errorf("the repetition got % x, the first % x", again, first)
	}
	if got := r.get("a"); got != "new" {
		t.Errorf("holds %q", got)
	}
	// Another payload is another call, however late it differs.
	long := bytes.Repeat([]byte("x"), 4096)
	for _, last := range []byte("yz") {
		long[len(long)-1] = last
		r.SendRaw(rpctest.Record(append(r.Header(100, 100003, 3, pWrite), args(h, uint64(0), len(long), 2, long)...)))
		r.Receive()
	}
	if got := r.get("a"); got != string(long) {
		t.Errorf("ends in %q", got[len(got)-1:])
	}
}

// A server that is restarted while a client writes: the client asks again for whatever was
// not answered, with the handle it has, and the file is right.
func TestServerRestartsWhileAClientWrites(t *testing.T) {
	r := newRig(t, nil)
	h := r.create(r.root, "disk")
	const size, writes, restarts = 64 << 10, 120, 5
	want := pattern(size * writes)
	r.nfs(pSetattr, h, sized(uint64(len(want))), 0).ok()
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
		for range sent / (1 + round%2) { // some are not waited for
			p := r.Receive()
			if binary.BigEndian.Uint32(p[24:]) != 0 {
				t.Fatalf("answered with % x", p)
			}
			delete(open, binary.BigEndian.Uint32(p))
		}
		r.restart()
	}
	for i := range open {
		off := int(i) * size
		r.write(h, uint64(off), want[off:off+size])
	}
	if got := r.get("disk"); got != string(want) {
		t.Error("the file is not what was written")
	}
}
