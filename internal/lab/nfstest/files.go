package nfstest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/lab/xdr"
)

const (
	rootID    = 2        // number of the root directory
	idSize    = 8        // bytes of a file's number at the end of its handle
	blockSize = 64 << 10 // unit of allocation in bytes
)

// A file is a regular file or a directory. Data is stored in blocks, so that a file may have holes.
type file struct {
	id     uint64            // number of the file; also its fileid
	name   string            // name in its directory; empty for the root
	mode   uint32            // permission bits
	nlink  uint32            // number of hard links in the attributes
	size   int64             // length in bytes
	blocks map[int64][]byte  // data by block number; a missing block reads as zeros
	dir    map[string]uint64 // numbers of the entries by name; nil for a regular file
	verf   []byte            // verifier of the exclusive CREATE that created it; nil for others
	time   uint32            // times in the attributes, in seconds: a counter of changes
}

// handleOf returns the handle of a file: padding, then its number.
func (s *Server) handleOf(id uint64) []byte {
	return binary.BigEndian.AppendUint64(make([]byte, s.pad), id)
}

// fileByHandle returns the file of a handle; nil if it does not exist.
func (s *Server) fileByHandle(handle []byte) *file {
	if len(handle) < idSize {
		return nil
	}
	return s.files[binary.BigEndian.Uint64(handle[len(handle)-idSize:])]
}

// appendAttr encodes a fattr3 (RFC 1813 section 2.6).
func (f *file) appendAttr(e *xdr.Encoder) {
	e.Uint32(map[bool]uint32{false: 1, true: 2}[f.dir != nil]) // NF3REG, NF3DIR
	for _, v := range []uint32{f.mode, f.nlink, 0, 0} {        // owner and group are root
		e.Uint32(v)
	}
	e.Uint64(uint64(f.size))
	e.Uint64(uint64(len(f.blocks)) * blockSize)
	e.Uint64(0) // rdev
	e.Uint64(1) // fsid
	e.Uint64(f.id)
	for range 3 { // atime, mtime, ctime
		e.Uint32(f.time)
		e.Uint32(0)
	}
}

// appendPostOp encodes a post_op_attr; a nil f omits the attributes.
func appendPostOp(e *xdr.Encoder, f *file) {
	e.Bool(f != nil)
	if f != nil {
		f.appendAttr(e)
	}
}

// appendWcc encodes wcc_data without the attributes before the operation.
func appendWcc(e *xdr.Encoder, f *file) {
	e.Bool(false) // no pre_op_attr
	appendPostOp(e, f)
}

// readAt fills p from off on and returns the number of bytes before the end of the file.
func (f *file) readAt(p []byte, off int64) int {
	n := int(max(0, min(int64(len(p)), f.size-off)))
	for done := 0; done < n; {
		at := off + int64(done)
		run := min(n-done, int(blockSize-at%blockSize))
		if b := f.blocks[at/blockSize]; b != nil {
			copy(p[done:done+run], b[at%blockSize:])
		} else {
			clear(p[done : done+run])
		}
		done += run
	}
	return n
}

// writeAt writes p, or returns false if the limit of SetRoom does not permit new blocks.
func (s *Server) writeAt(f *file, p []byte, off int64) bool {
	fresh := int64(0)
	for b := off / blockSize; b*blockSize < off+int64(len(p)); b++ {
		if f.blocks[b] == nil {
			fresh += blockSize
		}
	}
	if s.room > 0 && s.used+fresh > s.room {
		return false
	}
	s.used += fresh
	for done := 0; done < len(p); {
		at := off + int64(done)
		b := f.blocks[at/blockSize]
		if b == nil {
			b = make([]byte, blockSize)
			f.blocks[at/blockSize] = b
		}
		done += copy(b[at%blockSize:], p[done:])
	}
	f.size = max(f.size, off+int64(len(p)))
	return true
}

// truncateFile sets the length of a file and frees the blocks after it.
func (s *Server) truncateFile(f *file, size int64) {
	for b, data := range f.blocks {
		if b*blockSize >= size {
			delete(f.blocks, b)
			s.used -= blockSize
		} else if end := size - b*blockSize; end < blockSize {
			clear(data[end:])
		}
	}
	f.size = size
}

// resolvePath returns the file at a path from the root; nil if it does not exist.
func (s *Server) resolvePath(path string) *file {
	f := s.files[rootID]
	for _, e := range strings.Split(path, "/") {
		if f == nil {
			return nil
		}
		f = s.files[f.dir[e]]
	}
	return f
}

// Read returns the content of a regular file.
func (s *Server) Read(path string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.resolvePath(path)
	if f == nil || f.dir != nil {
		return nil, fmt.Errorf("nfstest: no file %s", path)
	}
	p := make([]byte, f.size)
	f.readAt(p, 0)
	return p, nil
}

// Write replaces the content of a file, which it creates in the root directory if necessary.
func (s *Server) Write(path string, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.resolvePath(path)
	if f == nil {
		f = s.addFile(s.files[rootID], path, 0o600)
	}
	s.truncateFile(f, 0)
	s.writeAt(f, data, 0)
}

// Used returns the allocated bytes of a file, or -1 if it does not exist.
func (s *Server) Used(path string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.resolvePath(path); f != nil {
		return int64(len(f.blocks)) * blockSize
	}
	return -1
}

// Names returns the sorted names in a directory; "" is the root. It returns nil if the directory does
// not exist.
func (s *Server) Names(path string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.files[rootID]
	if path != "" {
		f = s.resolvePath(path)
	}
	if f == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(f.dir))
}

// addFile creates an empty file in a directory.
func (s *Server) addFile(dir *file, name string, mode uint32) *file {
	s.lastID++
	f := &file{id: s.lastID, name: name, mode: mode, nlink: 1, blocks: map[int64][]byte{}}
	s.files[f.id] = f
	dir.dir[name] = f.id
	return f
}

// sameVerf reports whether an exclusive CREATE with this verifier created the file.
func sameVerf(f *file, verf []byte) bool { return f.verf != nil && bytes.Equal(f.verf, verf) }
