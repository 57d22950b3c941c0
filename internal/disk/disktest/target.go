package disktest

import (
	"math/rand/v2"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/disk"
)

// An Image is one image under test. Its functions create it, open it again while it is unfinished, and
// read it when it is finished. All of them use the same image in a folder of the test.
type Image struct {
	Create func() (disk.Target, error) // a fresh image: reads as zeros everywhere
	Resume func() (disk.Target, error) // the unfinished image Close left
	Source func() (disk.Source, error) // the finished image
}

// TestTarget checks a Target. image returns how to create an image of size bytes in a new folder.
func TestTarget(t *testing.T, image func(t *testing.T, size int64) Image) {
	cases := []struct {
		name string
		run  func(*testing.T, Image, *disk.Pattern)
	}{
		{"holds written data", keepsWrites},
		{"takes writes in any order", acceptsAnyOrder},
		{"unwritten is zero", unwrittenIsZero},
		{"zeroes written data", zeroesWrites},
		{"resumes after close", resumesAfterClose},
		{"refuses ranges outside of the disk", targetRefusesOutside},
	}
	for _, size := range sizes {
		want := disk.NewSparsePattern(size, 0.5, uint64(size)+1)
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) { c.run(t, image(t, size), want) })
		}
	}
}

// keepsWrites writes the disk in order.
func keepsWrites(t *testing.T, im Image, want *disk.Pattern) {
	dst := createImage(t, im)
	for _, r := range splitDisk(want.Size(), 1<<20) {
		writeRange(t, dst, want, r)
	}
	finishAndCompare(t, im, dst, want)
}

// acceptsAnyOrder writes the disk in random order, in four goroutines.
func acceptsAnyOrder(t *testing.T, im Image, want *disk.Pattern) {
	dst := createImage(t, im)
	rnd := rand.New(rand.NewPCG(8, 9))
	todo := splitDisk(want.Size(), 192<<10+disk.SectorSize)
	rnd.Shuffle(len(todo), func(i, j int) { todo[i], todo[j] = todo[j], todo[i] })
	var g errgroup.Group
	g.SetLimit(4)
	for _, r := range todo {
		g.Go(func() error { writeRange(t, dst, want, r); return nil })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	finishAndCompare(t, im, dst, want)
}

// unwrittenIsZero requires that a new image reads as zeros.
func unwrittenIsZero(t *testing.T, im Image, want *disk.Pattern) {
	dst := createImage(t, im)
	finishAndCompare(t, im, dst, disk.NewSparsePattern(want.Size(), 0, 0))
}

// zeroesWrites overwrites data with zeros, then writes the disk.
func zeroesWrites(t *testing.T, im Image, want *disk.Pattern) {
	dst := createImage(t, im)
	full := disk.NewPattern(want.Size())
	for _, r := range splitDisk(want.Size(), 4<<20) {
		writeRange(t, dst, full, r)
	}
	if err := dst.Zero(t.Context(), disk.Range{Len: want.Size()}); err != nil {
		t.Fatalf("zero: %v", err)
	}
	for _, r := range splitDisk(want.Size(), 1<<20) {
		writeRange(t, dst, want, r)
	}
	finishAndCompare(t, im, dst, want)
}

// resumesAfterClose leaves garbage where the second run must write zeros.
func resumesAfterClose(t *testing.T, im Image, want *disk.Pattern) {
	dst := createImage(t, im)
	all := splitDisk(want.Size(), 1<<20)
	for _, r := range all[:(len(all)+1)/2] {
		writeRange(t, dst, disk.NewPattern(want.Size()), r)
	}
	if err := dst.Sync(t.Context()); err != nil {
		t.Fatalf("sync: %v", err)
	}
	if err := dst.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	again, err := im.Resume()
	if err != nil {
		t.Fatalf("resume: %v", err)
	}
	for _, r := range all {
		writeRange(t, again, want, r)
	}
	finishAndCompare(t, im, again, want)
}

// targetRefusesOutside requires an error for writes outside the disk.
func targetRefusesOutside(t *testing.T, im Image, want *disk.Pattern) {
	dst := createImage(t, im)
	defer dst.Close()
	size := want.Size()
	if err := dst.WriteAt(t.Context(), make([]byte, 2*disk.SectorSize), size-disk.SectorSize); err == nil {
		t.Error("a write across the end gave no error")
	}
	if err := dst.WriteAt(t.Context(), make([]byte, disk.SectorSize), -disk.SectorSize); err == nil {
		t.Error("a write before the start gave no error")
	}
	if err := dst.Zero(t.Context(), disk.Range{Off: size, Len: disk.SectorSize}); err == nil {
		t.Error("zeroing past the end gave no error")
	}
}

// createImage creates the image or fails the test.
func createImage(t *testing.T, im Image) disk.Target {
	t.Helper()
	dst, err := im.Create()
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	return dst
}

// writeRange writes want's content of r: data with WriteAt, holes with Zero.
func writeRange(t *testing.T, dst disk.Target, want *disk.Pattern, r disk.Range) {
	t.Helper()
	extents, err := want.Extents(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range extents {
		if e.Kind == disk.Zero {
			err = dst.Zero(t.Context(), e.Range)
		} else {
			err = dst.WriteAt(t.Context(), readRange(t, want, e.Range), e.Off)
		}
		if err != nil {
			t.Errorf("put %v %v: %v", e.Kind, e.Range, err)
		}
	}
}

// finishAndCompare finishes the image, and compares it with want.
func finishAndCompare(t *testing.T, im Image, dst disk.Target, want disk.Source) {
	t.Helper()
	if err := dst.Finish(t.Context()); err != nil {
		t.Fatalf("finish: %v", err)
	}
	if err := dst.Close(); err != nil {
		t.Fatalf("close after finish: %v", err)
	}
	src, err := im.Source()
	if err != nil {
		t.Fatalf("open the finished image: %v", err)
	}
	defer src.Close()
	if src.Size() != want.Size() {
		t.Fatalf("finished image has %d bytes, want %d", src.Size(), want.Size())
	}
	compareRange(t, src, want, disk.Range{Len: want.Size()}, 1<<20)
}

// splitDisk divides a disk of size bytes into ranges of n bytes. The last one may be shorter.
func splitDisk(size, n int64) []disk.Range {
	var out []disk.Range
	for off := int64(0); off < size; off += n {
		out = append(out, disk.Range{Off: off, Len: min(n, size-off)})
	}
	return out
}
