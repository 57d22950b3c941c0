// Package secretfile reads files with secrets that no other user can read.
package secretfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/decamp/decamp/internal/fault"
)

// Read returns the content of a file, which must be readable by its owner only, and not larger than
// limit. A file in $CREDENTIALS_DIRECTORY may be readable by a group, because systemd grants access to
// it by an ACL. what is the kind of secret, for messages. For a missing file Read returns fs.ErrNotExist.
func Read(path, what string, limit int) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO must not block
	if errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err != nil {
		return nil, fault.New(fault.Denied, "read %s: %w", what, err)
	}
	defer f.Close()
	if err := checkMode(f, what); err != nil {
		return nil, err
	}
	text := make([]byte, limit+1)
	n, err := io.ReadFull(f, text)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, fault.New(fault.Denied, "read %s: %w", what, err)
	}
	if n > limit {
		return nil, fault.New(fault.Invalid, "%s file %s has more than %d bytes", what, path, limit)
	}
	return text[:n], nil
}

// checkMode returns an error if another user than the owner of the process, or root, can read or owns
// the file.
func checkMode(f *os.File, what string) error {
	st, err := f.Stat()
	if err != nil {
		return fault.New(fault.Denied, "read %s: %w", what, err)
	}
	if !st.Mode().IsRegular() {
		return fault.New(fault.Invalid, "%s %s is no regular file", what, f.Name())
	}
	others := fs.FileMode(0o077)
	if credentials := os.Getenv("CREDENTIALS_DIRECTORY"); credentials != "" && filepath.Dir(f.Name()) == filepath.Clean(credentials) {
		others = 0o037
	}
	if st.Mode().Perm()&others != 0 {
		return fault.New(fault.Denied, "%s %s is accessible to other users (mode %#o)", what, f.Name(), st.Mode().Perm()).
			WithHint("chmod 600 %s; if others may have read it, make another one", fault.Quote(f.Name()))
	}
	return CheckOwner(f.Name(), what, st)
}

// CheckOwner returns fault.Denied if a file belongs to another user than the owner of the process, or root.
// what is the kind of the file, for messages.
func CheckOwner(path, what string, st fs.FileInfo) error {
	owner, known := st.Sys().(*syscall.Stat_t)
	if known && int(owner.Uid) != os.Geteuid() && owner.Uid != 0 {
		return fault.New(fault.Denied, "%s %s belongs to user %d", what, path, owner.Uid).
			WithHint("chown %d %s", os.Geteuid(), fault.Quote(path))
	}
	return nil
}
