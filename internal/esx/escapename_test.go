package esx

import "testing"

func TestNamesAreUnescapedOnce(t *testing.T) {
	for escaped, name := range map[string]string{
		"web01": "web01", "a%2fb": "a/b", "a%2Fb": "a/b", "50%25": "50%", "%252f": "%2f", "back%5cslash": `back\slash`,
		"a%20b": "a%20b", "%": "%", "%2": "%2", "Grüße%25": "Grüße%",
	} {
		if got := unescapeName(escaped); got != name {
			t.Errorf("%q: got %q, want %q", escaped, got, name)
		}
	}
}

func FuzzEscapeNameRoundTrip(f *testing.F) {
	for _, s := range []string{"a/b", "%2f", "%25", `\`, "日本語", "%%%2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if got := unescapeName(escapeName(s)); got != s {
			t.Fatalf("%q: got %q after the round trip", s, got)
		}
	})
}
