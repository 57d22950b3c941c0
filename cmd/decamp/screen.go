package main

import (
	"io"
	"os"
	"sync"

	"golang.org/x/term"
)

// screen is the standard error. While progress bars are drawn, what is written goes
// above them.
type screen struct {
	file *os.File

	mu    sync.Mutex
	above io.Writer // nil: no bars
}

func newScreen(f *os.File) *screen { return &screen{file: f} }

// isTerminal reports whether bars can be drawn.
func (s *screen) isTerminal() bool { return term.IsTerminal(int(s.file.Fd())) }

// Write writes whole lines, or they would mix with the bars.
func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.above != nil {
		return s.above.Write(p)
	}
	return s.file.Write(p)
}

// divert sends what is written to w from now on; nil ends that.
func (s *screen) divert(w io.Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.above = w
}
