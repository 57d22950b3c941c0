package arch

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

var (
	testName = regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9_]+)`")
	testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Za-z0-9_]+)\(`)
	link     = regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)
)

// A promise that names its proof is worth nothing once the proof is renamed away.
func TestDocsNameTestsThatExist(t *testing.T) {
	exist := map[string]bool{}
	for _, file := range tracked(t, "*_test.go") {
		for _, m := range testFunc.FindAllStringSubmatch(read(t, file), -1) {
			exist[m[1]] = true
		}
	}
	for page, atLeast := range map[string]int{"docs/failure-modes.md": 50, "docs/security.md": 20} {
		named := testName.FindAllStringSubmatch(read(t, page), -1)
		if len(named) < atLeast {
			t.Fatalf("%s names %d tests: is the page being read right?", page, len(named))
		}
		for _, m := range named {
			if !exist[m[1]] {
				t.Errorf("%s names %s, which does not exist", page, m[1])
			}
		}
	}
}

func TestLinksInTheDocsLeadSomewhere(t *testing.T) {
	for _, file := range tracked(t, "*.md") {
		for _, m := range link.FindAllStringSubmatch(read(t, file), -1) {
			if _, err := os.Stat(filepath.Join(root, filepath.Dir(file), m[1])); err != nil {
				t.Errorf("%s links to %s: %v", file, m[1], err)
			}
		}
	}
}

// tracked returns the files git knows, or will know, that match.
func tracked(t *testing.T, pattern string) []string {
	t.Helper()
	cmd := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", pattern)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	files := strings.Fields(string(out))
	if len(files) == 0 {
		t.Fatalf("git lists no %s", pattern)
	}
	return files
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
