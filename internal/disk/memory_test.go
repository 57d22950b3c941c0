package disk

import (
	"fmt"
	"os"
	"runtime"
	"testing"
)

// residentBytes returns the resident memory of this process in bytes.
func residentBytes(t *testing.T) int64 {
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

// ReleaseUnused returns unused memory to the system before a large allocation, and keeps it before a small one.
func TestReleaseUnused(t *testing.T) {
	const n = 256 << 20
	used := AlignedMemory(n)
	for i := 0; i < n; i += 4096 {
		used[i] = 1
	}
	runtime.KeepAlive(used)
	used = nil
	before := residentBytes(t)
	ReleaseUnused(1 << 20) // too small to release memory
	if after := residentBytes(t); after < before-n/2 {
		t.Errorf("before a small allocation: %d of %d bytes are resident, want all", after, before)
	}
	ReleaseUnused(64 << 20)
	if after := residentBytes(t); after > before-n/2 {
		t.Errorf("before a large allocation: %d of %d bytes are resident", after, before)
	}
}
