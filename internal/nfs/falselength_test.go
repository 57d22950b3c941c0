package nfs_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/decamp/decamp/internal/nfs"
	"github.com/decamp/decamp/internal/nfs/rpctest"
	"github.com/decamp/decamp/internal/writebehind"
)

// A call with false lengths gets GARBAGE_ARGS, or its connection is reset. None of its data is written, all memory is
// released, and other clients are not disturbed.
func TestFalseLengthsAreRefused(t *testing.T) {
	c := &fakeContent{}
	pool := writebehind.NewPool(writebehind.MinBudget)
	r := newRig(t, func(o *nfs.Options) {
		withContent(c)(o)
		o.Pool = pool
	})
	h := r.create(r.root, "a-flat.vmdk")
	r.write(h, 0, []byte("the truth"))
	const garbage, reset = "garbage", "reset"
	long := func(n int) raw { return raw(binary.BigEndian.AppendUint32(nil, uint32(n))) }
	write := func(count int, rest ...any) []byte {
		return args(append([]any{h, uint64(0), count, 2}, rest...)...)
	}
	data := bytes.Repeat([]byte("lie "), 64)
	for name, tc := range map[string]struct {
		procedure uint32
		args      []byte
		mark      func(n int) uint32 // record mark for n bytes; nil: the correct one
		want      string
	}{
		"less is announced than sent":      {pWrite, write(10, data), nil, garbage},
		"more is announced than sent":      {pWrite, write(1000, data), nil, garbage},
		"the data is longer than the call": {pWrite, write(1000, long(1000), raw(data)), nil, garbage},
		"the data is 4 GiB long":           {pWrite, write(-1, long(-1), raw(data)), nil, garbage},
		"there is no padding":              {pWrite, write(3, long(3), raw("lie")), nil, garbage},
		"the handle is longer than all":    {pGetattr, args(long(-1), raw(h)), nil, garbage},
		"the handle has 65 bytes":          {pGetattr, args(make([]byte, 65)), nil, garbage},
		"the handle has 64 bytes":          {pGetattr, args(make([]byte, 64)), nil, ""},
		"the handle is half of one":        {pGetattr, args(h[:16]), nil, ""},
		"the name is 4 GiB long":           {pLookup, args(r.root, long(-1), raw("name")), nil, garbage},
		"the name ends with the call":      {pLookup, args(r.root, long(100), raw("name")), nil, garbage},
		"the record is longer than any":    {pWrite, write(len(data), data), func(int) uint32 { return 1<<31 | 1<<30 }, reset},
		"the record ends in the middle":    {pWrite, write(len(data), data), func(n int) uint32 { return 1<<31 | uint32(n-100) }, reset},
	} {
		t.Run(name, func(t *testing.T) {
			client := rpctest.Dial(t, r.addr)
			body := append(client.Header(7, 100003, 3, tc.procedure), tc.args...)
			mark := uint32(len(body)) | 1<<31
			if tc.mark != nil {
				mark = tc.mark(len(body))
			}
			client.SendRaw(append(binary.BigEndian.AppendUint32(nil, mark), body...))
			reply, err := client.TryReceive()
			var results []byte
			isGarbage := false
			if err == nil {
				results, isGarbage, err = acceptedResults(reply)
			}
			switch {
			case tc.want == reset && err != nil:
			case tc.want == reset: // the false record ended, and the bytes after it are no record
				if _, err := client.TryReceive(); err == nil || !isGarbage {
					t.Errorf("got reply % x and no reset", reply)
				}
			case err != nil:
				t.Error(err)
			case tc.want == garbage && !isGarbage:
				t.Errorf("got results % x, want GARBAGE_ARGS", results)
			case tc.want == "" && (isGarbage || binary.BigEndian.Uint32(results) != errBadHandle):
				t.Errorf("got results % x, want NFS3ERR_BADHANDLE", results)
			}
			client.Close()
			if got, _ := r.read(h, 0, 100); string(got) != "the truth" {
				t.Errorf("the file contains %q, want %q", got, "the truth")
			}
		})
	}
	if n := pool.Lent(); n != 0 {
		t.Errorf("%d bytes are not released", n)
	}
}

// If a client disconnects in the middle of a WRITE, its memory is released, and none of its data is written.
func TestIncompleteWriteReleasesMemory(t *testing.T) {
	c := &fakeContent{}
	pool := writebehind.NewPool(writebehind.MinBudget)
	r := newRig(t, func(o *nfs.Options) {
		withContent(c)(o)
		o.Pool = pool
	})
	h := r.create(r.root, "a-flat.vmdk")
	const size = 1 << 20
	client := rpctest.Dial(t, r.addr)
	call := append(client.Header(7, 100003, 3, pWrite), args(h, uint64(0), size, 2, make([]byte, size))...)
	client.SendRaw(rpctest.Record(call)[:size/2])
	for pool.Lent() == 0 { // until the server has begun to read the payload
		r.getattr(h)
	}
	client.Close()
	for pool.Lent() > 0 {
		r.getattr(h)
	}
	if n := r.getattr(h).size; n != 0 {
		t.Errorf("%d bytes were written, want 0", n)
	}
}
