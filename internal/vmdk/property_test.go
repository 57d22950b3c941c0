package vmdk_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/decamp/decamp/internal/blockcopy"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/vmdk"
	"github.com/decamp/decamp/internal/vmdk/vmdktest"
	"github.com/decamp/decamp/test/lane"
)

// randomChains is how many chains are drawn; each takes some ten milliseconds.
const randomChains = 60

func TestRandomChainsReadRight(t *testing.T) {
	chains := uint64(randomChains)
	if !lane.Slow {
		chains /= 3
	}
	if testing.Short() {
		chains = 8
	}
	for seed := range chains {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			d := write(t, vmdktest.Random(seed))
			src := open(t, d.Folder, d.Name)
			if err := d.Want.Compare(t.Context(), src); err != nil {
				t.Error(err)
			}
			if err := zerosAreZeros(t.Context(), src, d.Want); err != nil {
				t.Error(err)
			}
			for off := int64(0); off < src.Size(); off += 1<<20 + disk.SectorSize {
				checkRuns(t, src, disk.Range{Off: off, Len: min(2<<20, src.Size()-off)}, d.Want)
			}
			for i, l := range src.Layers() {
				checkLayer(t, src, i, l)
			}
		})
	}
}

// checkRuns demands that the runs of r cover it exactly once, in order, and that those
// that are not data are zeros.
func checkRuns(t *testing.T, d *vmdk.Disk, r disk.Range, want *vmdktest.Overlay) {
	t.Helper()
	next := r.Off
	err := d.Runs(t.Context(), r, func(run vmdk.Run) bool {
		if run.Off != next || run.Len <= 0 || run.End() > r.End() {
			t.Errorf("run %+v of %v follows %d", run, r, next)
		}
		if run.Kind == vmdk.Data && (run.File < 0 || run.File >= len(d.Files()) || run.At < 0) {
			t.Errorf("run %+v lies in no file", run)
		}
		if run.Kind != vmdk.Data && !reads(t, want, run.Range).zero() {
			t.Errorf("run %+v is not zeros", run)
		}
		next = run.End()
		return !t.Failed()
	})
	if err != nil || next != r.End() {
		t.Errorf("runs of %v end at %d: %v", r, next, err)
	}
}

// checkLayer demands the same of one layer, and that its parts join.
func checkLayer(t *testing.T, d *vmdk.Disk, i int, l vmdk.Layer) {
	t.Helper()
	var next, end int64
	err := d.LayerRuns(t.Context(), i, disk.Range{Len: l.Size}, func(run vmdk.Run) bool {
		if run.Off != next || run.Len <= 0 {
			t.Errorf("layer %d: run %+v follows %d", i, run, next)
		}
		next = run.End()
		return !t.Failed()
	})
	for _, p := range l.Parts {
		if p.Off != end {
			t.Errorf("layer %d: part %+v follows %d", i, p, end)
		}
		end = p.End()
	}
	if err != nil || next != l.Size || end != l.Size {
		t.Errorf("layer %d of %d bytes: runs end at %d, parts at %d, %v", i, l.Size, next, end, err)
	}
}

type content []byte

func reads(t *testing.T, src disk.Source, r disk.Range) content {
	t.Helper()
	b := make([]byte, r.Len)
	if err := src.ReadAt(t.Context(), b, r.Off); err != nil {
		t.Fatal(err)
	}
	return b
}

func (c content) zero() bool {
	for _, b := range c {
		if b != 0 {
			return false
		}
	}
	return true
}

// Whatever a stream is cut down to, it is not taken for whole. The first cut takes the
// end marker and, of the last grain, the last byte that is not padding: without the
// marker alone it would be whole as qemu-img writes it.
func TestCutStreamsAreNoticed(t *testing.T) {
	for _, layout := range []vmdktest.Layout{vmdktest.AtEnd, vmdktest.UpFront, vmdktest.Both} {
		d := write(t, vmdktest.Chain{Seed: 77, Layers: []vmdktest.Layer{
			{Format: vmdktest.Stream, Sectors: 20000, Data: 0.3, Run: 4, Layout: layout},
		}})
		info, err := os.Stat(d.Path())
		if err != nil {
			t.Fatal(err)
		}
		for n := info.Size() - 1025; n >= 0; n -= info.Size()/29 + 1 {
			if err := receive(t.Context(), d.Path(), n, d.Want); err == nil {
				t.Errorf("layout %d: %d of %d bytes are taken for all", layout, n, info.Size())
			}
		}
	}
}

// receive reads the first n bytes of a stream, -1 for all, and compares the disk.
func receive(ctx context.Context, path string, n int64, want *vmdktest.Overlay) (err error) {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	r := io.Reader(f)
	if n >= 0 {
		r = io.LimitReader(f, n)
	}
	s, err := vmdk.ReadStream(ctx, r)
	if err != nil {
		return err
	}
	check := disk.NewCheck(want)
	if _, err := blockcopy.Receive(ctx, s, check, blockcopy.Options{}); err != nil {
		return err
	}
	return check.Finish(ctx)
}
