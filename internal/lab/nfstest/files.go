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
	rootID    = 2
	idSize    = 8
	blockSize = 64 << 10
)

// file is a file or a folder; data is kept in blocks, so that it may have holes.
type file struct {
	id     uint64
	name   string
	mode   uint32
	nlink  uint32
	size   int64
	blocks map[int64][]byte
	dir    map[string]uint64 // entries of a folder; nil for a file
	verf   []byte            // verifier of the exclusive CREATE that made it
	time   uint32            // mtime: a count of changes
}

func (s *Server) handleOf(id uint64) []byte {
	return binary.BigEndian.AppendUint64(make([]byte, s.pad), id)
}

func (s *Server) fileByHandle(handle []byte) *file {
	if len(handle) < idSize {
		return nil
	}
	return s.files[binary.BigEndian.Uint64(handle[len(handle)-idSize:])]
}

func (f *file) appendAttr(e *xdr.Encoder) {
	e.Uint32(map[bool]uint32{false: 1, true: 2}[f.dir != nil])
	for _, v := range []uint32{f.mode, f.nlink, 0, 0} {
		e.Uint32(v)
	}
	e.Uint64(uint64(f.size))
	e.Uint64(uint64(len(f.blocks)) * blockSize)
	e.Uint64(0) // rdev
	e.Uint64(1) // fsid
	e.Uint64(f.id)
	for range 3 {
		e.Uint32(f.time)
		e.Uint32(0)
	}
}

func appendPostOp(e *xdr.Encoder, f *file) {
	e.Bool(f != nil)
	if f != nil {
		f.appendAttr(e)
	}
}

func appendWcc(e *xdr.Encoder, f *file) {
	e.Bool(false)
	appendPostOp(e, f)
}

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

// writeAt writes p, or nothing if there is no room for it.
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

// resolvePath resolves a path from the root.
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

// Read returns all of a file.
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

// Write makes a file with this content, or changes it.
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

// Used returns the bytes of a file's blocks, or -1 if it does not exist.
func (s *Server) Used(path string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.resolvePath(path); f != nil {
		return int64(len(f.blocks)) * blockSize
	}
	return -1
}

// Names lists the names in a folder; "" is the root.
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

func (s *Server) addFile(dir *file, name string, mode uint32) *file {
	s.lastID++
	f := &file{id: s.lastID, name: name, mode: mode, nlink: 1, blocks: map[int64][]byte{}}
	s.files[f.id] = f
	dir.dir[name] = f.id
	return f
}

func sameVerf(f *file, verf []byte) bool { return f.verf != nil && bytes.Equal(f.verf, verf) }
