package preflight

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var codeInSource = regexp.MustCompile(`(?:ErrorFinding|NoteFinding)\("([a-z-]+)"|each\(ctx, hosts, of, "([a-z-]+)"`)

// Scripts depend on the codes of findings, so each code must be documented.
func TestEveryCodeIsDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/plan-files.md")
	if err != nil {
		t.Fatal(err)
	}
	codes := 0
	for _, pattern := range []string{"*.go", "../planfile/*.go", "../../cmd/decamp/plan*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", pattern, files, err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range codeInSource.FindAllStringSubmatch(string(text), -1) {
				codes++
				if code := m[1] + m[2]; !strings.Contains(string(doc), "`"+code+"`") {
					t.Errorf("docs/plan-files.md does not document %s", code)
				}
			}
		}
	}
	if codes < 20 {
		t.Errorf("only %d codes were found in the source, want 20 or more", codes)
	}
}
