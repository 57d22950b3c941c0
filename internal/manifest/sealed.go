package manifest

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/decamp/decamp/internal/fault"
)

// A Sealed is a complete manifest whose checksums and root were verified. It is safe for concurrent
// use.
type Sealed struct {
	path  string   // path of the manifest
	f     *os.File // open file
	info  Info     // disk of the manifest
	root  Hash     // root in the last record
	start position // position of the first record
}

// Load opens a sealed manifest for reading and verifies all of it, in constant memory. A manifest that
// is still written is fault.Conflict, a damaged one fault.Corrupt. Load takes no lock.
func Load(path string) (*Sealed, error) {
	s, err := loadSealed(path)
	if err != nil {
		return nil, fmt.Errorf("load manifest %s: %w", path, err)
	}
	return s, nil
}

// loadSealed is Load without the path in errors.
func loadSealed(path string) (*Sealed, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, kindOfIO(err)
	}
	s := &Sealed{path: path, f: f}
	if err := s.checkFile(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return s, nil
}

// checkFile reads the whole file and verifies its root.
func (s *Sealed) checkFile() error {
	head, t, err := readHeader(s.f)
	if err != nil {
		return err
	}
	s.info, s.start = head.info, t
	hashes, root := s.Hashes(), newRootHash(s.info)
	page := make([]Hash, 4096)
	for left := s.info.Chunks(); left > 0; left -= int64(len(page)) {
		page = page[:min(left, int64(len(page)))]
		if err := hashes.Next(page); err != nil {
			return err
		}
		root.addHashes(page)
	}
	if s.root, err = hashes.readSeal(); err != nil {
		return err
	}
	if got := root.sum(); got != s.root {
		return damagedError("root is %v, its hashes give %v", s.root, got)
	}
	return nil
}

// Info returns the disk of the manifest.
func (s *Sealed) Info() Info { return s.info }

// Root returns the hash over all hashes. It is the same for the same content of a disk, however it was
// copied.
func (s *Sealed) Root() Hash { return s.root }

// RootWith returns the root that the manifest would have with the hashes other, by chunk number.
func (s *Sealed) RootWith(other map[int64]Hash) (root Hash, err error) {
	hashes, sum := s.Hashes(), newRootHash(s.info)
	page := make([]Hash, 4096)
	for at := int64(0); at < s.info.Chunks(); at += int64(len(page)) {
		page = page[:min(s.info.Chunks()-at, int64(len(page)))]
		if err := hashes.Next(page); err != nil {
			return root, fmt.Errorf("read manifest %s: %w", s.path, err)
		}
		for i := range page {
			if h, changed := other[at+int64(i)]; changed {
				page[i] = h
			}
		}
		sum.addHashes(page)
	}
	return sum.sum(), nil
}

// Close releases the file.
func (s *Sealed) Close() error { return s.f.Close() }

// Hashes returns a reader of the hashes in chunk order. Several may be in use at the same time.
func (s *Sealed) Hashes() *Hashes {
	return &Hashes{scan: newScanner(s.f, s.start, s.info.Chunks()), info: s.info}
}

// Hashes reads the hashes of a sealed manifest from front to back. It is not safe for concurrent use.
type Hashes struct {
	scan  *scanner // records of the file
	info  Info     // disk of the manifest
	chunk int64    // number of the next chunk
	page  []byte   // remaining hashes of the current record
	zeros int64    // number of remaining zero chunks of the current record
}

// Next fills dst with the hashes of the next chunks. It returns io.ErrUnexpectedEOF if there are fewer.
func (h *Hashes) Next(dst []Hash) error {
	if int64(len(dst)) > h.info.Chunks()-h.chunk {
		return io.ErrUnexpectedEOF
	}
	for i := range dst {
		if err := h.nextPage(); err != nil {
			return err
		}
		if h.zeros > 0 {
			dst[i] = h.info.zeroHash(h.chunk)
			h.zeros--
		} else {
			dst[i] = Hash(h.page)
			h.page = h.page[hashLen:]
		}
		h.chunk++
	}
	return nil
}

// nextPage reads the next record if the current one is used up.
func (h *Hashes) nextPage() error {
	if h.zeros > 0 || len(h.page) > 0 {
		return nil
	}
	r, payload, err := h.scan.nextRecord()
	switch {
	case err == io.EOF:
		return notSealedError()
	case err == errTorn:
		return damagedError("%w", h.scan.tornAt())
	case err != nil:
		return err
	case int64(r.first) != h.chunk || r.kind == kindDrop || r.kind == kindSeal:
		return notSealedError()
	case r.kind == kindZeros:
		h.zeros = int64(r.count)
	case r.kind == kindHashes:
		h.page = payload
	}
	return nil
}

// readSeal reads the last record and returns its root. It must be called after the last chunk.
func (h *Hashes) readSeal() (Hash, error) {
	r, payload, err := h.scan.nextRecord()
	switch {
	case err == io.EOF || (err == nil && r.kind != kindSeal):
		return Hash{}, notSealedError()
	case err == errTorn:
		return Hash{}, damagedError("%w", h.scan.tornAt())
	case err != nil:
		return Hash{}, err
	}
	root := Hash(payload)
	switch _, _, err = h.scan.nextRecord(); err {
	case io.EOF:
		return root, nil
	case nil:
		return Hash{}, notSealedError()
	case errTorn:
		return Hash{}, damagedError("%w", h.scan.tornAt())
	}
	return Hash{}, err
}

// notSealedError returns the fault.Conflict error for a manifest that is still written.
func notSealedError() error {
	return fault.New(fault.Conflict, "not sealed: the copy of this disk is not finished").
		WithHint("run the migration again; it continues where it stopped")
}

// damagedError returns a fault.Corrupt error with its remedy.
func damagedError(format string, args ...any) error {
	return fault.New(fault.Corrupt, format, args...).
		WithHint("run the migration again: it keeps the part of the manifest that is whole and copies the rest again")
}
