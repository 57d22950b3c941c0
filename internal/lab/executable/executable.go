// Package executable writes programs that tests start.
package executable

import (
	"os"
	"syscall"
	"testing"
)

// WriteFile writes a program, such as a shell script. Linux does not start a program while any process has it open for
// writing. The lock keeps other goroutines from starting processes, which would inherit the open file.
func WriteFile(path, content string) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, []byte(content), 0o755)
}

// Write is WriteFile for a test, which fails on an error.
func Write(t testing.TB, path, content string) {
	t.Helper()
	if err := WriteFile(path, content); err != nil {
		t.Fatal(err)
	}
}
