package manifest

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/decamp/decamp/internal/atomicfile"
	"github.com/decamp/decamp/internal/fault"
)

// A Log is a manifest that is open for adding chunks. It is safe for concurrent use. It holds an
// exclusive lock on the file until Close.
type Log struct {
	path    string                  // path of the manifest
	head    header                  // header of the file
	dropped int64                   // number of bytes that Open cut off
	step    func(name string) error // called before each step that a crash may interrupt; tests replace it

	// ioMu allows one writer of the file at a time. It is held across I/O and locked before mu.
	ioMu   sync.Mutex
	f      *os.File // file with the lock
	end    position // position after the last record
	torn   bool     // the file may be longer than end after a failed write
	sealed bool     // the last record is the seal
	root   Hash     // root hash; only valid if sealed

	mu     sync.RWMutex // guards chunks; not held across I/O
	chunks *chunkIndex  // durable chunks; changed with both ioMu and mu held
}

// Create durably creates an empty manifest. It fails with fault.Conflict if path exists or another
// process is creating it.
func Create(path string, info Info) (*Log, error) {
	l, err := createLog(path, info)
	if err != nil {
		return nil, fmt.Errorf("create manifest %s: %w", path, err)
	}
	return l, nil
}

// createLog is Create without the path in errors.
func createLog(path string, info Info) (*Log, error) {
	if err := info.checkLimits(); err != nil {
		return nil, err
	}
	head, err := newHeader(info)
	if err != nil {
		return nil, err
	}
	f, err := newFile(path)
	if err != nil {
		return nil, err
	}
	l := newLog(path, head, f)
	if err := l.writeHeader(); err != nil {
		return nil, errors.Join(err, removeFile(f))
	}
	if err := kindOfIO(atomicfile.Sync(filepath.Dir(path))); err != nil {
		return nil, errors.Join(err, atomicfile.Unlock(f))
	}
	return l, nil
}

// newHeader returns a header with a random id.
func newHeader(info Info) (header, error) {
	var id [8]byte
	if _, err := rand.Read(id[:]); err != nil {
		return header{}, err
	}
	return header{id: le.Uint64(id[:]), info: info}, nil
}

// newLog returns a Log for f, which has no records that are known yet.
func newLog(path string, head header, f *os.File) *Log {
	safe := newChunkIndex(head.len(), head.info.Chunks())
	return &Log{path: path, head: head, f: f, chunks: safe, step: func(string) error { return nil }}
}

// writeHeader writes the header and gives the file its name. The lock on the temporary name excludes
// any other Create between the check and the rename.
func (l *Log) writeHeader() error {
	if _, err := os.Lstat(l.path); err == nil {
		return fault.New(fault.Conflict, "it exists").
			WithHint("open it to resume, or delete it to copy the disk again")
	}
	b, t := l.head.encodeHeader()
	if _, err := l.f.WriteAt(b, 0); err != nil {
		return kindOfIO(err)
	}
	l.end = t
	if err := l.f.Sync(); err != nil {
		return kindOfIO(err)
	}
	return kindOfIO(os.Rename(l.f.Name(), l.path))
}

// Open reads the manifest at path and locks it. An incomplete tail is cut off (Dropped returns its
// length); the rest was durable. A damaged header is Corrupt, a manifest of a newer decamp Unsupported,
// one in use Conflict; in these cases nothing changes.
func Open(path string) (*Log, error) {
	l, err := openLog(path)
	if err != nil {
		return nil, fmt.Errorf("open manifest %s: %w", path, err)
	}
	return l, nil
}

// openLog is Open without the path in errors.
func openLog(path string) (*Log, error) {
	f, err := openLocked(path, 0)
	if err != nil {
		return nil, err
	}
	l, err := replayLog(path, f)
	if err != nil {
		return nil, errors.Join(err, atomicfile.Unlock(f))
	}
	return l, nil
}

// replayLog reads the records of f, which is locked, and truncates an incomplete tail.
func replayLog(path string, f *os.File) (*Log, error) {
	head, t, err := readHeader(f)
	if err != nil {
		return nil, err
	}
	l := newLog(path, head, f)
	s := newScanner(f, t, l.Chunks())
	for err == nil {
		err = l.replayRecord(s)
	}
	if err != io.EOF && err != errTorn {
		return nil, err
	}
	l.end = s.position
	return l, l.truncateTail()
}

// replayRecord reads and applies one record. An impossible one is errTorn.
func (l *Log) replayRecord(s *scanner) error {
	before := s.position
	r, payload, err := s.nextRecord()
	if err != nil {
		return err
	}
	if r.kind == kindSeal && l.chunks.missing > 0 || r.off-l.chunks.start > maxRecords {
		s.position = before
		return errTorn
	}
	l.applyRecord(r)
	if l.sealed {
		l.root = Hash(payload)
	}
	return nil
}

// truncateTail durably removes bytes after the last complete record.
func (l *Log) truncateTail() error {
	st, err := l.f.Stat()
	if err != nil {
		return err
	}
	l.dropped = st.Size() - l.end.off
	if l.dropped == 0 {
		return nil
	}
	if err := l.f.Truncate(l.end.off); err != nil {
		return kindOfIO(err)
	}
	return kindOfIO(fdatasync(l.f))
}

// applyRecord updates the index with a record that is in the file.
func (l *Log) applyRecord(r record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.chunks.applyRecord(r)
	l.sealed = r.kind == kindSeal
}

// Info returns the disk of the manifest.
func (l *Log) Info() Info { return l.head.info }

// Chunks returns the number of chunks of the disk.
func (l *Log) Chunks() int64 { return l.head.info.Chunks() }

// Dropped returns how many bytes of the file Open had to cut off.
func (l *Log) Dropped() int64 { return l.dropped }

// Has reports whether a chunk is durable. It returns false for chunks outside the disk.
func (l *Log) Has(chunk int64) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.chunks.has(chunk)
}

// Missing returns the number of chunks that are not durable.
func (l *Log) Missing() int64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.chunks.missing
}

// Complete reports whether all chunks are durable.
func (l *Log) Complete() bool { return l.Missing() == 0 }

// Close releases the file and its lock. All appended runs are durable already.
func (l *Log) Close() error {
	l.ioMu.Lock()
	defer l.ioMu.Unlock()
	return atomicfile.Unlock(l.f)
}

// Remove deletes the manifest at path and temporary files of an interrupted Create or Seal. It returns
// Conflict while a Log has it open, and nil if it does not exist.
func Remove(path string) error {
	for _, name := range []string{path, path + ".new"} {
		f, err := openLocked(name, 0)
		if fault.Is(err, fault.NotFound) {
			continue
		}
		if err != nil {
			return fmt.Errorf("remove manifest %s: %w", path, err)
		}
		if err := removeFile(f); err != nil {
			return fmt.Errorf("remove manifest %s: %w", path, err)
		}
	}
	return nil
}

// Hash returns the hash of a durable chunk, and false for any other chunk. It reads the file in each
// call, and is meant for samples.
func (l *Log) Hash(chunk int64) (Hash, bool, error) {
	l.ioMu.Lock()
	defer l.ioMu.Unlock()
	if !l.Has(chunk) {
		return Hash{}, false, nil
	}
	at := l.chunks.runAt(uint32(chunk))
	if at.kind == kindZeros {
		return l.head.info.zeroHash(chunk), true, nil
	}
	var h Hash
	if _, err := l.f.ReadAt(h[:], at.off); err != nil {
		return Hash{}, false, fmt.Errorf("read manifest %s at byte %d: %w", l.path, at.off, err)
	}
	return h, true, nil
}

// Recent returns up to n durable chunks from the newest records, at most four of each. A crash of the
// storage affects them first.
func (l *Log) Recent(n int) []int64 {
	const each = 4
	l.mu.RLock()
	defer l.mu.RUnlock()
	var chunks []int64
	for _, r := range slices.Backward(l.chunks.recent) {
		for c := int64(r.end()) - 1; c >= max(int64(r.first), int64(r.end())-each) && len(chunks) < n; c-- {
			if l.chunks.has(c) {
				chunks = append(chunks, c)
			}
		}
	}
	return chunks
}
