// Package atomicfile replaces small files so that a crash or a power loss leaves either the old or
// the new content.
//
// Errors are those of the operating system, with their paths. The caller adds the remedy.
package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Replace writes a file with content and mode to path, in place of an existing one. When it returns
// without error, the file survives a power cut. It may be called concurrently, also by several
// processes: one of them wins. A crash may leave a file whose name begins with path's and ".new".
func Replace(path string, content []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new*")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return Sync(filepath.Dir(path))
}

// Sync makes the file at path durable. For a folder these are the names in it: those that were created,
// renamed and removed.
func Sync(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// IsAt reports whether path still names the open file f. Another file may have replaced it.
func IsAt(f *os.File, path string) bool {
	mine, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(path)
	return err == nil && os.SameFile(mine, there)
}

// Unlock releases the flock of f and closes it. Closing alone would leave the lock with a program that
// this process is just starting, because it has all open files until exec.
func Unlock(f *os.File) error {
	return errors.Join(unix.Flock(int(f.Fd()), unix.LOCK_UN), f.Close())
}
