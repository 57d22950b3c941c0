//go:build slow

package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"testing"
)

// The same history of guest writes results in the same image with every transport, with few and many rounds, and
// after a kill at any point: the nth write of each lab is the same.
func TestWarmMetamorphicByEveryTransport(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var first string // the sums of the first that was done
	for _, way := range []string{"https", "nfc", "landing"} {
		for _, rounds := range []int{1, 3} {
			for _, killed := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %d rounds, killed %v", way, rounds, killed), func(t *testing.T) {
					t.Parallel()
					cfg := writing()
					cfg.VMs[0].Guest.Writes.Rate = 0
					args := ways(t, &cfg)[way]
					r := newRig(t, cfg).trusting()
					u := r.warm(args...)
					const writes = 240
					for range rounds {
						must(t, r.lab.GuestWrites("web01", writes/rounds))
						if killed {
							u.someEvents(rand.IntN(12))
							u.end(syscall.SIGKILL)
							u = r.warm(args...)
						}
						u.rounds(1)
					}
					r.cutOver(u)
					sums := r.sum(r.image(0)) + r.sum(r.image(1))
					mu.Lock()
					defer mu.Unlock()
					if first == "" {
						first = sums
					}
					if sums != first {
						t.Error("the same history became another image")
					}
				})
			}
		}
	}
}

func (r *rig) sum(path string) string {
	r.t.Helper()
	f, err := os.Open(path)
	must(r.t, err)
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	must(r.t, err)
	return hex.EncodeToString(h.Sum(nil))
}
