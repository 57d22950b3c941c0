package nfs_test

import (
	"bytes"
	"testing"
)

// BenchmarkCalls is one call at a time over a connection to the loopback: what a call costs
// in time and, the client's part included, in allocations.
func BenchmarkCalls(b *testing.B) {
	payload := bytes.Repeat([]byte{0xdc}, 64<<10)
	for _, c := range []struct {
		name string
		call func(r *rig, h []byte)
	}{
		{"GETATTR", func(r *rig, h []byte) { r.nfs(pGetattr, h).ok() }},
		{"LOOKUP", func(r *rig, _ []byte) { r.nfs(pLookup, r.root, "disk").ok() }},
		{"READ", func(r *rig, h []byte) { r.nfs(pRead, h, uint64(0), len(payload)).ok() }},
		{"WRITE", func(r *rig, h []byte) { r.nfs(pWrite, h, uint64(0), len(payload), 2, payload).ok() }},
		{"READDIRPLUS", func(r *rig, _ []byte) {
			r.nfs(pReaddirplus, r.root, uint64(0), uint64(0), 8<<10, 32<<10).ok()
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := newRig(b, nil)
			h := r.create(r.root, "disk")
			r.write(h, 0, payload)
			b.ReportAllocs()
			for b.Loop() {
				c.call(r, h)
			}
		})
	}
}
