package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const report = `{"Golang errors": {}, "Stats": {"files": 2}, "Issues": [
{"rule_id": "G304", "file": "HERE/a.go", "line": "7", "code": "6: x\n7: \tf, err := os.Open(path)\n8: y\n"},
{"rule_id": "G101", "file": "HERE/b/c.go", "line": "3-4", "code": "3: const help = \n4: y\n"}]}`

const triaged = "# rule file code reason\n\nG304\ta.go\tf, err := os.Open(path)\tthe user names it\nG101\tb/c.go\tconst help =\tit is a help text\n"

// The audit fails for a finding that is not triaged, a line without a finding, a line without a reason, and an empty
// report.
func TestAudit(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for name, c := range map[string]struct {
		list, report string
		want         string // part of the error or the output
		ok           bool
	}{
		"all triaged":       {triaged, report, "2 findings, all triaged", true},
		"line moved":        {triaged, strings.NewReplacer(`"7"`, `"70"`, "7: ", "70: ").Replace(report), "all triaged", true},
		"not triaged":       {strings.SplitAfter(triaged, "names it\n")[0], report, "not triaged: G101\tb/c.go\tconst help =\n", false},
		"code changed":      {triaged, strings.Replace(report, "(path)", "(other)", 1), "not triaged: G304\ta.go\tf, err := os.Open(other)\n", false},
		"other file":        {triaged, strings.Replace(report, "a.go", "d.go", 1), "not triaged: G304\td.go", false},
		"other rule":        {triaged, strings.Replace(report, "G304", "G305", 1), "not triaged: G305", false},
		"stale":             {triaged + "G1\tx.go\tcode\tit is gone\n", report, "triaged, but not found: G1\tx.go\tcode\n", false},
		"no reason":         {strings.Replace(triaged, "the user names it", "", 1), report, "line 3", false},
		"twice":             {triaged + "G101\tb/c.go\tconst help =\tonce more it is\n", report, "twice", false},
		"not loaded":        {triaged, strings.Replace(report, `errors": {}`, `errors": {"a.go": []}`, 1), "errors in 1", false},
		"nothing was found": {triaged, `{}`, "0 files", false},
		"no report":         {triaged, ``, "JSON", false},
	} {
		t.Run(name, func(t *testing.T) {
			for file, text := range map[string]string{"list": c.list, "report": strings.ReplaceAll(c.report, "HERE", dir)} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var out bytes.Buffer
			err := compareFiles(&out, false, []string{"list", "report"})
			if err != nil {
				out.WriteString(err.Error())
			}
			if (err == nil) != c.ok || !strings.Contains(out.String(), c.want) {
				t.Errorf("%v: %s, want %q", err, &out, c.want)
			}
		})
	}
}
