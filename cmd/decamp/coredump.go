package main

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// forbidCoreDumps keeps passwords, tokens and keys in memory from other processes of the same user
// and from core files. A process that is not dumpable is dumped nowhere, not by a program in
// core_pattern either, and its memory, environment and open files are hidden below /proc. The limit
// is inherited by the programs that decamp starts; being dumpable is not.
func forbidCoreDumps() error {
	err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	if err := errors.Join(err, unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})); err != nil {
		return fmt.Errorf("forbid core dumps: %w", err)
	}
	return nil
}
