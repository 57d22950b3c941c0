// Package tuning sets the parameters of Go's collector and scheduler for decamp's load.
package tuning

import (
	"os"
	"runtime"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// garbagePercent limits garbage to a quarter of the memory in use. Nearly all of that memory
// is windows and tables without pointers, so a collection is cheap.
const garbagePercent = 25

// ballastSize is memory that counts as in use and is never resident. Without it the collector
// runs for every MiB in a process that uses a few MiB, and takes a third of all processor
// time. With it the collector runs every 16 MiB at most.
const ballastSize = 64 << 20

// spareProcs are added to the scheduler's processors. Bytes are moved by system calls, and
// each call keeps a processor of the scheduler. If none is left, the scheduler retakes one
// every 20 µs, which takes a tenth of the time on two cores. With four more the landing
// receives 64 KiB writes, one at a time, at 850 MB/s instead of 690, and 1 MiB writes at
// 1950 instead of 1650.
const spareProcs = 4

// ballastPiece is the size of one allocation of the ballast, in bytes. The runtime clears a whole
// allocation if one of its pages was in use before. A single allocation of 64 MiB was cleared in every
// second process, which took three times the processor time of the rest of the start.
const ballastPiece = 1 << 20

//lint:ignore U1000 it keeps the memory reachable
var ballast [][]byte

// Apply sets the parameters. GOMAXPROCS of the environment takes precedence.
func Apply() {
	debug.SetGCPercent(-1) // no collection until the ballast is complete
	ballast = newBallast(ballastSize / ballastPiece)
	debug.SetGCPercent(garbagePercent)
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + spareProcs)
	}
}

// newBallast allocates n pieces, none of them resident. The runtime clears memory that it uses
// again, which makes its pages resident, so they are given back.
func newBallast(n int) [][]byte {
	all := make([][]byte, n)
	for i := range all {
		all[i] = make([]byte, ballastPiece)
		_ = unix.Madvise(all[i], unix.MADV_DONTNEED) // if it fails, the pages stay resident
	}
	return all
}
