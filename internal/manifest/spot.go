package manifest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

// SpotOptions say what a spot check compares.
type SpotOptions struct {
	First    int64  // bytes from the start of the disk
	Ranges   int    // how many random ranges after that
	RangeLen int64  // bytes of each; default 1 MiB
	Seed     uint64 // the same seed picks the same ranges
}

// A SpotReport is what a spot check compared.
type SpotReport struct {
	Seed   uint64       `json:"seed"`
	Bytes  int64        `json:"bytes"`  // compared, counting bytes that two ranges share twice
	Ranges []disk.Range `json:"ranges"` // the first bytes, then the random ones
}

// spotPiece is how much Spot reads at once from each side, in bytes.
const spotPiece = 1 << 20

// Spot reads the first bytes and some random ranges of the source disk once more and
// compares them with the image: it finds what hashing on arrival cannot, bytes that were
// wrong when they came in. A difference is Corrupt and names its first byte. The report
// holds what was found equal, also after an error. Memory is 2 MiB.
func Spot(ctx context.Context, source, image disk.Source, o SpotOptions) (SpotReport, error) {
	report := SpotReport{Seed: o.Seed}
	if source.Size() != image.Size() {
		return report, fault.New(fault.Corrupt, "spot check: the source has %d bytes, the image %d", source.Size(), image.Size()).
			WithHint("the disk was resized since the copy began: copy it again")
	}
	s := spotter{source: source, image: image, a: disk.AlignedMemory(spotPiece), b: disk.AlignedMemory(spotPiece)}
	for _, r := range o.pick(source.Size()) {
		if err := s.compare(ctx, r); err != nil {
			return report, fmt.Errorf("spot check: %w", err)
		}
		report.Ranges = append(report.Ranges, r)
		report.Bytes += r.Len
	}
	return report, nil
}

// pick returns the ranges to compare. Random ones begin at a sector and are spread
// evenly over the disk: a seed chosen by nobody in advance is what makes them proof.
func (o SpotOptions) pick(size int64) []disk.Range {
	var picked []disk.Range
	if first := min(o.First, size); first > 0 {
		picked = append(picked, disk.Range{Len: first})
	}
	n := o.RangeLen
	if n <= 0 {
		n = 1 << 20
	}
	rnd := rand.New(rand.NewPCG(o.Seed, 0))
	for range o.Ranges {
		if n = min(n, size); n == 0 {
			break
		}
		sector := rnd.Int64N((size-n)/disk.SectorSize + 1)
		picked = append(picked, disk.Range{Off: sector * disk.SectorSize, Len: n})
	}
	return picked
}

type spotter struct {
	source, image disk.Source
	a, b          []byte
}

func (s *spotter) compare(ctx context.Context, r disk.Range) error {
	for off := r.Off; off < r.End(); off += spotPiece {
		n := min(spotPiece, r.End()-off)
		if err := s.piece(ctx, s.a[:n], s.b[:n], off); err != nil {
			return err
		}
	}
	return nil
}

func (s *spotter) piece(ctx context.Context, a, b []byte, off int64) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return at("read source", off, s.source.ReadAt(ctx, a, off)) })
	g.Go(func() error { return at("read image", off, s.image.ReadAt(ctx, b, off)) })
	if err := g.Wait(); err != nil {
		return err
	}
	if bytes.Equal(a, b) {
		return nil
	}
	i := 0
	for a[i] == b[i] {
		i++
	}
	return fault.New(fault.Corrupt, "byte %d: the source has %#02x, the image %#02x", off+int64(i), a[i], b[i]).
		WithHint("make sure the VM did not run since the copy began, then copy the disk again")
}

func at(doing string, off int64, err error) error {
	if err != nil {
		return fmt.Errorf("%s at %d: %w", doing, off, err)
	}
	return nil
}
