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
	depth      = 4       // writes under way, as many as blockcopy has
	writeSize  = 2 * mib // write size in bytes, that of blockcopy's windows
	speedBytes = 2 * gib // maximum bytes to write; a quarter of the free space if that is less

	// gigabit is what a network of 1 GbE carries of a disk, in bytes a second.
	gigabit = 118e6
)

// speed writes as a copy does, and counts the sync in the end.
func (e *examiner) speed(ctx context.Context) []doctor.Finding {
	f := doctor.Finding{On: e.Folder}
	rate, mode, err := e.measure(ctx)
	if err != nil {
		f.Status, f.Seen, f.Remedy = doctor.Unknown, err.Error(), fault.HintOf(err)
		if f.Remedy == "" {
			f.Remedy = "df -h " + fault.Quote(e.nearest())
		}
		return []doctor.Finding{f}
	}
	f.Seen = fmt.Sprintf("%.0f MB/s, %d writes of %d MiB at a time (%s), synced", rate/1e6, depth, writeSize/mib, mode)
	if rate < gigabit {
		f.Status, f.Want = doctor.Advice, fmt.Sprintf("%.0f MB/s, which one link of 1 GbE brings: this folder limits, whatever the network", gigabit/1e6)
		f.Remedy = "name a faster place with --to; see what else writes there: iostat -x 1"
	}
	return []doctor.Finding{f}
}

func (e *examiner) measure(ctx context.Context) (rate float64, mode string, err error) {
	s, err := e.Room(e.nearest())
	if err != nil {
		return 0, "", err
	}
	size := min(speedBytes, s.Available/4) / writeSize * writeSize
	if size < writeSize {
		return 0, "", fault.New(fault.Full, "no room to try it").WithHint("make room: df -h %s", fault.Quote(e.nearest()))
	}
	name := filepath.Join(e.nearest(), fmt.Sprintf(".decamp-doctor-speed-%d", os.Getpid()))
	file, err := rawfile.Create(name, size, rawfile.Options{})
	if err != nil {
		return 0, "", err
	}
	defer os.Remove(name)
	defer file.Close()
	begin := time.Now()
	written, err := fill(ctx, file, size, func() bool { return time.Since(begin) < e.Speed })
	if err == nil {
		err = file.Sync(ctx)
	}
	return float64(written) / time.Since(begin).Seconds(), file.Mode().String(), err
}

// fill writes incompressible data to a target, front to back, within the time limit.
func fill(ctx context.Context, to disk.Target, size int64, more func() bool) (int64, error) {
	var next, done atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range depth {
		g.Go(func() error {
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
