package terminal

import (
	"io"
	"os"
	"sync"

	"golang.org/x/term"
)

// Screen is the standard error. While progress bars are drawn, messages appear above them.
type Screen struct {
	File *os.File // the standard error

	mu    sync.Mutex // guards above, and keeps writes whole
	above io.Writer  // writer above the bars; nil without bars
}

// NewScreen returns a screen without bars.
func NewScreen(f *os.File) *Screen { return &Screen{File: f} }

// IsTerminal reports whether bars can be drawn.
func (s *Screen) IsTerminal() bool { return term.IsTerminal(int(s.File.Fd())) }

// Write writes p, which must consist of whole lines: parts of lines would mix with the bars.
func (s *Screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.above != nil {
		return s.above.Write(p)
	}
	return s.File.Write(p)
}

// Redirect makes further writes go to w; nil restores the file.
func (s *Screen) Redirect(w io.Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.above = w
}
