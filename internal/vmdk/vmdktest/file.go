package vmdktest

import (
	"bufio"
	"errors"
	"os"
)

// A file is written from front to back, with holes. The first error is kept, and finish returns it.
// Later writes then do nothing.
type file struct {
	f   *os.File      // created file
	w   *bufio.Writer // buffer in front of f
	at  int64         // offset of the next write in bytes
	err error         // first error
}

// createFile creates the file at path. It fails if the file exists.
func createFile(path string) (*file, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	return &file{f: f, w: bufio.NewWriterSize(f, 1<<20)}, nil
}

// write writes b at the current position.
func (f *file) write(b []byte) {
	if f.err == nil {
		_, f.err = f.w.Write(b)
	}
	f.at += int64(len(b))
}

// skipTo continues at a later sector and leaves a hole. Going back is an error of the layout.
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

// nextSector returns the sector of the next write, rounded up.
func (f *file) nextSector() int64 { return (f.at + sector - 1) / sector }

// padSector continues at the next sector boundary.
func (f *file) padSector() { f.skipTo(f.nextSector()) }

// writeSectorAt overwrites a part of the file that was written or skipped. at is in sectors.
func (f *file) writeSectorAt(b []byte, at int64) {
	if f.err == nil {
		f.err = f.w.Flush()
	}
	if f.err == nil {
		_, f.err = f.f.WriteAt(b, at*sector)
	}
}

// finish sets the length of the file to the current position, closes it, and returns the first error.
func (f *file) finish() error {
	if f.err == nil {
		f.err = f.w.Flush()
	}
	if f.err == nil {
		f.err = f.f.Truncate(f.at)
	}
	return errors.Join(f.err, f.f.Close())
}

// writeText writes a descriptor in a separate file.
func writeText(path, text string) error { return os.WriteFile(path, []byte(text), 0o644) }
