package assemble

import (
	"strings"
	"testing"
)

func TestOutputTailKeepsTheEnd(t *testing.T) {
	var tail OutputTail
	for range 1000 {
		tail.Write([]byte("many words\n"))
	}
	tail.Write([]byte("the last ones\n"))
	if s := tail.String(); len(s) > maxTailBytes || !strings.HasSuffix(s, "the last ones") {
		t.Errorf("got a tail of %d bytes, %q", len(s), s)
	}
}
