package vsphere

import (
	"io"
	"testing"
)

// BenchmarkNFC reads one disk in one session with 16 pending reads of 1 MiB, and discards the
// data. It measures the lab without the work of a client.
func BenchmarkNFC(b *testing.B) {
	for _, tc := range []struct {
		name    string
		secure  bool
		packing uint32
	}{{"clear", false, 0}, {"tls", true, 0}, {"clear-skipz", false, 3}, {"clear-fastlz", false, 2}} {
		b.Run(tc.name, func(b *testing.B) { benchNFC(b, tc.secure, tc.packing) })
	}
}

func benchNFC(b *testing.B, secure bool, packing uint32) {
	const step, depth, size = 1 << 20, 16, 1 << 30
	l, err := Start(b.Context(), Config{VMs: []VM{{Name: "web01", Disks: []Disk{{Capacity: size, Fill: 60, Seed: 1}}}}})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	f, err := openNFC(b, l, "web01", nfcPath, secure, 1<<20, 4)
	if err != nil {
		b.Fatal(err)
	}
	buf := make([]byte, step+headersSize)
	b.SetBytes(step)
	sent, received := 0, 0
	off := func(i int) int64 { return int64(i) * step % size }
	for b.Loop() {
		for ; sent < received+depth; sent++ {
			f.requestRead(off(sent), step, packing)
		}
		if _, err := io.ReadFull(f.conn, buf[:headersSize]); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(f.conn, buf[:wireLength(buf)]); err != nil {
			b.Fatal(err)
		}
		received++
	}
}

// headersSize is the size of both headers of a fragment.
const headersSize = 16 + 44

func wireLength(p []byte) int {
	return int(p[52]) | int(p[53])<<8 | int(p[54])<<16 | int(p[55])<<24
}
