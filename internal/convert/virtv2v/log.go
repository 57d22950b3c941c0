package virtv2v

import (
	"bytes"
	"fmt"
	"os"
	"sync"
)

// What is kept of a log, in bytes: its beginning and its end. A real one, with all that libguestfs
// traces, has some 5 MB.
const (
	maxHead = 48 << 20
	maxTail = 16 << 20
)

// A record is a log under way. Two pipes write to it, and each line is looked at.
type record struct {
	mu     sync.Mutex
	file   *os.File
	head   int64
	tail   []byte // end of the output that did not fit, at most 2*maxTail
	left   int64  // bytes between the two
	line   []byte // incomplete line
	said   said
	tell   func(string)
	failed error
}

func newRecord(path string, tell func(string)) (*record, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600) // same mode as all files of a run
	if err != nil {
		return nil, err
	}
	return &record{file: f, tell: tell}, nil
}

// Write never fails: an error of the log must not end a conversion.
func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keep(p)
	r.read(p)
	return len(p), nil
}

func (r *record) keep(p []byte) {
	if n := min(int64(len(p)), maxHead-r.head); n > 0 {
		_, err := r.file.Write(p[:n])
		if r.failed == nil {
			r.failed = err
		}
		r.head += n
		p = p[n:]
	}
	r.tail = append(r.tail, p...)
	if over := len(r.tail) - maxTail; len(r.tail) > 2*maxTail {
		r.left += int64(over)
		r.tail = append(r.tail[:0], r.tail[over:]...)
	}
}

// maxLine bounds the lines that are looked at, in bytes.
const maxLine = 4096

// read takes complete lines from the output.
func (r *record) read(p []byte) {
	for len(p) > 0 {
		i := bytes.IndexAny(p, "\r\n")
		if i < 0 {
			r.line = append(r.line, p[:min(len(p), max(0, maxLine-len(r.line)))]...)
			return
		}
		r.line = append(r.line, p[:min(i, max(0, maxLine-len(r.line)))]...)
		if doing := r.said.hear(string(r.line)); doing != "" && r.tell != nil {
			r.tell(doing)
		}
		r.line, p = r.line[:0], p[i+1:]
	}
}

// close completes the log, and returns the collected messages.
func (r *record) close() (said, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read([]byte("\n"))
	if over := len(r.tail) - maxTail; over > 0 {
		r.left += int64(over)
		r.tail = r.tail[over:]
	}
	if r.left > 0 {
		fmt.Fprintf(r.file, "\n... %d bytes are left out ...\n", r.left)
	}
	_, err := r.file.Write(r.tail)
	if r.failed == nil {
		r.failed = err
	}
	if err := r.file.Close(); r.failed == nil {
		r.failed = err
	}
	return r.said, r.failed
}
