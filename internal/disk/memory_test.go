package disk

import (
	"fmt"
	"os"
	"runtime"
	"testing"
)

// resident returns the bytes of memory that this process has.
func resident(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	var size, pages int64
	if _, err := fmt.Sscan(string(text), &size, &pages); err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// Memory of a step that is over goes back to the system before the next one takes as much.
func TestReleaseUnused(t *testing.T) {
	const n = 256 << 20
	used := AlignedMemory(n)
	for i := 0; i < n; i += 4096 {
		used[i] = 1
	}
	runtime.KeepAlive(used)
	used = nil
	before := resident(t)
	ReleaseUnused(1 << 20) // too little to be worth it
	if after := resident(t); after < before-n/2 {
		t.Errorf("%d of %d bytes are left before little is allocated", after, before)
	}
	ReleaseUnused(64 << 20)
	if after := resident(t); after > before-n/2 {
		t.Errorf("%d of %d bytes are left", after, before)
	}
}
