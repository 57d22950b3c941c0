// Package executable writes programs that tests start.
package executable

import (
	"os"
	"syscall"
	"testing"
)

// Write writes a program that the test starts, such as a shell script. Linux starts no program that a process has open
// for writing, and a process that another goroutine starts meanwhile would inherit the open file. The lock prevents that.
func Write(t testing.TB, path, content string) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
}
