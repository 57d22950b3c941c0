package virtv2v

import (
	"bytes"
	"fmt"
	"os"
	"sync"
)

// Parts of the log that are stored: its beginning and its end. A usual log, with the traces of
// libguestfs, has about 5 MB.
const (
	maxHead = 48 << 20 // bytes from the beginning
	maxTail = 16 << 20 // bytes from the end
)

// An outputLog writes the output of virt-v2v to a file and evaluates its lines. Two pipes write to it
// concurrently.
type outputLog struct {
	mu       sync.Mutex   // protects all fields
	file     *os.File     // file of the log
	head     int64        // bytes written to the file
	tail     []byte       // end of the output that exceeds maxHead, at most 2*maxTail bytes
	left     int64        // bytes omitted between head and tail
	line     []byte       // incomplete line
	messages messages     // messages found so far
	report   func(string) // function to call with the current activity; may be nil
	failed   error        // first error of the file
}

// newOutputLog creates or replaces the file at path.
func newOutputLog(path string, tell func(string)) (*outputLog, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600) // same mode as all other files of a run
	if err != nil {
		return nil, err
	}
	return &outputLog{file: f, report: tell}, nil
}

// Write implements io.Writer. It never fails, because an error of the log must not end a conversion;
// close returns that error.
func (r *outputLog) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.store(p)
	r.scanLines(p)
	return len(p), nil
}

// store writes p to the file, or to the tail if the file has maxHead bytes. mu must be held.
func (r *outputLog) store(p []byte) {
	if n := min(int64(len(p)), maxHead-r.head); n > 0 {
		_, err := r.file.Write(p[:n])
		if r.failed == nil {
			r.failed = err
		}
		r.head += n
		p = p[n:]
	}
	r.tail = append(r.tail, p...)
	// The tail is shortened in large steps, so that it is not copied for each write.
	if over := len(r.tail) - maxTail; len(r.tail) > 2*maxTail {
		r.left += int64(over)
		r.tail = append(r.tail[:0], r.tail[over:]...)
	}
}

// maxLine limits the lines that are evaluated, in bytes; the rest of a line is ignored.
const maxLine = 4096

// scanLines evaluates the complete lines of the output. mu must be held.
func (r *outputLog) scanLines(p []byte) {
	for len(p) > 0 {
		// Progress bars end their lines with a carriage return.
		i := bytes.IndexAny(p, "\r\n")
		if i < 0 {
			r.line = append(r.line, p[:min(len(p), max(0, maxLine-len(r.line)))]...)
			return
		}
		r.line = append(r.line, p[:min(i, max(0, maxLine-len(r.line)))]...)
		if doing := r.messages.addLine(string(r.line)); doing != "" && r.report != nil {
			r.report(doing)
		}
		r.line, p = r.line[:0], p[i+1:]
	}
}

// close completes the file and returns the messages. The error is the first one of the file.
func (r *outputLog) close() (messages, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.scanLines([]byte("\n"))
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
	return r.messages, r.failed
}
