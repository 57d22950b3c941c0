package guest

import (
	"path/filepath"
	"testing"

	"github.com/decamp/decamp/test/repository"
)

// Image returns the path of a guest's image, which it builds if necessary. The file is shared: a test
// that writes must use a copy. The test is skipped if tools or the kernel are missing, which
// scripts/setup.sh installs, and under -short, because a boot takes seconds.
func Image(t testing.TB, name Name) string {
	t.Helper()
	if testing.Short() {
		t.Skip("boots a guest")
	}
	repo, err := repository.Root()
	if err != nil {
		t.Fatal(err)
	}
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
