package shell

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/inventory/inventorytest"
)

// TestQuotedHostileWordsSurviveShell has busybox and sh print quoted words, and compares the output with
// the words. quoteWords refuses words with a zero byte.
func TestQuotedHostileWordsSurviveShell(t *testing.T) {
	r := inventorytest.New(2)
	var script strings.Builder
	var want []string
	for len(want) < inventorytest.Runs {
		argv := []string{"printf", `%s\0`, inventorytest.Line(r), inventorytest.Text(r), inventorytest.Garbage(r)}
		line, err := quoteWords(argv)
		if hasZero := strings.Contains(strings.Join(argv[2:], ""), "\x00"); hasZero != (err != nil) {
			t.Fatalf("%q: %v", argv, err)
		}
		if err != nil {
			continue
		}
		script.WriteString(line + "\n")
		want = append(want, argv[2:]...)
	}
	for _, shell := range [][]string{{"busybox", "sh"}, {"sh"}} {
		cmd := exec.Command(shell[0], shell[1:]...)
		cmd.Stdin = strings.NewReader(script.String())
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil || errs.Len() > 0 {
			t.Fatalf("%q: %v %s", shell, err, &errs)
		}
		got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
		if len(got) != len(want) {
			t.Fatalf("%q: %d words, want %d", shell, len(got), len(want))
		}
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("%q: word %d is %q, want %q", shell, i, got[i], want[i])
			}
		}
	}
}
