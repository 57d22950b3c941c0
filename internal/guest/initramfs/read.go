// Package initramfs reads what a kernel unpacks before it mounts its root file system, and
// writes archives that are appended to it.
//
// An initramfs is one archive after the other, each in the format of cpio called "newc" and
// each compressed or not; zeros may lie between them. Names of a later one win. So a guest's
// initramfs is changed by adding to it: nothing that is there has to be understood or packed
// again. See the kernel's Documentation/driver-api/early-userspace/buffer-format.rst.
//
// What is read was written by strangers: archives have at most maxUnpacked bytes unpacked, and
// maxEntries entries.
package initramfs

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
)

const (
	maxUnpacked = 2 << 30
	maxEntries  = 1 << 19
	maxName     = 4096

	headerLen = 110
	trailer   = "TRAILER!!!"
)

// An Entry is a file, a folder or a link of an initramfs.
type Entry struct {
	Name string // as the archive has it, without a slash or "./" before it
	Mode uint32 // kind and permissions, as stat has them
	Size int64
}

// IsDir reports whether the entry is a folder.
func (e Entry) IsDir() bool { return e.Mode&0o170000 == 0o040000 }

// Read calls visit with each entry of an initramfs, in order. visit may read the file's
// content from body. What follows an archive that is compressed other than by gzip is not
// seen. An error of visit ends it.
func Read(data []byte, visit func(e Entry, body io.Reader) error) error {
	r := &reader{visit: visit, left: maxUnpacked}
	in := bytes.NewReader(data)
	for {
		if err := skipZeros(in); err != nil || in.Len() == 0 {
			return err
		}
		more, err := r.part(in)
		if err != nil {
			return fmt.Errorf("archive before byte %d: %w", len(data)-in.Len(), err)
		}
		if !more {
			return nil
		}
	}
}

// skipZeros goes on to the next archive. One that is not compressed begins at a multiple of 4.
func skipZeros(in *bytes.Reader) error {
	for {
		c, err := in.ReadByte()
		if err == io.EOF {
			return nil
		}
		if c != 0 {
			return in.UnreadByte()
		}
	}
}

// A reader reads the archives of one initramfs.
type reader struct {
	visit   func(Entry, io.Reader) error
	entries int
	left    int64 // bytes that may still be unpacked
}

// part reads one archive, and reports whether what follows can be found.
func (r *reader) part(in *bytes.Reader) (more bool, err error) {
	magic := make([]byte, 6)
	n, _ := in.ReadAt(magic, in.Size()-int64(in.Len()))
	if bytes.HasPrefix(magic[:n], []byte("07070")) {
		return true, r.archive(in)
	}
	packed, more, err := unpack(in, magic[:n])
	if err != nil {
		return false, err
	}
	defer packed.Close()
	if err := r.archives(bufio.NewReaderSize(packed, 1<<16)); err != nil {
		return false, err
	}
	if more { // gzip: its end is found by reading to it
		_, err = io.Copy(io.Discard, io.LimitReader(packed, r.left))
	}
	return more, err
}

// archives reads an unpacked stream, which may have several archives as well.
func (r *reader) archives(in *bufio.Reader) error {
	for first := true; ; first = false {
		magic, err := in.Peek(1)
		if err == io.EOF && !first {
			return nil
		}
		if err != nil {
			return err
		}
		if magic[0] == 0 {
			_, _ = in.Discard(1)
			continue
		}
		if err := r.archive(in); err != nil {
			return err
		}
		if !first {
			return nil
		}
	}
}

// archive reads entries up to the trailer.
func (r *reader) archive(in io.Reader) error {
	for {
		e, err := r.entry(in)
		if err != nil {
			return err
		}
		body := io.LimitReader(in, e.Size)
		if e.Name == trailer {
			return nil
		}
		if err := r.visit(e, body); err != nil {
			return err
		}
		if err := skip(in, body, e.Size); err != nil {
			return err
		}
	}
}

// skip goes to the next entry: past the rest of a file, to a multiple of 4.
func skip(in, body io.Reader, size int64) error {
	_, err := io.Copy(io.Discard, body)
	if err == nil {
		_, err = io.CopyN(io.Discard, in, -size&3)
	}
	return err
}

// entry reads a header and the name after it.
func (r *reader) entry(in io.Reader) (Entry, error) {
	header := make([]byte, headerLen)
	if _, err := io.ReadFull(in, header); err != nil {
		return Entry{}, fmt.Errorf("header: %w", err)
	}
	if string(header[:6]) != "070701" && string(header[:6]) != "070702" {
		return Entry{}, fmt.Errorf("a header that begins %q", header[:6])
	}
	mode, err1 := field(header, 1)
	size, err2 := field(header, 6)
	nameLen, err3 := field(header, 11)
	if err := errors.Join(err1, err2, err3); err != nil {
		return Entry{}, err
	}
	if nameLen == 0 || nameLen > maxName {
		return Entry{}, fmt.Errorf("a name of %d bytes", nameLen)
	}
	name := make([]byte, nameLen+-(headerLen+nameLen)&3)
	if _, err := io.ReadFull(in, name); err != nil {
		return Entry{}, fmt.Errorf("name: %w", err)
	}
	r.entries++
	if r.left -= headerLen + nameLen + size; r.left < 0 || r.entries > maxEntries {
		return Entry{}, fmt.Errorf("more than %d MiB or %d entries", maxUnpacked>>20, maxEntries)
	}
	return Entry{clean(name[:nameLen-1]), uint32(mode), size}, nil
}

// clean takes off what archives may have before a name.
func clean(name []byte) string {
	name, _ = bytes.CutPrefix(name, []byte("./"))
	return string(bytes.TrimLeft(name, "/"))
}

// field returns field n of a header: eight hexadecimal digits each, after the magic.
func field(header []byte, n int) (int64, error) {
	v, err := strconv.ParseUint(string(header[6+8*n:][:8]), 16, 32)
	if err != nil {
		return 0, fmt.Errorf("field %d of a header: %w", n, err)
	}
	return int64(v), nil
}
