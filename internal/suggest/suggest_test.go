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
			t.Errorf("Distance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func TestWords(t *testing.T) {
	words := []string{"transport", "former", "formal", "to", "warm", "format", "format", "formats"}
	for word, want := range map[string][]string{
		"fromat":    {"format"},
		"form":      {"former", "formal", "format"}, // at most three, without duplicates
		"transprot": {"transport"},
		"wram":      nil, // two edits are too many for four letters
		"war":       {"warm"},
		"":          nil,
	} {
		if got := Words(word, words); !slices.Equal(got, want) {
			t.Errorf("Words(%q) = %q, want %q", word, got, want)
		}
	}
}

func TestWord(t *testing.T) {
	words := []string{"transport", "format", "to", "warm"}
	for word, want := range map[string]string{"wram": "warm", "frmat": "format", "transports": "transport", "too": "to", "select": "", "": ""} {
		if got, ok := Word(word, words); got != want || ok != (want != "") {
			t.Errorf("Word(%q) = %q, %v; want %q", word, got, ok, want)
		}
	}
}
