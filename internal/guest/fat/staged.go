package fat

import "github.com/decamp/decamp/internal/guest/budget"

// A stagedReader reads a device as if pending writes had been made.
type stagedReader struct {
	r      budget.Reader  // device
	writes []pendingWrite // pending writes in order; later ones take precedence
}

// A pendingWrite is a write that Flush will make.
type pendingWrite struct {
	off  int64  // offset on the device
	data []byte // private copy of the bytes
}

// addWrite adds a pending write; p is copied. The copy is charged until dropWrites.
func (s *stagedReader) addWrite(p []byte, off int64) error {
	if err := s.Budget().Hold(int64(len(p))); err != nil {
		return err
	}
	s.writes = append(s.writes, pendingWrite{off, append([]byte(nil), p...)})
	return nil
}

// dropWrites removes all pending writes but the first keep.
func (s *stagedReader) dropWrites(keep int) {
	for _, w := range s.writes[keep:] {
		s.Budget().Release(int64(len(w.data)))
	}
	clear(s.writes[keep:])
	s.writes = s.writes[:keep]
}

// ReadAt implements io.ReaderAt.
func (s *stagedReader) ReadAt(p []byte, off int64) (int, error) {
	n, err := s.r.ReadAt(p, off)
	for _, w := range s.writes {
		from, to := max(off, w.off), min(off+int64(n), w.off+int64(len(w.data)))
		if from < to {
			copy(p[from-off:to-off], w.data[from-w.off:])
		}
	}
	return n, err
}

// Budget returns the budget of the device.
func (s *stagedReader) Budget() *budget.Budget { return s.r.Budget() }
