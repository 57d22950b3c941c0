package assemble

import (
	"bytes"
	"strings"
)

// OutputTail keeps the end of what a program prints. It is not safe for concurrent use.
type OutputTail struct{ text []byte }

// maxTailBytes is how much is kept, in bytes.
const maxTailBytes = 1 << 10

// Write adds p.
func (t *OutputTail) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	if over := len(t.text) - maxTailBytes; over > 0 {
		t.text = append(t.text[:0], t.text[over:]...)
	}
	return len(p), nil
}

// String returns the kept output without white space at its ends.
func (t *OutputTail) String() string { return strings.ToValidUTF8(string(bytes.TrimSpace(t.text)), "") }
