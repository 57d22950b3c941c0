package targets

import (
	"strings"
	"testing"
)

func TestWord(t *testing.T) {
	small, tag := Alphabet{Most: 52}, Alphabet{Signs: "_.+", Most: 40, Upper: true}
	for name, want := range map[string][2]string{
		"web01": {"web01", "web01"}, "Web 01": {"web-01", "Web-01"}, "a.b_c": {"a-b-c", "a.b_c"}, "--x--": {"x", "x"}, "._+x+._": {"x", "x"},
		"Müller": {"muller", "Muller"}, "a;b,c|d": {"a-b-c-d", "a-b-c-d"}, "\x00\n\x1b[31m": {"31m", "31m"},
	} {
		if a, b := small.Word(name, "vm"), tag.Word(name, "tag"); a != want[0] || b != want[1] {
			t.Errorf("%q: got %s and %s, want %s", name, a, b, want)
		}
	}
	for _, pair := range [][2]string{{"日本", "中国"}, {strings.Repeat("x", 60) + "1", strings.Repeat("x", 60) + "2"}, {"", "/"}, {"straße", "strae"}} {
		if a, b := tag.Word(pair[0], "tag"), tag.Word(pair[1], "tag"); a == b {
			t.Errorf("%q and %q have the same word %s", pair[0], pair[1], a)
		}
	}
}

func FuzzWord(f *testing.F) {
	for _, seed := range []string{"", "web01", "..", "日本", "\xff\xfe", "-", "A\u0300\u0301", strings.Repeat("é-", 70), "$(reboot)", "a\nb", "İ℡"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		for _, a := range []Alphabet{{Most: 52}, {Signs: "_.", Most: 30, Upper: true}} {
			got := a.Word(name, "none")
			allowed := "abcdefghijklmnopqrstuvwxyz0123456789-" + a.Signs
			if a.Upper {
				allowed += "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
			}
			if got == "" || len(got) > a.Most || strings.Trim(got, allowed) != "" || strings.Trim(got, "-"+a.Signs) != got {
				t.Errorf("Word(%q) = %q", name, got)
			}
		}
	})
}

func TestUnused(t *testing.T) {
	taken := map[string]bool{}
	for _, want := range []string{"app", "app-2", "app-3"} {
		if got := Unused("app", "-", taken); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if got := Unused("App", "_", taken); got != "App_2" {
		t.Error(got)
	}
}
