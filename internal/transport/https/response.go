package https

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/disk"
)

const (
	// headBuffer is the longest header line in bytes.
	headBuffer = 16 << 10
	// mostHeadLines and headBuffer bound a head together; ESXi sends about ten lines.
	mostHeadLines = 128
)

// response contains the parts of an answer's head that this package uses.
type response struct {
	status     int           // status code
	length     int64         // Content-Length; -1 without one
	part       disk.Range    // Content-Range; empty without one, or if it has no bytes
	total      int64         // size of the file in Content-Range; -1 without one
	chunked    bool          // a Transfer-Encoding is used, so that the length of the body is unknown
	close      bool          // the server closes the connection after the body
	retryAfter time.Duration // Retry-After; 0 without one in seconds
}

// readResponse reads one head. It skips interim answers (1xx). A head that ends early is
// io.ErrUnexpectedEOF.
func readResponse(br *bufio.Reader) (response, error) {
	for lines := 0; ; {
		r, n, err := readHead(br, mostHeadLines-lines)
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil || r.status >= 200 {
			return r, err
		}
		lines += n
	}
}

// readHead reads one head of at most most lines. It returns the number of its lines too.
func readHead(br *bufio.Reader, most int) (response, int, error) {
	line, err := readLine(br)
	if err != nil {
		return response{}, 0, err
	}
	r, err := parseStatusLine(string(line))
	if err != nil {
		return r, 0, err
	}
	for n := 1; n < most; n++ {
		line, err := readLine(br)
		if err != nil {
			return r, n, err
		}
		if len(line) == 0 {
			return r, n, nil
		}
		if err := r.parseField(line); err != nil {
			return r, n, err
		}
	}
	return r, most, malformedError("the head has more than %d lines", mostHeadLines)
}

// readLine returns the next line without its end; it is valid until the next read.
func readLine(br *bufio.Reader) ([]byte, error) {
	line, err := br.ReadSlice('\n')
	if err == bufio.ErrBufferFull {
		return nil, malformedError("a line of the head is longer than %d bytes", headBuffer)
	}
	if err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(line[:len(line)-1], []byte{'\r'}), nil
}

// parseStatusLine parses a status line. Only HTTP/1.1 and HTTP/1.0 are accepted.
func parseStatusLine(line string) (response, error) {
	r := response{length: -1, total: -1}
	version, rest, _ := strings.Cut(line, " ")
	code, _, _ := strings.Cut(rest, " ")
	status, err := strconv.ParseUint(code, 10, 16)
	if err != nil || len(code) != 3 || status < 100 {
		return r, malformedError("the status line is %.60q", line)
	}
	switch version {
	case "HTTP/1.1":
	case "HTTP/1.0":
		r.close = true
	default:
		return r, malformedError("the status line is %.60q", line)
	}
	r.status = int(status)
	return r, nil
}

// parseField parses one header line. It ignores fields that are not used.
func (r *response) parseField(line []byte) error {
	name, value, ok := strings.Cut(string(line), ":")
	if !ok {
		return malformedError("header line %.60q", line)
	}
	value = strings.TrimSpace(value)
	switch strings.ToLower(name) {
	case "content-length":
		return r.contentLength(value)
	case "content-range":
		return r.contentRange(value)
	case "transfer-encoding":
		r.chunked = true
	case "connection":
		r.close = r.close || strings.Contains(strings.ToLower(value), "close")
	case "retry-after":
		if n, err := strconv.ParseUint(value, 10, 16); err == nil {
			r.retryAfter = time.Duration(n) * time.Second
		}
	}
	return nil
}

// contentLength sets length. A second, different Content-Length is malformed.
func (r *response) contentLength(value string) error {
	n, err := strconv.ParseUint(value, 10, 63)
	if err != nil {
		return malformedError("Content-Length is %.40q", value)
	}
	if r.length >= 0 && r.length != int64(n) {
		return malformedError("two Content-Lengths, %d and %d", r.length, n)
	}
	r.length = int64(n)
	return nil
}

// contentRange parses "bytes FIRST-LAST/TOTAL". FIRST-LAST may be "*", with status 416, and so may
// TOTAL.
func (r *response) contentRange(value string) error {
	spec, ok := strings.CutPrefix(value, "bytes ")
	part, total, slash := strings.Cut(spec, "/")
	if !ok || !slash {
		return malformedError("Content-Range is %.60q", value)
	}
	var err error
	if total != "*" {
		r.total, err = parseOffset(total)
	}
	if part != "*" && err == nil {
		r.part, err = parsePart(part)
	}
	if err != nil || r.total >= 0 && r.part.End() > r.total {
		return malformedError("Content-Range is %.60q", value)
	}
	return nil
}

// parsePart parses FIRST-LAST.
func parsePart(s string) (disk.Range, error) {
	a, b, _ := strings.Cut(s, "-")
	first, err := parseOffset(a)
	if err != nil {
		return disk.Range{}, err
	}
	last, err := parseOffset(b)
	if err != nil {
		return disk.Range{}, err
	}
	if last < first {
		return disk.Range{}, errors.New("ends before it starts")
	}
	return disk.Range{Off: first, Len: last - first + 1}, nil
}

// parseOffset parses an offset. It is limited so that one more byte does not overflow.
func parseOffset(s string) (int64, error) {
	n, err := strconv.ParseUint(s, 10, 62)
	return int64(n), err
}

// errMalformed is part of errors for answers that are not HTTP/1.1 as this package supports it.
var errMalformed = errors.New("malformed answer")

// malformedError returns an error that wraps errMalformed.
func malformedError(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errMalformed}, args...)...)
}
