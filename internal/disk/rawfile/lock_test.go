package rawfile

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// A program that is being started has all open files until it runs, also one that was closed meanwhile,
// with its lock. That is nobody else who uses the image.
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
			_ = exec.Command("true").Run() // whether it is there does not matter: it is forked for
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
