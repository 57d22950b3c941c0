package rpc

import (
	"encoding/binary"

	"github.com/decamp/decamp/internal/fault"
)

// args are the arguments of a call in XDR (RFC 4506), as libvirt's remote_protocol.x has them.
type args []byte

func (a args) uint32(n uint32) args { return binary.BigEndian.AppendUint32(a, n) }
func (a args) uint64(n uint64) args { return binary.BigEndian.AppendUint64(a, n) }

func (a args) string(s string) args {
	a = append(a.uint32(uint32(len(s))), s...)
	return append(a, make([]byte, -len(s)&3)...)
}

// optional is a pointer to a string, which is never nil here.
func (a args) optional(s string) args { return a.uint32(1).string(s) }

func (a args) domain(d Domain) args {
	return append(a.string(d.Name), d.UUID[:]...).uint32(uint32(d.ID))
}

func (a args) pool(p Pool) args { return append(a.string(p.Name), p.UUID[:]...) }

func (a args) volume(v Volume) args { return a.string(v.Pool).string(v.Name).string(v.Key) }

// A result reads what a call returned. After the first thing that is not there all others are zero.
type result struct {
	rest []byte
	err  error
}

// take returns the next n bytes, nil where there are fewer.
func (r *result) take(n uint32) []byte {
	if r.err == nil && uint64(n) > uint64(len(r.rest)) {
		r.err = fault.New(fault.Corrupt, "libvirt's answer ends %d bytes early", uint64(n)-uint64(len(r.rest))).WithHint("see whether it is libvirt that answers there")
	}
	if r.err != nil {
		return nil
	}
	p := r.rest[:n]
	r.rest = r.rest[n:]
	return p
}

func (r *result) uint32() uint32 {
	if p := r.take(4); p != nil {
		return binary.BigEndian.Uint32(p)
	}
	return 0
}

func (r *result) uint64() uint64 {
	if p := r.take(8); p != nil {
		return binary.BigEndian.Uint64(p)
	}
	return 0
}

func (r *result) string() string {
	n := r.uint32()
	s := string(r.take(n))
	r.take(-n & 3)
	return s
}

func (r *result) optional() string {
	if r.uint32() == 0 {
		return ""
	}
	return r.string()
}

func (r *result) uuid() (u UUID) {
	copy(u[:], r.take(uint32(len(u))))
	return u
}

func (r *result) domain() Domain {
	return Domain{Name: r.string(), UUID: r.uuid(), ID: int32(r.uint32())}
}

func (r *result) pool() Pool { return Pool{Name: r.string(), UUID: r.uuid()} }

func (r *result) volume() Volume { return Volume{Pool: r.string(), Name: r.string(), Key: r.string()} }

// list reads a counted array. Each of its elements has 4 bytes at least, so its work is bounded by
// the answer's length.
func list[T any](r *result, each func() T) []T {
	var all []T
	for n := r.uint32(); n > 0 && r.err == nil; n-- {
		all = append(all, each())
	}
	if r.err != nil {
		return nil
	}
	return all
}
