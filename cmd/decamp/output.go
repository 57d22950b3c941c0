package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/term"

	"github.com/decamp/decamp/internal/fault"
)

// results is the standard output. It remembers the first failure: a list that was cut
// short by a full disk must not end with exit code 0. VMs of a plan write to it side by side: each
// object with one Write, so that lines stay whole.
type results struct {
	w io.Writer

	mu  sync.Mutex
	err error
}

func (r *results) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, err := r.w.Write(p)
	if r.err == nil && err != nil {
		r.err = err
	}
	return n, err
}

// failed is the first failure.
func (r *results) failed() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// outFile is the file that is the standard output; nil where it is none.
func (a *app) outFile() *os.File {
	w := a.out
	if r, is := w.(*results); is {
		w = r.w
	}
	f, _ := w.(*os.File)
	return f
}

// report tells the error and what to do about it: one line each, or one JSON object.
func (a *app) report(err error) {
	switch {
	case err == nil:
	case a.json:
		if _, is := err.(inResult); is {
			return
		}
		a.print(struct {
			Error problem `json:"error"`
		}{problemOf(err)})
	default:
		p := problemOf(err)
		fmt.Fprintf(a.err, "decamp: %s\n", plain(p.Message))
		if p.Remedy != "" {
			fmt.Fprintf(a.err, "Remedy: %s\n", plain(p.Remedy))
		}
	}
}

// inResult is an error that the command's result has already.
type inResult struct{ error }

func (e inResult) Unwrap() error { return e.error }

// problem is an error as --json prints it.
type problem struct {
	Kind    string `json:"kind"` // fault.Kind
	Message string `json:"message"`
	Remedy  string `json:"remedy,omitempty"`
}

func problemOf(err error) problem {
	return problem{fault.KindOf(err).String(), fault.OneLine(err.Error()), fault.OneLine(fault.HintOf(err))}
}

// print writes v as one line of JSON.
func (a *app) print(v any) error {
	enc := json.NewEncoder(a.out)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// warning tells something that does not stop the command. With --json only the log has it.
func (a *app) warning(format string, args ...any) {
	text := plain(fault.OneLine(fmt.Sprintf(format, args...)))
	if a.json {
		a.Log.Warn(text)
		return
	}
	fmt.Fprintf(a.err, "Warning: %s\n", text)
}

// note tells of something for eyes. With --json the log has it alone.
func (a *app) note(format string, args ...any) {
	if !a.json {
		fmt.Fprintln(a.err, plain(fault.OneLine(fmt.Sprintf(format, args...))))
	}
}

// closing joins what close returns to err: for defer, where an error would be lost.
func closing(err *error, close func() error) {
	if also := close(); also != nil {
		*err = errors.Join(*err, also)
	}
}

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
