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

// A Log is a manifest that can be added to. Its methods may be called concurrently. It
// holds an exclusive lock on the file until Close.
type Log struct {
	path    string
	head    header
	dropped int64
	step    func(name string) error // called before each step a crash may come before; tests set it

	// io lets one caller at a time write the file. It is held across I/O; mu is not.
	ioMu   sync.Mutex
	f      *os.File
	end    position // behind the last record
	torn   bool     // bytes may follow tail that a failed append left
	sealed bool
	root   Hash // if sealed

	mu     sync.RWMutex
	chunks *chunkIndex // changed with io held as well
}

// Create makes an empty manifest and makes it durable. It is Conflict if path exists or
// is being created.
func Create(path string, info Info) (*Log, error) {
	l, err := createLog(path, info)
	if err != nil {
		return nil, fmt.Errorf("create manifest %s: %w", path, err)
	}
	return l, nil
}

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

func newHeader(info Info) (header, error) {
	var id [8]byte
	if _, err := rand.Read(id[:]); err != nil {
		return header{}, err
	}
	return header{id: le.Uint64(id[:]), info: info}, nil
}

func newLog(path string, head header, f *os.File) *Log {
	safe := newChunkIndex(head.len(), head.info.Chunks())
	return &Log{path: path, head: head, f: f, chunks: safe, step: func(string) error { return nil }}
}

// writeHeader writes the header and gives the file its name. The lock on the temporary name
// keeps any other Create away between the look and the rename.
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

// truncateTail removes what follows the last whole record, so that the next one touches it.
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

// applyRecord takes a record that is in the file into account.
func (l *Log) applyRecord(r record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.chunks.applyRecord(r)
	l.sealed = r.kind == kindSeal
}

// Info returns what Create was given.
func (l *Log) Info() Info { return l.head.info }

// Chunks returns the number of chunks of the disk.
func (l *Log) Chunks() int64 { return l.head.info.Chunks() }

// Dropped returns how many bytes of the file Open had to cut off.
func (l *Log) Dropped() int64 { return l.dropped }

// Has reports whether a chunk is safe. Chunks outside the disk never are.
func (l *Log) Has(chunk int64) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.chunks.has(chunk)
}

// Missing returns how many chunks are not safe yet.
func (l *Log) Missing() int64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.chunks.missing
}

// Complete reports whether every chunk is safe.
func (l *Log) Complete() bool { return l.Missing() == 0 }

// Close releases the file and its lock. Everything appended is durable already.
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

// Hash returns the hash of a safe chunk, and false if the chunk is not safe. It reads
// the file each time: it is meant for samples.
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

// Recent returns up to n safe chunks from the newest records, a few of each: what a crash
// of the storage would have hit first.
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
