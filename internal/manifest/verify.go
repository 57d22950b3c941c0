package manifest

import (
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

// VerifyOptions tune Verify; the zero value is right for images on local storage.
type VerifyOptions struct {
	// Window is the number of bytes that are read and compared at once, rounded up to whole chunks. The
	// default is 4 MiB, or the request size that the source prefers if that is larger.
	Window int64

	// Windows is the number of windows in memory. The default is 8. Reading and BLAKE3 are several times
	// faster than SHA-256, so more windows only wait.
	Windows int

	// MaxBad is the largest number of bad chunks in the report. All are counted. The default is 100.
	MaxBad int

	// NoSums leaves the sums out of the report. They are computed over every byte in order, including
	// holes, and dominate the time for a disk that is mostly empty.
	NoSums bool

	// MD5 computes MD5 in addition to SHA-256. It takes about twice as long as SHA-256.
	MD5 bool

	// Verified reports whether a chunk need not be read, because it was verified after it was written. nil
	// reads all chunks. It implies NoSums, and windows of one chunk.
	Verified func(chunk int64) bool

	// Progress receives the totals after every window, in order, from one goroutine. It may be nil.
	Progress func(Progress)
}

// Progress counts the bytes of a disk during Verify. Done reaches Size at the end.
type Progress struct {
	Size int64 // size of the disk
	Done int64 // compared, or verified before
	Read int64 // bytes of Done that were read from the image: neither holes nor verified before
}

// withDefaults returns o with its zero values replaced.
func (o VerifyOptions) withDefaults(src disk.Source) VerifyOptions {
	if o.Verified != nil {
		o.NoSums, o.Window = true, ChunkSize
	}
	if o.Window <= 0 {
		o.Window = max(4<<20, src.Hints().Request)
	}
	o.Window = (o.Window + ChunkSize - 1) / ChunkSize * ChunkSize
	if o.Windows <= 0 {
		o.Windows = 8
	}
	if o.MaxBad <= 0 {
		o.MaxBad = 100
	}
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	return o
}

// Verify reads all of src, compares every chunk with the manifest, and computes the
// sums of the logical disk in the same pass:
//
//	describe  (one)      cut the disk into windows; holes are known and not read
//	compare   (Windows)  read a window, BLAKE3 each chunk, compare
//	SHA-256   (one)      in order, unless NoSums
//	MD5       (one)      in order, with Options.MD5, unless NoSums
//	account   (one)      in order: count, record bad chunks, report progress
//
// A hole must have the hash of zeros and is hashed as zeros. Memory is Windows x Window
// and 2 MiB, whatever the size of the disk: 34 MiB by default.
//
// What Options.Verified names is left out of it but for its place in the root.
//
// Bad chunks make a Corrupt error that names the first, and the report is complete also
// then. After any other error it is empty. Whether src reads the medium or a cache is
// the caller's choice; a src with a method Medium() string has it reported.
func Verify(ctx context.Context, src disk.Source, s *Sealed, o VerifyOptions) (Report, error) {
	if src.Size() != s.info.Size {
		return Report{}, fault.New(fault.Corrupt, "verify disk %s: the image has %d bytes, the manifest %d", s.info.Disk, src.Size(), s.info.Size).
			WithHint("the image was replaced or cut: copy the disk again")
	}
	v := newVerifier(src, s, o.withDefaults(src))
	if err := v.runStages(ctx); err != nil {
		return Report{}, fmt.Errorf("verify disk %s: %w", s.info.Disk, err)
	}
	if err := v.report.badChunksError(); err != nil {
		return v.report, fmt.Errorf("verify: %w", err)
	}
	return v.report, nil
}

// A verifier is the state of one Verify.
type verifier struct {
	src    disk.Source    // image to read
	want   *Hashes        // hashes of the manifest; only sendWindows uses it
	info   Info           // disk of the manifest
	o      VerifyOptions  // options without zero values
	work   chan *window   // windows to compare; sendWindows closes it
	queues []chan *window // windows for each stage, in disk order; sendWindows closes them
	free   chan *window   // unused windows; never closed
	report Report         // result; only countWindow changes it while stages run
}

// newVerifier returns a verifier with unused windows.
func newVerifier(src disk.Source, s *Sealed, o VerifyOptions) *verifier {
	v := &verifier{src: src, want: s.Hashes(), info: s.info, o: o}
	v.report = Report{Disk: s.info.Disk, Root: s.root}
	disk.ReleaseUnused(min(int64(o.Windows)*o.Window, s.info.Size))
	v.work = make(chan *window, o.Windows)
	v.free = make(chan *window, o.Windows)
	for range o.Windows {
		v.free <- &window{}
	}
	return v
}

// runStages runs all stages to their end, and completes the report.
func (v *verifier) runStages(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	sha, md := sha256.New(), md5.New()
	if !v.o.NoSums {
		v.addStage(ctx, g, func(w *window) { w.addTo(sha) })
	}
	if v.o.MD5 && !v.o.NoSums {
		v.addStage(ctx, g, func(w *window) { w.addTo(md) })
	}
	v.addStage(ctx, g, v.countWindow)
	for range v.o.Windows {
		g.Go(func() error { return v.compareWindows(ctx) })
	}
	g.Go(func() error { return v.sendWindows(ctx) })
	if err := g.Wait(); err != nil {
		return err
	}
	if !v.o.NoSums {
		v.report.SHA256 = hex.EncodeToString(sha.Sum(nil))
	}
	if v.o.MD5 && !v.o.NoSums {
		v.report.MD5 = hex.EncodeToString(md.Sum(nil))
	}
	if m, ok := v.src.(interface{ Medium() string }); ok {
		v.report.Medium = m.Medium()
	}
	return nil
}

// sendWindows sends the windows of the disk, in order, to compareWindows and the stages. Their channels
// have space for all windows, so it waits only for a free window.
func (v *verifier) sendWindows(ctx context.Context) error {
	for off := int64(0); off < v.info.Size; off += v.o.Window {
		w, err := receive(ctx, v.free)
		if err != nil {
			return err
		}
		if err := v.prepareWindow(ctx, w, off); err != nil {
			return err
		}
		v.work <- w
		for _, q := range v.queues {
			q <- w
		}
	}
	close(v.work)
	for _, q := range v.queues {
		close(q)
	}
	return nil
}

// prepareWindow makes w the window at off, with its hashes from the manifest.
func (v *verifier) prepareWindow(ctx context.Context, w *window, off int64) error {
	r := disk.Range{Off: off, Len: min(v.o.Window, v.info.Size-off)}
	proven := v.o.Verified != nil && v.o.Verified(off/ChunkSize) // then a window is a chunk
	zero, err := v.isHole(ctx, r, proven)
	if err != nil {
		return err
	}
	w.resetFor(r, zero, len(v.queues))
	w.proven = proven
	if err := v.want.Next(w.want); err != nil {
		return fmt.Errorf("read hashes of %v: %w", r, err)
	}
	return nil
}

// isHole reports whether all of r is a hole. It does not query verified chunks, because that would read
// the tables of each chunk.
func (v *verifier) isHole(ctx context.Context, r disk.Range, proven bool) (bool, error) {
	if proven {
		return false, nil
	}
	extents, err := v.src.Extents(ctx, r)
	if err != nil {
		return false, fmt.Errorf("describe %v: %w", r, err)
	}
	return zeroBytes(extents) == r.Len, nil
}

// zeroBytes returns the number of zero bytes according to the extents.
func zeroBytes(extents []disk.Extent) (n int64) {
	for _, e := range extents {
		if e.Kind == disk.Zero {
			n += e.Len
		}
	}
	return n
}

// compareWindows reads windows and records which chunks differ. Several goroutines run it.
func (v *verifier) compareWindows(ctx context.Context) error {
	for {
		w, err := receive(ctx, v.work)
		if w == nil {
			return err
		}
		if w.proven {
			close(w.ready)
			continue
		}
		if !w.zero {
			if err := v.src.ReadAt(ctx, w.buffer(v.o.Window), w.Off); err != nil {
				return fmt.Errorf("read %v: %w", w.Range, err)
			}
		}
		w.compareChunks(v.info)
		close(w.ready)
	}
}

// addStage starts a stage that receives the windows in disk order after they are compared.
func (v *verifier) addStage(ctx context.Context, g *errgroup.Group, stage func(*window)) {
	queue := make(chan *window, v.o.Windows)
	v.queues = append(v.queues, queue)
	g.Go(func() error {
		for {
			w, err := receive(ctx, queue)
			if w == nil {
				return err
			}
			if _, err := receive(ctx, w.ready); err != nil {
				return err
			}
			stage(w)
			if w.users.Add(-1) == 0 {
				v.free <- w
			}
		}
	})
}

// countWindow is the stage that adds a window to the report and reports progress.
func (v *verifier) countWindow(w *window) {
	r := &v.report
	r.Bytes += w.Len
	r.Chunks += int64(len(w.want))
	r.BadChunks += int64(len(w.bad))
	if w.proven {
		r.VerifiedBefore += w.Len
	} else if w.zero {
		r.Zero += w.Len
	}
	r.Bad = append(r.Bad, w.bad[:min(len(w.bad), v.o.MaxBad-len(r.Bad))]...)
	v.o.Progress(Progress{Size: v.info.Size, Done: r.Bytes, Read: r.Read()})
}

// receive receives from c. It returns the zero value if c is closed or ctx ends, and an error only if
// ctx ends.
func receive[T any](ctx context.Context, c <-chan T) (T, error) {
	select {
	case v := <-c:
		return v, nil
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}
