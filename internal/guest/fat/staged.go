package fat

import "github.com/decamp/decamp/internal/guest/budget"

// staged reads a device with pending writes.
type staged struct {
	r      budget.Reader
	writes []pending
}

// A pending write is one that Flush makes.
type pending struct {
	off  int64
	data []byte
}

func (s *staged) write(p []byte, off int64) {
	s.writes = append(s.writes, pending{off, append([]byte(nil), p...)})
}

// ReadAt is part of io.ReaderAt.
func (s *staged) ReadAt(p []byte, off int64) (int, error) {
	n, err := s.r.ReadAt(p, off)
	for _, w := range s.writes {
		from, to := max(off, w.off), min(off+int64(n), w.off+int64(len(w.data)))
		if from < to {
			copy(p[from-off:to-off], w.data[from-w.off:])
		}
	}
	return n, err
}

// Budget is that of the device.
func (s *staged) Budget() *budget.Budget { return s.r.Budget() }
