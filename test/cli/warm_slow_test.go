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

// The same sequence of guest writes results in the same image with each transport, with one and three rounds, and after a
// kill. The nth write of each lab is the same.
func TestWarmMetamorphicByEveryTransport(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var first string // checksums of the first subtest that ended
	for _, transport := range []string{"https", "nfc", "landing"} {
		for _, rounds := range []int{1, 3} {
			for _, killed := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %d rounds, killed %v", transport, rounds, killed), func(t *testing.T) {
					t.Parallel()
					cfg := writingLab()
					cfg.VMs[0].Guest.Writes.Rate = 0
					args := transportFlags(t, &cfg)[transport]
					r := newRig(t, cfg).withFingerprint()
					u := r.startWarm(args...)
					const writes = 240
					for range rounds {
						must(t, r.lab.GuestWrites("web01", writes/rounds))
						if killed {
							u.readEvents(rand.IntN(12))
							u.endWith(syscall.SIGKILL)
							u = r.startWarm(args...)
						}
						u.waitRounds(1)
					}
					r.cutOver(u)
					sums := r.imageSum(r.imagePath(0)) + r.imageSum(r.imagePath(1))
					mu.Lock()
					defer mu.Unlock()
					if first == "" {
						first = sums
					}
					if sums != first {
						t.Error("the image differs from that of another subtest")
					}
				})
			}
		}
	}
}

func (r *rig) imageSum(path string) string {
	r.t.Helper()
	f, err := os.Open(path)
	must(r.t, err)
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	must(r.t, err)
	return hex.EncodeToString(h.Sum(nil))
}
