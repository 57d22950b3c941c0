package writebehind

import (
	"sync"
	"testing"

	"github.com/decamp/decamp/internal/disk"
)

// A pool that runs out of memory requests memory from every file, also from one that is just being opened. Without
// the lock in New, the race detector fails this test, and rarely a nil account.
func TestPressureWhileFilesAreOpened(t *testing.T) {
	pool := NewPool(MinBudget)
	stop := make(chan struct{})
	var pressing sync.WaitGroup
	pressing.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				pool.relievePressure()
			}
		}
	})
	for range 2000 {
		f, err := New(disk.NewNull(8<<20), nil, pool, Options{Fresh: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	pressing.Wait()
}
