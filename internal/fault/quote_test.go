package fault

import (
	"os/exec"
	"testing"
)

func TestQuotedWordsComeBackFromAShell(t *testing.T) {
	for _, word := range []string{"", "plain-1.0", "two words", "it's", `"$(id)" \ *`, "~", "a;b&c|d", "new\nline", "größe"} {
		out, err := exec.Command("sh", "-c", "printf %s "+Quote(word)).Output()
		if err != nil || string(out) != word {
			t.Errorf("%q as %s: the shell reads %q, %v", word, Quote(word), out, err)
		}
	}
	if got := Quote("/srv/vm"); got != "/srv/vm" {
		t.Errorf("needless quotes: %s", got)
	}
}
