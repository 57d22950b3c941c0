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
	testName = regexp.MustCompile("`(?:([a-z0-9/]+)\\.)?((?:Test|Fuzz)[A-Za-z0-9_]+)`")
	testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Za-z0-9_]+)\(`)
	link     = regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)
)

// A promise that names its proof is worth nothing once the proof is renamed away. A test of a name that several
// packages use has the end of its package's path before it: `qcow2.TestKill9`.
func TestDocsNameTestsThatExist(t *testing.T) {
	packages := map[string][]string{} // folders of the packages that have a test of that name
	for _, file := range tracked(t, "*_test.go") {
		for _, m := range testFunc.FindAllStringSubmatch(read(t, file), -1) {
			if folder := filepath.Dir(file); !slices.Contains(packages[m[1]], folder) {
				packages[m[1]] = append(packages[m[1]], folder)
			}
		}
	}
	for page, atLeast := range map[string]int{"docs/failure-modes.md": 50, "docs/security.md": 20} {
		named := testName.FindAllStringSubmatch(read(t, page), -1)
		if len(named) < atLeast {
			t.Fatalf("%s names %d tests: is the page being read right?", page, len(named))
		}
		for _, m := range named {
			if all := foldersEnding(packages[m[2]], m[1]); len(all) != 1 {
				t.Errorf("%s names %s, which these packages have: %q. It must be one", page, strings.Trim(m[0], "`"), all)
			}
		}
	}
}

// foldersEnding returns the folders whose path ends with end, in whole elements.
func foldersEnding(folders []string, end string) (found []string) {
	for _, folder := range folders {
		if end == "" || strings.HasSuffix("/"+folder, "/"+end) {
			found = append(found, folder)
		}
	}
	return found
}

func TestNamesOfTestsAreQualified(t *testing.T) {
	folders := []string{"internal/nfc", "internal/transport/nfc", "internal/qcow2"}
	for end, want := range map[string]int{"": 3, "qcow2": 1, "cow2": 0, "nfc": 2, "transport/nfc": 1, "other": 0} {
		if found := foldersEnding(folders, end); len(found) != want {
			t.Errorf("%q: %q, want %d", end, found, want)
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
