package manifest

import (
	"io"
	"sync/atomic"

	"github.com/decamp/decamp/internal/disk"
)

// A window is a part of the disk during Verify. sendWindows owns it until it is sent. Then one
// compareWindows owns it until ready is closed. After that it is only read, until its last user returns
// it.
type window struct {
	disk.Range
	zero   bool          // a hole: buf is not used
	proven bool          // the window needs no reading
	buf    []byte        // memory of the size of the largest window; nil until the first read
	want   []Hash        // hashes of the chunks in the manifest
	bad    []Bad         // chunks that differ
	ready  chan struct{} // closed when the window is compared
	users  atomic.Int32  // number of stages that have not finished with the window
}

// resetFor prepares w for range r and that many users.
func (w *window) resetFor(r disk.Range, zero bool, users int) {
	w.Range, w.zero, w.bad = r, zero, w.bad[:0]
	w.ready = make(chan struct{})
	w.users.Store(int32(users))
	if n := int((r.Len + ChunkSize - 1) / ChunkSize); n <= cap(w.want) {
		w.want = w.want[:n]
	} else {
		w.want = make([]Hash, n)
	}
}

// buffer returns memory for the window's bytes. size is the size of the largest window.
func (w *window) buffer(size int64) []byte {
	if w.buf == nil {
		w.buf = disk.AlignedMemory(size)
	}
	return w.buf[:w.Len]
}

// chunkBytes returns the bytes of chunk i of the window.
func (w *window) chunkBytes(i int) []byte {
	off := int64(i) * ChunkSize
	n := min(ChunkSize, w.Len-off)
	if w.zero {
		return zeroChunk()[:n]
	}
	return w.buf[off : off+n]
}

// compareChunks records the chunks that differ from the manifest.
func (w *window) compareChunks(info Info) {
	for i, want := range w.want {
		n := w.Off/ChunkSize + int64(i)
		if got := w.hashChunk(info, i, n); got != want {
			r := info.Chunk(n)
			w.bad = append(w.bad, Bad{Disk: info.Disk, Off: r.Off, Len: r.Len, Want: want, Got: got})
		}
	}
}

// hashChunk returns the hash of chunk i of the window, which is chunk n of the disk.
func (w *window) hashChunk(info Info, i int, n int64) Hash {
	if w.zero {
		return info.zeroHash(n)
	}
	return HashOf(w.chunkBytes(i))
}

// addTo writes the window's bytes to a hash. Writing to a hash never fails.
func (w *window) addTo(to io.Writer) {
	for i := range w.want {
		to.Write(w.chunkBytes(i))
	}
}
