package virtv2v

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// An endless log is limited to its beginning and its end.
func TestLogIsLimited(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	r, err := newOutputLog(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(r, "the first line")
	block := bytes.Repeat([]byte("libguestfs: trace: nothing of interest here at all, really\n"), 1<<14)
	for n := 0; n < maxHead+4*maxTail; n += len(block) {
		if _, err := r.Write(block); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Fprintln(r, "virt-v2v-in-place: error: the last line")
	messages, err := r.close()
	if err != nil || messages.lastError() != "the last line" {
		t.Errorf("last error %q, %v", messages.lastError(), err)
	}
	text, err := os.ReadFile(path)
	if err != nil || len(text) > maxHead+maxTail+100 || len(text) < maxHead+maxTail {
		t.Fatalf("log of %d bytes, error %v", len(text), err)
	}
	if !bytes.HasPrefix(text, []byte("the first line\n")) || !bytes.HasSuffix(text, []byte("the last line\n")) || !bytes.Contains(text, []byte("bytes are left out")) {
		t.Error("the log does not have the beginning, the end and the number of omitted bytes")
	}
}

// The messages do not depend on the sizes of the writes.
func TestLogParsesPartialWrites(t *testing.T) {
	t.Parallel()
	text := "[   1.5] Doing this\r\nvirt-v2v-in-place: warning: one\n  goes on\n\nno more\nvirt-v2v-in-place: error: two"
	for size := 1; size < len(text); size++ {
		var steps []string
		r, err := newOutputLog(filepath.Join(t.TempDir(), "log"), func(s string) { steps = append(steps, s) })
		if err != nil {
			t.Fatal(err)
		}
		for rest := text; rest != ""; {
			n := min(size, len(rest))
			fmt.Fprint(r, rest[:n])
			rest = rest[n:]
		}
		messages, err := r.close()
		if err != nil || messages.lastError() != "two" || strings.Join(messages.warnings, "|") != "one goes on" || strings.Join(steps, "|") != "Doing this" {
			t.Fatalf("writes of %d bytes: %+v, %q, %v", size, messages, steps, err)
		}
	}
}

func FuzzOutputLog(f *testing.F) {
	f.Add([]byte("[   1.5] Doing this\nvirt-v2v-in-place: error: one\ntwo\n"))
	f.Add([]byte("supermin: error: x\nvirt-v2v: error: see debug messages above\n"))
	f.Fuzz(func(t *testing.T, p []byte) {
		r, err := newOutputLog(os.DevNull, func(s string) {
			if strings.ContainsAny(s, "\n\x1b") || s == "" {
				t.Errorf("reported step %q", s)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = r.Write(p)
		messages, _ := r.close()
		if last := messages.lastError(); len(last) > 3*maxMessage || strings.ContainsAny(last, "\n\x1b") || utf8.Valid(p) && len(messages.errors) > maxMessages {
			t.Errorf("last error %q", last)
		}
	})
}
