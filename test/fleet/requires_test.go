package fleet

import (
	"os"
	"os/exec"
	"testing"
)

// requires skips the test if a tool is missing. The tool "root" means that the test runs as root.
func requires(t *testing.T, tools ...string) {
	t.Helper()
	for _, tool := range tools {
		if tool == "root" {
			if os.Geteuid() != 0 {
				t.Skip("needs root")
			}
			continue
		}
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
}
