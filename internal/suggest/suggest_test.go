package suggest

import (
	"slices"
	"testing"
)

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"kitten", "sitting", 3}, {"web01", "WEB01", 0}, {"grüße", "grusse", 3}} {
		if got := Distance(c.a, c.b); got != c.want {
			t.Errorf("%q to %q: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func TestWords(t *testing.T) {
	words := []string{"transport", "former", "formal", "to", "warm", "format", "format", "formats"}
	for what, want := range map[string][]string{
		"fromat":    {"format"},
		"form":      {"former", "formal", "format"}, // three, and each once
		"transprot": {"transport"},
		"wram":      nil, // two edits of four letters are half of it
		"war":       {"warm"},
		"":          nil,
	} {
		if got := Words(what, words); !slices.Equal(got, want) {
			t.Errorf("near %q are %q, want %q", what, got, want)
		}
	}
}

func TestWord(t *testing.T) {
	words := []string{"transport", "format", "to", "warm"}
	for what, want := range map[string]string{"wram": "warm", "frmat": "format", "transports": "transport", "too": "to", "select": "", "": ""} {
		if got, ok := Word(what, words); got != want || ok != (want != "") {
			t.Errorf("near %q is %q, %v, want %q", what, got, ok, want)
		}
	}
}
