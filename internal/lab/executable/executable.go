// Package executable writes programs that tests start.
package executable

import (
	"os"
	"syscall"
	"testing"
)

// Write writes a program that the test starts, such as a shell script. Linux does not start a program while any process
// has it open for writing. The lock keeps other goroutines from starting processes, which would inherit the open file.
func Write(t testing.TB, path, content string) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
}
