package arch

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

var (
	testName     = regexp.MustCompile("`(?:([a-z0-9/]+)\\.)?((?:Test|Fuzz)[A-Za-z0-9_]+)`")
	testFunc     = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Za-z0-9_]+)\(`)
	markdownLink = regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)
)

// The tests that docs/failure-modes.md and docs/security.md list exist. If several packages have a test with the same
// name, the docs have the end of the package path before it: `qcow2.TestKill9`.
func TestTestsInDocsExist(t *testing.T) {
	packages := map[string][]string{} // folders of the packages that have the test
	for _, file := range trackedFiles(t, "*_test.go") {
		for _, m := range testFunc.FindAllStringSubmatch(readFile(t, file), -1) {
			if folder := filepath.Dir(file); !slices.Contains(packages[m[1]], folder) {
				packages[m[1]] = append(packages[m[1]], folder)
			}
		}
	}
	for page, atLeast := range map[string]int{"docs/failure-modes.md": 50, "docs/security.md": 20} {
		named := testName.FindAllStringSubmatch(readFile(t, page), -1)
		if len(named) < atLeast {
			t.Fatalf("%s: found only %d names of tests", page, len(named))
		}
		for _, m := range named {
			if all := foldersEnding(packages[m[2]], m[1]); len(all) != 1 {
				t.Errorf("%s lists %s, which these packages have: %q, want one package", page, strings.Trim(m[0], "`"), all)
			}
		}
	}
}

// foldersEnding returns the folders whose path ends with end, at a path element.
func foldersEnding(folders []string, end string) (found []string) {
	for _, folder := range folders {
		if end == "" || strings.HasSuffix("/"+folder, "/"+end) {
			found = append(found, folder)
		}
	}
	return found
}

func TestFoldersEnding(t *testing.T) {
	folders := []string{"internal/nfc", "internal/transport/nfc", "internal/qcow2"}
	for end, want := range map[string]int{"": 3, "qcow2": 1, "cow2": 0, "nfc": 2, "transport/nfc": 1, "other": 0} {
		if found := foldersEnding(folders, end); len(found) != want {
			t.Errorf("%q: %q, want %d", end, found, want)
		}
	}
}

func TestLinksInDocsExist(t *testing.T) {
	for _, file := range trackedFiles(t, "*.md") {
		for _, m := range markdownLink.FindAllStringSubmatch(readFile(t, file), -1) {
			if _, err := os.Stat(filepath.Join(root, filepath.Dir(file), m[1])); err != nil {
				t.Errorf("%s links to %s: %v", file, m[1], err)
			}
		}
	}
}

// trackedFiles returns the files that match a pattern and that git tracks or does not ignore.
func trackedFiles(t *testing.T, pattern string) []string {
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

func readFile(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
