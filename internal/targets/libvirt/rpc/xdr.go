package rpc

import (
	"encoding/binary"

	"github.com/decamp/decamp/internal/fault"
)

// args are encoded arguments of a call in XDR (RFC 4506), in the layout of remote_protocol.x.
type args []byte

// uint32 appends an unsigned integer (RFC 4506, section 4.2).
func (a args) uint32(n uint32) args { return binary.BigEndian.AppendUint32(a, n) }

// uint64 appends an unsigned hyper integer (section 4.5).
func (a args) uint64(n uint64) args { return binary.BigEndian.AppendUint64(a, n) }

// string appends a string, padded to a multiple of four bytes (section 4.11).
func (a args) string(s string) args {
	a = append(a.uint32(uint32(len(s))), s...)
	return append(a, make([]byte, -len(s)&3)...)
}

// optional appends a pointer to a string, which is never nil (section 4.19).
func (a args) optional(s string) args { return a.uint32(1).string(s) }

// domain appends a remote_nonnull_domain.
func (a args) domain(d Domain) args {
	return append(a.string(d.Name), d.UUID[:]...).uint32(uint32(d.ID))
}

// pool appends a remote_nonnull_storage_pool.
func (a args) pool(p Pool) args { return append(a.string(p.Name), p.UUID[:]...) }

// volume appends a remote_nonnull_storage_vol.
func (a args) volume(v Volume) args { return a.string(v.Pool).string(v.Name).string(v.Key) }

// result decodes the result of a call. After an error, all further values are zero.
type result struct {
	rest []byte // bytes not decoded yet
	err  error  // set if the message is too short
}

// take returns the next n bytes, or nil if there are fewer.
func (r *result) take(n uint32) []byte {
	if r.err == nil && uint64(n) > uint64(len(r.rest)) {
		r.err = fault.New(fault.Corrupt, "libvirt's answer ends %d bytes early", uint64(n)-uint64(len(r.rest))).WithHint("check that the server at that address is libvirt")
	}
	if r.err != nil {
		return nil
	}
	p := r.rest[:n]
	r.rest = r.rest[n:]
	return p
}

// uint32 decodes an unsigned integer.
func (r *result) uint32() uint32 {
	if p := r.take(4); p != nil {
		return binary.BigEndian.Uint32(p)
	}
	return 0
}

// uint64 decodes an unsigned hyper integer.
func (r *result) uint64() uint64 {
	if p := r.take(8); p != nil {
		return binary.BigEndian.Uint64(p)
	}
	return 0
}

// string decodes a padded string.
func (r *result) string() string {
	n := r.uint32()
	s := string(r.take(n))
	r.take(-n & 3)
	return s
}

// optional decodes a pointer to a string; nil is "".
func (r *result) optional() string {
	if r.uint32() == 0 {
		return ""
	}
	return r.string()
}

// uuid decodes 16 bytes without a length.
func (r *result) uuid() (u UUID) {
	copy(u[:], r.take(uint32(len(u))))
	return u
}

// domain decodes a remote_nonnull_domain.
func (r *result) domain() Domain {
	return Domain{Name: r.string(), UUID: r.uuid(), ID: int32(r.uint32())}
}

// pool decodes a remote_nonnull_storage_pool.
func (r *result) pool() Pool { return Pool{Name: r.string(), UUID: r.uuid()} }

// volume decodes a remote_nonnull_storage_vol.
func (r *result) volume() Volume { return Volume{Pool: r.string(), Name: r.string(), Key: r.string()} }

// readList decodes a counted array. Each element has at least 4 bytes, so the length of the message
// bounds the work.
func readList[T any](r *result, each func() T) []T {
	var all []T
	for n := r.uint32(); n > 0 && r.err == nil; n-- {
		all = append(all, each())
	}
	if r.err != nil {
		return nil
	}
	return all
}
