package rawfile

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// A forked child inherits all open files until it calls exec. It keeps the lock of an image that this process
// closes in the meantime. Open does not report the image as used by another process.
func TestReopenedWhileProgramsStart(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "disk.raw")
	f, err := Create(path, 1<<20, Options{})
	if err != nil {
		t.Fatal(err)
	}
	starting := make(chan struct{})
	go func() {
		defer close(starting)
		for range 200 {
			_ = exec.Command("true").Run() // only the fork matters, not the program
		}
	}()
	for again := true; again; {
		select {
		case <-starting:
			again = false
		default:
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if f, err = Open(path, Options{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
