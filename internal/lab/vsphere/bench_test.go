package vsphere

import (
	"io"
	"testing"
)

// BenchmarkGenerate measures the reads of a generated disk, which must be much faster than TLS.
func BenchmarkGenerate(b *testing.B) {
	g := &generated{noise: newNoise(), size: 1 << 40, fill: 100, seed: 1}
	buf := make([]byte, bufferSize)
	b.SetBytes(bufferSize)
	off := int64(0)
	for b.Loop() {
		if _, err := g.ReadAt(buf, off); err != nil {
			b.Fatal(err)
		}
		off = (off + bufferSize) % (1 << 39)
	}
}

// BenchmarkFolder measures a download with net/http over one connection, including the client.
func BenchmarkFolder(b *testing.B) {
	const size = 64 << 20
	l, err := Start(b.Context(), Config{VMs: []VM{{Name: "web01", Disks: []Disk{{Capacity: size, Fill: 100}}}}})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	c := newClient(b, l)
	r := folderRequest(b, l, "GET", folderURL(l, "web01/web01-flat.vmdk"))
	b.SetBytes(size)
	for b.Loop() {
		resp, err := c.Do(r)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			b.Fatal(err)
		}
		resp.Body.Close()
	}
}
