package fleet

import (
	"os"
	"os/exec"
	"testing"
)

// requires skips where a tool is missing. "root" is who may mount and make networks.
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
