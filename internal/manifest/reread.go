package manifest

import (
	"context"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

// A Sample selects chunks of a disk: the first ones, the last one, given ones, and random ones.
type Sample struct {
	First    int64    // bytes from the start of the disk; the first chunk is always included
	Random   int      // number of random chunks, beside the others
	Metadata []int64  // chunks with partition tables and file-system structures
	Seed     [32]byte // chooses the random chunks; unpredictable if it comes from crypto/rand
}

// A Reread is the result of reading a Sample of the source a second time.
type Reread struct {
	Chunks   int64  `json:"chunks"`             // chunks that were read again and are equal
	Of       int64  `json:"of"`                 // chunks of the disk
	Bytes    int64  `json:"bytes"`              // bytes in Chunks
	Random   int    `json:"random,omitempty"`   // how many of them Seed chose
	Metadata int    `json:"metadata,omitempty"` // how many of them hold tables or file-system structures
	Seed     string `json:"seed,omitempty"`     // Sample.Seed in hex
	List     string `json:"list,omitempty"`     // the numbers of the chunks, such as "0,17-19"
	By       string `json:"by,omitempty"`       // how the source was read: https or nfc
	NotRead  string `json:"notRead,omitempty"`  // why nothing was read again; empty if something was
}

// String returns the result as one phrase: "96 of 40,960 chunks equal".
func (r Reread) String() string {
	switch {
	case r.NotRead != "":
		return "none: " + r.NotRead
	case r.Chunks == r.Of:
		return fmt.Sprintf("all %s chunks equal", formatCount(r.Of))
	}
	return fmt.Sprintf("%s of %s chunks equal", formatCount(r.Chunks), formatCount(r.Of))
}

// formatCount formats n with a comma between groups of three digits.
func formatCount(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// Of returns the numbers of the sample's chunks in ascending order, and a Reread that describes the
// choice and counts nothing as equal yet. The same Sample of the same disk has the same chunks.
func (s Sample) Of(info Info) ([]int64, Reread) {
	report := Reread{Of: info.Chunks(), Seed: hex.EncodeToString(s.Seed[:])}
	chosen := map[int64]bool{}
	add := func(chunk int64) bool {
		if chunk < 0 || chunk >= info.Chunks() || chosen[chunk] {
			return false
		}
		chosen[chunk] = true
		return true
	}
	for c := int64(0); c == 0 || c*ChunkSize < min(s.First, info.Size); c++ {
		add(c)
	}
	add(info.Chunks() - 1)
	for _, c := range s.Metadata {
		if add(c) {
			report.Metadata++
		}
	}
	rest := info.Chunks() - int64(len(chosen))
	if rest <= int64(s.Random) {
		for c := range info.Chunks() {
			if add(c) {
				report.Random++
			}
		}
	}
	rnd := rand.New(rand.NewChaCha8(s.Seed))
	for report.Random < s.Random && int64(report.Random) < rest {
		if add(rnd.Int64N(info.Chunks())) {
			report.Random++
		}
	}
	chunks := make([]int64, 0, len(chosen))
	for c := range chosen {
		chunks = append(chunks, c)
	}
	slices.Sort(chunks)
	report.List = listOf(chunks)
	return chunks, report
}

// listOf formats ascending numbers as "0,17-19".
func listOf(chunks []int64) string {
	var b strings.Builder
	for i := 0; i < len(chunks); {
		last := i
		for last+1 < len(chunks) && chunks[last+1] == chunks[last]+1 {
			last++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprint(&b, chunks[i])
		if last > i {
			fmt.Fprintf(&b, "-%d", chunks[last])
		}
		i = last + 1
	}
	return b.String()
}

// rereadAtOnce is the number of chunks that Compare reads at the same time: two for each of two
// connections.
const rereadAtOnce = 4

// Compare reads the sample's chunks of source and compares their hashes with those of the manifest,
// which were made when the disk was copied. It finds bytes that were wrong when they arrived, which
// hashing on arrival cannot find. A difference is Corrupt and names the disk and the chunk's offset.
//
// pace, if not nil, is called before each chunk is read. Memory is 4 MiB, and 8 bytes for each chunk
// of the sample.
func (s Sample) Compare(ctx context.Context, source disk.Source, m *Sealed, pace func(ctx context.Context, bytes int64) error) (Reread, error) {
	info := m.Info()
	chunks, report := s.Of(info)
	if source.Size() != info.Size {
		return report, fault.New(fault.Conflict, "disk %s has %d bytes at the source, the image has %d", info.Disk, source.Size(), info.Size).
			WithHint("the disk was resized since it was copied: discard the run with decamp rollback RUN, and copy the VM again")
	}
	want, err := m.hashesOf(chunks)
	if err != nil {
		return report, err
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(rereadAtOnce)
	for i, c := range chunks {
		g.Go(func() error {
			at := info.Chunk(c)
			err := gctx.Err()
			if err == nil && pace != nil {
				err = pace(gctx, at.Len)
			}
			if err != nil {
				return err
			}
			return compareChunk(gctx, source, info, at, want[i])
		})
	}
	if err := g.Wait(); err != nil {
		return report, err
	}
	for _, c := range chunks {
		report.Bytes += info.Chunk(c).Len
	}
	report.Chunks = int64(len(chunks))
	return report, nil
}

// compareChunk reads the chunk at range at of source. If its hash is not want, it returns
// fault.Corrupt.
func compareChunk(ctx context.Context, source disk.Source, info Info, at disk.Range, want Hash) error {
	buf := make([]byte, at.Len)
	if err := source.ReadAt(ctx, buf, at.Off); err != nil {
		return fmt.Errorf("read disk %s again at %d: %w", info.Disk, at.Off, err)
	}
	if got := HashOf(buf); got != want {
		return fault.New(fault.Corrupt, "disk %s at %d: the source differs from the copied data: the chunk of %d bytes had the hash %v, and has %v when it is read again", info.Disk, at.Off, at.Len, want, got).
			WithHint("make sure that the VM at the source did not run since the copy began")
	}
	return nil
}

// hashesOf returns the hashes of chunks. The chunks must be in ascending order.
func (s *Sealed) hashesOf(chunks []int64) ([]Hash, error) {
	want := make([]Hash, 0, len(chunks))
	hashes := s.Hashes()
	page := make([]Hash, 4096)
	for at := int64(0); at < s.info.Chunks() && len(want) < len(chunks); at += int64(len(page)) {
		page = page[:min(s.info.Chunks()-at, int64(len(page)))]
		if err := hashes.Next(page); err != nil {
			return nil, fmt.Errorf("read manifest %s: %w", s.path, err)
		}
		for len(want) < len(chunks) && chunks[len(want)] < at+int64(len(page)) {
			want = append(want, page[chunks[len(want)]-at])
		}
	}
	return want, nil
}
