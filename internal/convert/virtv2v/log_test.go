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

// A log without end is kept in its bounds, with its beginning and its end.
func TestLogIsBounded(t *testing.T) {
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
	said, err := r.close()
	if err != nil || said.lastError() != "the last line" {
		t.Errorf("%q, %v", said.lastError(), err)
	}
	text, err := os.ReadFile(path)
	if err != nil || len(text) > maxHead+maxTail+100 || len(text) < maxHead+maxTail {
		t.Fatalf("%d bytes, %v", len(text), err)
	}
	if !bytes.HasPrefix(text, []byte("the first line\n")) || !bytes.HasSuffix(text, []byte("the last line\n")) || !bytes.Contains(text, []byte("bytes are left out")) {
		t.Error("not the beginning and the end")
	}
}

// However the bytes come, what is heard is the same.
func TestLinesComeInPieces(t *testing.T) {
	t.Parallel()
	text := "[   1.5] Doing this\r\nvirt-v2v-in-place: warning: one\n  goes on\n\nno more\nvirt-v2v-in-place: error: two"
	for size := 1; size < len(text); size++ {
		var told []string
		r, err := newOutputLog(filepath.Join(t.TempDir(), "log"), func(s string) { told = append(told, s) })
		if err != nil {
			t.Fatal(err)
		}
		for rest := text; rest != ""; {
			n := min(size, len(rest))
			fmt.Fprint(r, rest[:n])
			rest = rest[n:]
		}
		said, err := r.close()
		if err != nil || said.lastError() != "two" || strings.Join(said.warnings, "|") != "one goes on" || strings.Join(told, "|") != "Doing this" {
			t.Fatalf("by %d: %+v, %q, %v", size, said, told, err)
		}
	}
}

func FuzzSaid(f *testing.F) {
	f.Add([]byte("[   1.5] Doing this\nvirt-v2v-in-place: error: one\ntwo\n"))
	f.Add([]byte("supermin: error: x\nvirt-v2v: error: see debug messages above\n"))
	f.Fuzz(func(t *testing.T, p []byte) {
		r, err := newOutputLog(os.DevNull, func(s string) {
			if strings.ContainsAny(s, "\n\x1b") || s == "" {
				t.Errorf("told %q", s)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = r.Write(p)
		said, _ := r.close()
		if why := said.lastError(); len(why) > 3*maxMessage || strings.ContainsAny(why, "\n\x1b") || utf8.Valid(p) && len(said.errors) > maxMessages {
			t.Errorf("why %q", why)
		}
	})
}
