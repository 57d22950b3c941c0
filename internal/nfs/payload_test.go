package nfs

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/decamp/decamp/internal/nfs/oncrpc"
	"github.com/decamp/decamp/internal/writebehind"
)

const (
	largeWrite  = 64 << 10 // bytes of a WRITE to a disk
	lockRenewal = 84       // bytes of a WRITE to a lock file
)

// payloadRig tests the memory of payloads. It runs in a synctest bubble.
type payloadRig struct {
	*testing.T
	memory     *payloadMemory
	disk, lock *file
}

func newPayloadRig(t *testing.T, o Options) *payloadRig {
	o.PlainMemory = writebehind.MinBudget
	return &payloadRig{t, newPayloadMemory(o), &file{special: true}, &file{}}
}

// getBuffer gets the buffer of a WRITE, and checks how long it waits and whether it gets spare memory.
func (r *payloadRig) getBuffer(name string, f *file, n int, wait time.Duration, wantSpare bool) *Buffer {
	r.Helper()
	start := time.Now()
	b, spare, err := r.memory.getBuffer(r.Context(), new(oncrpc.Call), f, n, writebehind.DiskOffset{})
	if err != nil {
		r.Fatalf("%s: %v", name, err)
	}
	if waited := time.Since(start); waited != wait || spare != wantSpare {
		r.Errorf("%s: waited %v, spare %v; want %v, %v", name, waited, spare, wait, wantSpare)
	}
	return b
}

// useUp lends buffers of n bytes until the pool has no memory for another one.
func (r *payloadRig) useUp(pool *payloadPool, n int) (lent []*Buffer) {
	r.Helper()
	for {
		b, err := pool.GetAt(expiredContext, n, writebehind.DiskOffset{})
		if errors.Is(err, context.Canceled) {
			return lent
		}
		if err != nil {
			r.Fatal(err)
		}
		lent = append(lent, b)
	}
}

func releaseBuffers(lent []*Buffer) {
	for _, b := range lent {
		b.Release()
	}
}

// While the memory of the disks is used up, writes to lock files do not make the WRITEs to disks wait again before
// these use spare memory.
func TestPlainFilesDoNotEndDiskShortage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPayloadRig(t, Options{Pool: writebehind.NewPool(writebehind.MinBudget)})
		disks := r.useUp(r.memory.disks, largeWrite)
		r.getBuffer("first disk write", r.disk, largeWrite, sparePatience, true).Release()
		r.getBuffer("lock renewal", r.lock, lockRenewal, 0, false).Release()
		r.getBuffer("second disk write", r.disk, largeWrite, 0, true).Release()

		// Each pool has its own shortage: this is the first one of the plain files.
		plain := r.useUp(r.memory.plain, largeWrite)
		r.getBuffer("first plain write", r.lock, largeWrite, sparePatience, true).Release()
		r.getBuffer("third disk write", r.disk, largeWrite, 0, true).Release()

		// Free memory of the disks ends their shortage, and only theirs.
		releaseBuffers(disks)
		r.getBuffer("disk write with free memory", r.disk, largeWrite, 0, false).Release()
		r.getBuffer("second plain write", r.lock, largeWrite, 0, true).Release()
		disks = r.useUp(r.memory.disks, largeWrite)
		r.getBuffer("disk write of the next shortage", r.disk, largeWrite, sparePatience, true).Release()
		releaseBuffers(disks)
		releaseBuffers(plain)
	})
}

// Small buffers come from a reserve. A free small buffer does not end the shortage of large ones.
func TestSmallBuffersDoNotEndLargeShortage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPayloadRig(t, Options{}) // all files share one pool
		large := r.useUp(r.memory.plain, smallPayload+1)
		r.getBuffer("first disk write", r.disk, largeWrite, sparePatience, true).Release()
		r.getBuffer("lock renewal", r.lock, lockRenewal, 0, false).Release()
		r.getBuffer("largest small write", r.disk, smallPayload, 0, false).Release()
		r.getBuffer("second disk write", r.disk, largeWrite, 0, true).Release()

		// The reserve has its own shortage, too.
		small := r.useUp(r.memory.plain, smallPayload)
		r.getBuffer("first lock renewal without memory", r.lock, lockRenewal, sparePatience, true).Release()
		r.getBuffer("second lock renewal without memory", r.lock, lockRenewal, 0, true).Release()
		r.getBuffer("third disk write", r.disk, largeWrite, 0, true).Release()
		releaseBuffers(large)
		r.getBuffer("disk write with free memory", r.disk, largeWrite, 0, false).Release()
		releaseBuffers(small)
	})
}

// A connection that ends while its WRITE waits does not end the shortage: no memory became free.
func TestCanceledWaitDoesNotEndShortage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPayloadRig(t, Options{})
		lent := r.useUp(r.memory.plain, largeWrite)
		const early = sparePatience / 5
		ctx, cancel := context.WithTimeout(t.Context(), early)
		defer cancel()
		b, _, err := r.memory.getBuffer(ctx, new(oncrpc.Call), r.disk, largeWrite, writebehind.DiskOffset{})
		if b != nil || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got buffer %v, error %v, want DeadlineExceeded", b, err)
		}
		r.getBuffer("next write", r.disk, largeWrite, sparePatience-early, true).Release()
		releaseBuffers(lent)
	})
}
