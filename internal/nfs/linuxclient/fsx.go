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
	fsxOps     = 1500
	fsxLargest = 256 << 10
	fsxOp      = 60 << 10
	fsxPage    = 4096

	// fsxProgress is after how many operations a line is printed, at which the host
	// restarts the server.
	fsxProgress = 300
)

// runFsx writes, reads and sizes a file at random, against a plain []byte.
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

type fsxRun struct {
	file   *os.File
	memory []byte
	model  []byte
	direct bool
	rnd    *rand.Rand
}

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
	case 6: // what is written must come back from the server, not from the cache
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

func (x *fsxRun) write(off int, p []byte) error {
	for i := range p {
		p[i] = byte(x.rnd.Uint32())
	}
	x.resize(max(len(x.model), off+len(p)))
	copy(x.model[off:], p)
	_, err := x.file.WriteAt(p, int64(off))
	return err
}

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

func (x *fsxRun) resize(n int) {
	if n <= len(x.model) {
		x.model = x.model[:n:n]
		return
	}
	x.model = append(x.model, make([]byte, n-len(x.model))...)
}
