package dir

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestSafeName(t *testing.T) {
	long := strings.Repeat("ä", 200)
	tests := map[string]string{
		"web01":            "web01",
		"web 01 (prod)":    "web_01__prod_",
		"100% + *":         "100_____",
		"a/b":              "a_b",
		"../../etc/passwd": "_.._etc_passwd",
		"..":               "vm",
		"":                 "vm",
		"-rf":              "rf",
		".hidden":          "hidden",
		`it's "quoted"`:    "it_s__quoted_",
		"größe-北京":         "größe-北京",
		"bad\xffutf":       "bad_utf",
		"new\nline":        "new_line",
		"null\x00byte":     "null_byte",
	}
	for name, want := range tests {
		if got := SafeName(name); got != want {
			t.Errorf("SafeName(%q) = %q, want %q", name, got, want)
		}
	}
	if SafeName(long) == SafeName(long+"x") {
		t.Error("two long names that differ at their ends have the same SafeName")
	}
}

func TestDomainName(t *testing.T) {
	tests := map[string]string{
		"web 01 (prod)": "web 01 (prod)",
		" -größe- ":     "-größe-",
		"a/b":           "a_b",
		"new\nline":     "new_line",
		" . ":           "vm",
		"..":            "vm",
		"...":           "...",
		" ":             "vm",
	}
	for name, want := range tests {
		if got := DomainName(name); got != want {
			t.Errorf("DomainName(%q) = %q, want %q", name, got, want)
		}
	}
}

func FuzzSafeName(f *testing.F) {
	for _, s := range []string{"", "..", "a/b", "\xff\xfe", strings.Repeat("北", 100)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		safe := SafeName(name)
		if safe == "" || len(safe) > maxName || !utf8.ValidString(safe) {
			t.Errorf("SafeName(%q) = %q", name, safe)
		}
		if strings.ContainsAny(safe, "/\x00\n '\"") || safe[0] == '.' || safe[0] == '-' {
			t.Errorf("%q: %q is not safe", name, safe)
		}
		if SafeName(safe) != safe {
			t.Errorf("%q: %q changes to %q", name, safe, SafeName(safe))
		}
	})
}
