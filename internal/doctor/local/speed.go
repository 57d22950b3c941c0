package local

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/rawfile"
	"github.com/decamp/decamp/internal/doctor"
	"github.com/decamp/decamp/internal/fault"
)

const (
	depth      = 4       // number of concurrent writes, as in blockcopy
	writeSize  = 2 * mib // bytes per write, as in blockcopy
	speedBytes = 2 * gib // limit of written bytes; less than a quarter of the free space

	// gigabit is the rate at which 1 GbE carries disk data, in bytes per second.
	gigabit = 118e6
)

// checkSpeed measures the write rate in the way of a copy, including the final sync.
func (e *examiner) checkSpeed(ctx context.Context) []doctor.Finding {
	f := doctor.Finding{On: e.Folder}
	rate, mode, err := e.measureRate(ctx)
	if err != nil {
		f.Status, f.Found, f.Remedy = doctor.Unknown, err.Error(), fault.HintOf(err)
		if f.Remedy == "" {
			f.Remedy = "df -h " + fault.Quote(e.nearestFolder())
		}
		return []doctor.Finding{f}
	}
	f.Found = fmt.Sprintf("%.0f MB/s with %d concurrent writes of %d MiB (%s) and a sync", rate/1e6, depth, writeSize/mib, mode)
	if rate < gigabit {
		f.Status, f.Want = doctor.Advice, fmt.Sprintf("at least %.0f MB/s, the rate of 1 GbE", gigabit/1e6)
		f.Remedy = "select a faster folder with --to, or find other writers: iostat -x 1"
	}
	return []doctor.Finding{f}
}

// measureRate writes a file and syncs it. It returns bytes per second and the mode of
// the file.
func (e *examiner) measureRate(ctx context.Context) (rate float64, mode string, err error) {
	s, err := e.Room(e.nearestFolder())
	if err != nil {
		return 0, "", err
	}
	// The probe must not fill the file system.
	size := min(speedBytes, s.Available/4) / writeSize * writeSize
	if size < writeSize {
		return 0, "", fault.New(fault.Full, "not enough free space for the write test").WithHint("free space: df -h %s", fault.Quote(e.nearestFolder()))
	}
	name := filepath.Join(e.nearestFolder(), fmt.Sprintf(".decamp-doctor-speed-%d", os.Getpid()))
	file, err := rawfile.Create(name, size, rawfile.Options{})
	if err != nil {
		return 0, "", err
	}
	defer os.Remove(name)
	defer file.Close()
	begin := time.Now()
	written, err := fillTarget(ctx, file, size, func() bool { return time.Since(begin) < e.Speed })
	if err == nil {
		// Without the sync, the rate of the page cache would be measured.
		err = file.Sync(ctx)
	}
	return float64(written) / time.Since(begin).Seconds(), file.Mode().String(), err
}

// fillTarget writes incompressible data to a target from front to back, while more
// returns true. It returns the number of bytes.
func fillTarget(ctx context.Context, to disk.Target, size int64, more func() bool) (int64, error) {
	var next, done atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range depth {
		g.Go(func() error {
			// O_DIRECT requires aligned memory.
			data := disk.AlignedMemory(writeSize)
			_, _ = rand.NewChaCha8([32]byte{}).Read(data) // never fails
			for more() {
				off := next.Add(writeSize) - writeSize
				if off >= size {
					return nil
				}
				data[0], data[1] = byte(off>>21), byte(off>>29) // no two are alike
				if err := to.WriteAt(ctx, data, off); err != nil {
					return err
				}
				done.Add(writeSize)
			}
			return nil
		})
	}
	err := g.Wait()
	return done.Load(), err
}
