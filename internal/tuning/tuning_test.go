package tuning

import (
	"bytes"
	"os"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The ballast is not resident, even in memory that was used before.
func TestBallastIsNotResident(t *testing.T) {
	const n = 64 << 20
	for range 3 {
		used := make([]byte, 2*n)
		for i := range used {
			used[i] = 1
		}
		runtime.KeepAlive(used)
		used = nil
		runtime.GC() // frees the memory, whose pages stay resident
		b := newBallast(n / ballastPiece)
		for _, piece := range b {
			pages := make([]byte, len(piece)/os.Getpagesize())
			_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(unsafe.SliceData(piece))), uintptr(len(piece)), uintptr(unsafe.Pointer(unsafe.SliceData(pages))))
			if errno != 0 {
				t.Fatal(errno)
			}
			if resident := bytes.Count(pages, []byte{1}); resident > 0 {
				t.Errorf("%d of %d pages are resident, want none", resident, len(pages))
			}
		}
		runtime.KeepAlive(b)
	}
}
