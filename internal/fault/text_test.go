package fault

import (
	"os/exec"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestLine(t *testing.T) {
	for in, want := range map[string]string{
		"":                       "",
		" two\n\twords\x1b[31m ": "two words [31m",
		"a\xffb":                 "a?b",
		"zero\u200bwidth":        "zero width",
	} {
		if got := Line(in); got != want {
			t.Errorf("Line(%q) = %q, want %q", in, got, want)
		}
	}
	long := Line(strings.Repeat("é", 10*MaxLine))
	if !utf8.ValidString(long) || len(long) > MaxLine+len("…") || !strings.HasSuffix(long, "é…") {
		t.Errorf("%d bytes, ending in %q", len(long), long[len(long)-8:])
	}
}

func FuzzLine(f *testing.F) {
	f.Add("a\x00b")
	f.Fuzz(func(t *testing.T, s string) {
		got := Line(s)
		if len(got) > MaxLine+len("…") || !utf8.ValidString(got) || strings.ContainsFunc(got, unicode.IsControl) {
			t.Errorf("Line(%q) = %q", s, got)
		}
	})
}

func TestQuotedWordsInAShell(t *testing.T) {
	for _, word := range []string{"", "plain-1.0", "two words", "it's", `"$(id)" \ *`, "~", "a;b&c|d", "new\nline", "größe"} {
		out, err := exec.Command("sh", "-c", "printf %s "+Quote(word)).Output()
		if err != nil || string(out) != word {
			t.Errorf("%s in a shell is %q, want %q, error %v", Quote(word), out, word, err)
		}
	}
	if got := Quote("/srv/vm"); got != "/srv/vm" {
		t.Errorf("unnecessary quotes: %s", got)
	}
}
