package assemble

import (
	"bytes"
	"strings"
)

// OutputTail is a writer that keeps only the end of the output of a program. It is not safe for
// concurrent use.
type OutputTail struct{ text []byte }

// maxTailBytes is the size of the kept output.
const maxTailBytes = 1 << 10

// Write appends p, and discards the oldest output over the limit. It never fails.
func (t *OutputTail) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	if over := len(t.text) - maxTailBytes; over > 0 {
		t.text = append(t.text[:0], t.text[over:]...)
	}
	return len(p), nil
}

// String returns the kept output as valid UTF-8, without white space at its ends.
func (t *OutputTail) String() string { return strings.ToValidUTF8(string(bytes.TrimSpace(t.text)), "") }
