package nfs_test

import (
	"bytes"
	"testing"
)

// BenchmarkCalls measures one call at a time over a loopback connection. The allocations include those of the client.
func BenchmarkCalls(b *testing.B) {
	payload := bytes.Repeat([]byte{0xdc}, 64<<10)
	for _, c := range []struct {
		name string
		call func(r *rig, h []byte)
	}{
		{"GETATTR", func(r *rig, h []byte) { r.callNFS(pGetattr, h).requireOK() }},
		{"LOOKUP", func(r *rig, _ []byte) { r.callNFS(pLookup, r.root, "disk").requireOK() }},
		{"READ", func(r *rig, h []byte) { r.callNFS(pRead, h, uint64(0), len(payload)).requireOK() }},
		{"WRITE", func(r *rig, h []byte) { r.callNFS(pWrite, h, uint64(0), len(payload), 2, payload).requireOK() }},
		{"READDIRPLUS", func(r *rig, _ []byte) {
			r.callNFS(pReaddirplus, r.root, uint64(0), uint64(0), 8<<10, 32<<10).requireOK()
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
