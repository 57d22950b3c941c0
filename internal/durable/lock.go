package durable

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Unlock gives the flock of f back and closes it. Closing alone would leave the lock with a program that
// this process is just starting, which has all open files until it runs.
func Unlock(f *os.File) error {
	return errors.Join(unix.Flock(int(f.Fd()), unix.LOCK_UN), f.Close())
}
