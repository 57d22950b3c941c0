package arch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// All binary files are test data or are listed here. Others, such as a downloaded package, were committed by mistake.
func TestBinaryFilesAreListed(t *testing.T) {
	listed := map[string]bool{"internal/vmdk/codepages.deflate": true}
	for _, file := range tracked(t, ".") {
		if strings.Contains(file, "/testdata/") || listed[file] {
			continue
		}
		content, err := os.ReadFile(filepath.Join(root, file))
		if os.IsNotExist(err) {
			continue // it was deleted, and the deletion is not committed yet
		}
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(content), "\x00") {
			t.Errorf("%s is a binary file", file)
		}
	}
}
