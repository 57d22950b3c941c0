package manifest

import (
	"fmt"

	"github.com/decamp/decamp/internal/fault"
)

// A Report is the result of Verify. The sums are of the bytes that Verify read. They are those of the
// source disk only if no chunk is bad.
type Report struct {
	Disk           string `json:"disk"`                     // name of the disk
	Bytes          int64  `json:"bytes"`                    // bytes of the disk, all of them compared
	Zero           int64  `json:"zero"`                     // bytes of holes in the image: known to be zeros, not read
	VerifiedBefore int64  `json:"verifiedBefore,omitempty"` // bytes that were verified before and not read
	Chunks         int64  `json:"chunks"`                   // number of chunks of the disk
	BadChunks      int64  `json:"badChunks"`                // number of chunks that differ
	Bad            []Bad  `json:"bad,omitempty"`            // first bad chunks in disk order; at most VerifyOptions.MaxBad
	Root           Hash   `json:"root"`                     // root hash of the manifest
	SHA256         string `json:"sha256"`                   // hash of the logical disk, lower-case hex; empty with NoSums
	MD5            string `json:"md5,omitempty"`            // MD5 of the logical disk, lower-case hex; empty unless VerifyOptions.MD5
	Medium         string `json:"medium"`                   // origin of the bytes, as the image names it; empty if unknown
}

// Read returns the number of bytes read from the image: all but holes and chunks verified before.
func (r Report) Read() int64 { return r.Bytes - r.Zero - r.VerifiedBefore }

// Bad is a chunk that differs from the manifest.
type Bad struct {
	Disk string `json:"disk"` // name of the disk
	Off  int64  `json:"off"`  // offset of the chunk on the disk in bytes
	Len  int64  `json:"len"`  // length of the chunk in bytes
	Want Hash   `json:"want"` // hash in the manifest
	Got  Hash   `json:"got"`  // hash of the bytes in the image
}

// Chunk returns the chunk's number, for Log.Drop.
func (b Bad) Chunk() int64 { return b.Off / ChunkSize }

// String describes the chunk for errors.
func (b Bad) String() string {
	return fmt.Sprintf("disk %s at %d (%d bytes): expected BLAKE3 %v, seen %v", b.Disk, b.Off, b.Len, b.Want, b.Got)
}

// badChunksError returns fault.Corrupt with the first bad chunk, or nil.
func (r *Report) badChunksError() error {
	if r.BadChunks == 0 {
		return nil
	}
	more := ""
	if r.BadChunks > 1 {
		more = fmt.Sprintf(", and %d more chunks", r.BadChunks-1)
	}
	return fault.New(fault.Corrupt, "%v%s", r.Bad[0], more).
		WithHint("the image differs from the copied data: check its storage for errors (dmesg, smartctl), then copy the disk again")
}
