package manifest

import (
	"encoding/hex"
	"fmt"
	"sync"

	"github.com/zeebo/blake3"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

// ChunkSize is the number of bytes of one hash. 1 MiB limits the hashes of a 6 TiB disk to 200 MiB, and
// the data to copy again after a flipped bit.
const ChunkSize = 1 << 20

// MaxSize is the largest disk a manifest describes, in bytes; VMware's limit is 62 TiB. It
// bounds what a damaged or hostile file can make us allocate: 256 MiB.
const MaxSize = 64 << 40

// A Hash is the BLAKE3-256 of one chunk, or the root over all of them.
type Hash [32]byte

// String returns the hash in lower-case hex.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// MarshalText returns the hash in hex, for JSON.
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (h *Hash) UnmarshalText(text []byte) error {
	b, err := hex.DecodeString(string(text))
	if err != nil || len(b) != len(h) {
		return fault.New(fault.Invalid, "hash %q is not %d hex digits", text, 2*len(h))
	}
	copy(h[:], b)
	return nil
}

// HashOf returns the hash of a chunk that holds p.
func HashOf(p []byte) Hash { return blake3.Sum256(p) }

// ZeroHash returns the hash of n zero bytes. n must be at most ChunkSize. The hash of a whole chunk is
// computed only once.
func ZeroHash(n int) Hash {
	if n == ChunkSize {
		return zeroChunkHash()
	}
	return HashOf(zeroChunk()[:n])
}

// Both are made once, by the first caller, and never written after that.
var (
	// ChunkSize zero bytes; must not be written
	zeroChunk     = sync.OnceValue(func() []byte { return make([]byte, ChunkSize) })
	zeroChunkHash = sync.OnceValue(func() Hash { return HashOf(zeroChunk()) }) // hash of zeroChunk
)

// A Run is a sequence of neighbouring chunks: one for each of Hashes, or Zeros chunks that contain only
// zeros. Exactly one of the two is set.
type Run struct {
	First  int64  // number of the first chunk
	Hashes []Hash // hashes of the chunks; nil for zeros
	Zeros  int64  // number of zero chunks; 0 with Hashes
}

// Count returns the number of chunks in r.
func (r Run) Count() int64 { return int64(len(r.Hashes)) + r.Zeros }

// end returns the number of the first chunk after r.
func (r Run) end() int64 { return r.First + r.Count() }

// checkRun fails with fault.Internal unless r is valid and lies on a disk of that many chunks.
func (r Run) checkRun(chunks int64) error {
	if r.Zeros < 0 || (len(r.Hashes) > 0) == (r.Zeros > 0) {
		return fault.New(fault.Internal, "a run has %d hashes and %d zero chunks: want one of the two", len(r.Hashes), r.Zeros)
	}
	return checkSpan(r.First, r.Count(), chunks)
}

// checkSpan fails with fault.Internal unless n chunks from first lie on a disk of that many chunks. n
// must be more than 0.
func checkSpan(first, n, chunks int64) error {
	if first < 0 || n <= 0 || first > chunks || n > chunks-first {
		return fault.New(fault.Internal, "chunks %d+%d lie outside a disk of %d chunks", first, n, chunks)
	}
	return nil
}

// Info identifies the disk of a manifest. Create stores it and it does not change, except by Grow. A
// caller that resumes compares it with its disk.
type Info struct {
	Disk   string // name of the disk in errors and reports, for example "2001"
	Size   int64  // virtual size in bytes
	Source string // origin of the disk: endpoint, VM, disk key
}

// Chunks returns the number of chunks; the last may be short.
func (i Info) Chunks() int64 { return (i.Size + ChunkSize - 1) / ChunkSize }

// Chunk returns the bytes of the disk that chunk n covers.
func (i Info) Chunk(n int64) disk.Range {
	off := n * ChunkSize
	return disk.Range{Off: off, Len: min(ChunkSize, i.Size-off)}
}

// zeroHash returns the hash of chunk n if it is all zeros. The last chunk may be short.
func (i Info) zeroHash(n int64) Hash { return ZeroHash(int(i.Chunk(n).Len)) }

// maxName is the largest length of Disk and of Source, in bytes.
const maxName = 4096

// checkLimits fails if the size or a name does not fit into a manifest.
func (i Info) checkLimits() error {
	switch {
	case i.Size < 0 || i.Size > MaxSize:
		return fault.New(fault.Unsupported, "disk of %d bytes: a manifest supports 0 to %d", i.Size, int64(MaxSize)).
			WithHint("VMware has no disk of that size: check the source of the number")
	case len(i.Disk) > maxName || len(i.Source) > maxName:
		return fault.New(fault.Invalid, "disk and source names of %d and %d bytes: at most %d each", len(i.Disk), len(i.Source), maxName).
			WithHint("use shorter names")
	}
	return nil
}

// String returns disk and source, for messages.
func (i Info) String() string { return fmt.Sprintf("disk %s of %s", i.Disk, i.Source) }
