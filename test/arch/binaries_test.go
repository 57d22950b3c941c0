package arch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The repository has no binary files except test data and the listed ones. Others are probably committed by mistake.
func TestNoUnexpectedBinaryFiles(t *testing.T) {
	listed := map[string]bool{"internal/vmdk/codepages.deflate": true}
	for _, file := range trackedFiles(t, ".") {
		if strings.Contains(file, "/testdata/") || listed[file] {
			continue
		}
		content, err := os.ReadFile(filepath.Join(root, file))
		if os.IsNotExist(err) {
			continue // the deletion of the file is not committed yet
		}
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(content), "\x00") {
			t.Errorf("%s is a binary file", file)
		}
	}
}
