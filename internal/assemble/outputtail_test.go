package assemble

import (
	"strings"
	"testing"
)

func TestOutputTailKeepsTheEnd(t *testing.T) {
	var said OutputTail
	for range 1000 {
		said.Write([]byte("many words\n"))
	}
	said.Write([]byte("the last ones\n"))
	if s := said.String(); len(s) > maxTailBytes || !strings.HasSuffix(s, "the last ones") {
		t.Errorf("%d bytes, %q", len(s), s)
	}
}
