package vmdktest

import (
	"bufio"
	"errors"
	"os"
)

// file is written from front to back, with holes. The first error stays and is told by
// finish, so that layouts read as layouts.
type file struct {
	f   *os.File
	w   *bufio.Writer
	at  int64 // where the next write goes
	err error
}

func createFile(path string) (*file, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	return &file{f: f, w: bufio.NewWriterSize(f, 1<<20)}, nil
}

// write appends b.
func (f *file) write(b []byte) {
	if f.err == nil {
		_, f.err = f.w.Write(b)
	}
	f.at += int64(len(b))
}

// skipTo moves to a sector further on and leaves a hole; going back is a fault of the
// layout.
func (f *file) skipTo(toSector int64) {
	to := toSector * sector
	switch {
	case f.err != nil || to == f.at:
		return
	case to < f.at:
		f.err = errors.New("the layout goes backwards")
		return
	}
	if f.err = f.w.Flush(); f.err == nil {
		_, f.err = f.f.Seek(to, 0)
	}
	f.at = to
}

// nextSector is where the next write goes, in sectors, rounded up.
func (f *file) nextSector() int64 { return (f.at + sector - 1) / sector }

// padSector goes to the next sector.
func (f *file) padSector() { f.skipTo(f.nextSector()) }

// writeSectorAt writes b at a sector that was passed.
func (f *file) writeSectorAt(b []byte, at int64) {
	if f.err == nil {
		f.err = f.w.Flush()
	}
	if f.err == nil {
		_, f.err = f.f.WriteAt(b, at*sector)
	}
}

// finish ends the file where the last write or skip did.
func (f *file) finish() error {
	if f.err == nil {
		f.err = f.w.Flush()
	}
	if f.err == nil {
		f.err = f.f.Truncate(f.at)
	}
	return errors.Join(f.err, f.f.Close())
}

func writeText(path, text string) error { return os.WriteFile(path, []byte(text), 0o644) }
