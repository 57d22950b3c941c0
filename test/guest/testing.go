package guest

import (
	"os"
	"path/filepath"
	"testing"
)

// Image returns the path of a guest's image, which it builds if necessary. The file is shared: a test
// that writes must use a copy. The test is skipped if tools or the kernel are missing, which
// scripts/setup.sh installs, and under -short, because a boot takes seconds.
func Image(t testing.TB, name Name) string {
	t.Helper()
	if testing.Short() {
		t.Skip("boots a guest")
	}
	repo := repositoryRoot(t)
	for _, tool := range Tools() {
		if _, err := lookTool(tool); err != nil {
			t.Skip(err)
		}
	}
	if _, err := findKernel(filepath.Join(repo, "build", "kernel")); err != nil {
		t.Skip(err)
	}
	if a, err := findAgent(filepath.Join(repo, "build", "agent")); name == Agent && (a == nil || err != nil) {
		t.Skipf("no guest agent in build/agent (%v): run scripts/setup.sh demo", err)
	}
	if err := Build(t.Context(), repo); err != nil {
		t.Fatal(err)
	}
	return File(repo, name)
}

// repositoryRoot returns the folder of go.mod above the test's folder.
func repositoryRoot(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
	}
	t.Fatal("no go.mod above the test's folder")
	return ""
}
