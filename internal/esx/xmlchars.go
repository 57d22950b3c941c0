package esx

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"unicode/utf8"

	"golang.org/x/text/transform"
)

// xmlFilter replaces characters that XML 1.0 forbids with U+FFFD: control characters,
// invalid UTF-8, and references to such characters. Otherwise one control character in
// an annotation would make the response about all VMs unreadable. Everything else is
// unchanged.
type xmlFilter struct{ transform.NopResetter }

// readXML returns a reader of body in which forbidden characters are replaced. Closing
// it closes body.
func readXML(body io.ReadCloser) io.ReadCloser {
	return struct {
		io.Reader
		io.Closer
	}{transform.NewReader(body, xmlFilter{}), body}
}

// longestReference is the length of the longest character reference to examine:
// &#0000000;.
const longestReference = 16

// replacement is U+FFFD in UTF-8.
var replacement = []byte(string(utf8.RuneError))

// Transform is part of transform.Transformer.
func (xmlFilter) Transform(dst, src []byte, atEOF bool) (written, read int, err error) {
	for read < len(src) {
		n := plainLength(src[read:])
		if n = min(n, len(dst)-written); n > 0 {
			written += copy(dst[written:], src[read:read+n])
			read += n
			continue
		}
		out, n := nextXML(src[read:], atEOF)
		if n == 0 {
			return written, read, transform.ErrShortSrc
		}
		if len(dst)-written < len(out) {
			return written, read, transform.ErrShortDst
		}
		written += copy(dst[written:], out)
		read += n
	}
	return written, read, nil
}

// plainLength returns the number of leading bytes of src that need no replacement:
// printable ASCII except "&", tab and line ends.
func plainLength(src []byte) int {
	for i, c := range src {
		if c < ' ' && c != '\n' && c != '\t' && c != '\r' || c == '&' || c >= utf8.RuneSelf {
			return i
		}
	}
	return len(src)
}

// nextXML returns the output for the first character of src, and the length of that
// character in src. The length is 0 if more bytes are needed.
func nextXML(src []byte, atEOF bool) (out []byte, n int) {
	if src[0] == '&' {
		return nextReference(src, atEOF)
	}
	if !atEOF && !utf8.FullRune(src) {
		return nil, 0
	}
	r, n := utf8.DecodeRune(src)
	if r == utf8.RuneError && n == 1 || !isXMLChar(r) {
		return replacement, n
	}
	return src[:n], n
}

// nextReference does the same for a src that starts with "&". A reference by name, and
// any other text, passes unchanged.
func nextReference(src []byte, atEOF bool) (out []byte, n int) {
	window := src[:min(len(src), longestReference)]
	end := bytes.IndexByte(window, ';')
	if end < 0 && len(window) < longestReference && !atEOF {
		return nil, 0
	}
	if end < 3 || src[1] != '#' {
		return src[:1], 1
	}
	digits, base := string(src[2:end]), 10
	if digits[0] == 'x' {
		digits, base = digits[1:], 16
	}
	code, err := strconv.ParseUint(digits, base, 31)
	if errors.Is(err, strconv.ErrSyntax) || err == nil && isXMLChar(rune(code)) {
		return src[:1], 1 // the XML parser handles references that are not numbers
	}
	return replacement, end + 1
}

// isXMLChar reports whether XML 1.0 allows a character (Char in section 2.2).
func isXMLChar(r rune) bool {
	return r == '\t' || r == '\n' || r == '\r' || r >= ' ' && r <= 0xd7ff || r >= 0xe000 && r <= 0xfffd || r >= 0x10000 && r <= utf8.MaxRune
}
