package manifest

import (
	"io"
	"sync/atomic"

	"github.com/decamp/decamp/internal/disk"
)

// A window is a part of the disk on its way through Verify. describe owns it until it is
// sent, one compare until ready is closed; from then on it is only read, until the last
// of its users hands it back.
type window struct {
	disk.Range
	zero   bool   // a hole: buf is not used
	proven bool   // the window needs no reading
	buf    []byte // buffer of the largest window, allocated at the first read
	want   []Hash
	bad    []Bad
	ready  chan struct{}
	users  atomic.Int32
}

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

// buffer returns room for the window's bytes; size is that of the largest window.
func (w *window) buffer(size int64) []byte {
	if w.buf == nil {
		w.buf = disk.AlignedMemory(size)
	}
	return w.buf[:w.Len]
}

// chunkBytes returns the bytes of the window's chunk number i.
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

func (w *window) hashChunk(info Info, i int, n int64) Hash {
	if w.zero {
		return info.zeroHash(n)
	}
	return HashOf(w.chunkBytes(i))
}

// addTo adds the window's bytes to a hash, which never fails.
func (w *window) addTo(to io.Writer) {
	for i := range w.want {
		to.Write(w.chunkBytes(i))
	}
}
