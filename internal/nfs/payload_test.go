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

// A host writes to its lock files while the disks' memory is used up. That must not make the
// disks' WRITEs wait again before they use spare memory.
func TestPlainFilesDoNotEndTheDisksShortage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 64 << 10
		m := newPayloadMemory(Options{Pool: writebehind.NewPool(writebehind.MinBudget), PlainMemory: writebehind.MinBudget})
		disk, lock := &file{special: true}, &file{}

		// get checks how long a WRITE waits, and which memory it gets.
		get := func(name string, f *file, n int, wait time.Duration, wantSpare bool) *Buffer {
			t.Helper()
			start := time.Now()
			b, spare, err := m.getBuffer(t.Context(), new(oncrpc.Call), f, n, writebehind.DiskOffset{})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if waited := time.Since(start); waited != wait || spare != wantSpare {
				t.Errorf("%s: waited %v, spare %v; want %v, %v", name, waited, spare, wait, wantSpare)
			}
			return b
		}
		var lent []*Buffer
		useUp := func(pool *payloadPool) {
			t.Helper()
			for {
				b, err := pool.GetAt(expiredContext, size, writebehind.DiskOffset{})
				if errors.Is(err, context.Canceled) {
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				lent = append(lent, b)
			}
		}

		useUp(m.disks)
		get("first disk write", disk, size, sparePatience, true).Release()
		get("lock renewal", lock, 84, 0, false).Release()
		get("second disk write", disk, size, 0, true).Release()

		// Each pool has its own shortage: this is the first one of the plain files.
		disks := len(lent)
		useUp(m.plain)
		get("first plain write", lock, size, sparePatience, true).Release()
		get("third disk write", disk, size, 0, true).Release()

		// Free memory of the disks ends their shortage, and only theirs.
		for _, b := range lent[:disks] {
			b.Release()
		}
		lent = lent[disks:]
		get("disk write with free memory", disk, size, 0, false).Release()
		get("second plain write", lock, size, 0, true).Release()
		useUp(m.disks)
		get("disk write of the next shortage", disk, size, sparePatience, true).Release()
		for _, b := range lent {
			b.Release()
		}
	})
}
