package main

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"syscall"
)

const (
	fsxOps     = 1500      // operations of one run
	fsxLargest = 256 << 10 // offsets are below it, in bytes
	fsxOp      = 60 << 10  // longest read or write, in bytes
	fsxPage    = 4096      // alignment of O_DIRECT, in bytes

	// fsxProgress is the number of operations between two printed lines. The host restarts the server at
	// each line.
	fsxProgress = 300
)

// runFsx writes, reads and truncates a file at random, and compares it with a model in memory. seed
// selects the operations. flags are added to those of open: 0 or O_DIRECT.
func runFsx(seed uint64, flags int) error {
	f, err := os.OpenFile(fmt.Sprintf("%s/fsx%d", mountPoint, seed), os.O_CREATE|os.O_RDWR|flags, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	// Mapped memory is aligned, as O_DIRECT wants it.
	memory, err := syscall.Mmap(-1, 0, fsxOp+fsxPage, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return err
	}
	x := &fsxRun{file: f, memory: memory, direct: flags&syscall.O_DIRECT != 0, rnd: rand.New(rand.NewPCG(seed, 0))}
	for op := range fsxOps {
		if op%fsxProgress == fsxProgress/2 {
			fmt.Println("progress")
		}
		if err := x.runStep(); err != nil {
			return fmt.Errorf("operation %d: %w", op, err)
		}
	}
	return os.Remove(f.Name())
}

// fsxRun is the state of one run.
type fsxRun struct {
	file   *os.File   // file on the server
	memory []byte     // aligned buffer of fsxOp+fsxPage bytes
	model  []byte     // expected content of the file
	direct bool       // offsets and lengths must be multiples of fsxPage
	rnd    *rand.Rand // source of all random choices
}

// runStep executes one random operation, and compares the size of the file with the model.
func (x *fsxRun) runStep() error {
	off, n := x.rnd.IntN(fsxLargest), 1+x.rnd.IntN(fsxOp)
	if x.direct {
		off, n = off&^(fsxPage-1), (n+fsxPage-1)&^(fsxPage-1)
	}
	switch x.rnd.IntN(7) {
	case 0, 1, 2:
		if err := x.write(off, x.memory[:n]); err != nil {
			return err
		}
	case 3, 4:
		if err := x.read(off, x.memory[:n]); err != nil {
			return err
		}
	case 5:
		if err := x.file.Truncate(int64(off)); err != nil {
			return err
		}
		x.resize(off)
	case 6: // later reads must come from the server, not from the client's cache
		if err := x.file.Sync(); err != nil {
			return err
		}
		if err := os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0o644); err != nil {
			return err
		}
	}
	st, err := x.file.Stat()
	if err == nil && st.Size() != int64(len(x.model)) {
		err = fmt.Errorf("size %d, want %d", st.Size(), len(x.model))
	}
	return err
}

// write fills p with random bytes and writes it to the file and the model.
func (x *fsxRun) write(off int, p []byte) error {
	for i := range p {
		p[i] = byte(x.rnd.Uint32())
	}
	x.resize(max(len(x.model), off+len(p)))
	copy(x.model[off:], p)
	_, err := x.file.WriteAt(p, int64(off))
	return err
}

// read compares the file at off with the model.
func (x *fsxRun) read(off int, p []byte) error {
	n, err := x.file.ReadAt(p, int64(off))
	if err != nil && err != io.EOF {
		return err
	}
	end := min(off+len(p), len(x.model))
	if want := x.model[min(off, end):end]; !bytes.Equal(p[:n], want) {
		return fmt.Errorf("%d bytes at %d differ from the %d there should be", n, off, len(want))
	}
	return nil
}

// resize sets the length of the model. Added bytes are zeros.
func (x *fsxRun) resize(n int) {
	if n <= len(x.model) {
		x.model = x.model[:n:n]
		return
	}
	x.model = append(x.model, make([]byte, n-len(x.model))...)
}
