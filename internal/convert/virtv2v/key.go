package virtv2v

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/fault"
)

// A Key opens encrypted volumes of a guest: a passphrase of LUKS, a password or the recovery key of
// BitLocker. Arguments, logs and errors contain only its location.
type Key struct {
	ID   string // ID of the volume: its UUID, or its device as libguestfs counts, /dev/sdb2; empty means each
	File string // path; its one line is the key
}

// keyID is what begins a key that is for one volume.
var keyID = regexp.MustCompile(`^([0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}|/dev/[A-Za-z0-9._+/-]+)=(.+)$`)

// ParseKey reads "[ID=]PATH".
func ParseKey(text string) Key {
	m := keyID.FindStringSubmatch(text)
	switch {
	case m == nil:
		return Key{File: text}
	case m[1][0] == '/':
		return Key{ID: m[1], File: m[2]}
	}
	return Key{ID: strings.ToLower(m[1]), File: m[2]} // virt-v2v compares bytes
}

// String is what ParseKey reads.
func (k Key) String() string {
	if k.ID == "" {
		return k.File
	}
	return k.ID + "=" + k.File
}

// A Locked volume is one that an encrypted guest has.
type Locked struct {
	UUID   string // UUID of a LUKS volume; empty for BitLocker
	Device string // device as libguestfs counts: /dev/sdb2; empty for a volume of LVM, for which LUKS has a UUID
	Kind   string // "LUKS", "BitLocker"
}

// Device is a partition's name in libguestfs: /dev/sdb2 is the second of the disk with index 1, and
// partition 0 the whole of it, /dev/sdb.
func Device(index, partition int) string {
	if partition == 0 {
		return "/dev/sd" + letters(index)
	}
	return fmt.Sprintf("/dev/sd%s%d", letters(index), partition)
}

// ID is the volume's name for virt-v2v.
func (l Locked) ID() string { return cmp.Or(l.UUID, l.Device) }

// Opened reports whether one of the keys is for the volume.
func (l Locked) Opened(keys []Key) bool {
	return slices.ContainsFunc(keys, func(k Key) bool { return k.ID == "" || k.ID == l.UUID || k.ID == l.Device })
}

// CheckKeys reads the files before the copy, which takes hours. The error is fault.NotFound;
// fault.Denied if a file is unreadable, or readable by all users; fault.Invalid if it has no key.
func CheckKeys(keys []Key) error {
	for _, k := range keys {
		if _, err := k.read(); err != nil {
			return err
		}
	}
	return nil
}

const (
	longestKey = 4096 // bytes; a recovery key has 55
	keyHint    = "put the passphrase, or the recovery key with its dashes, in one line of a file that only you can read: chmod 600 %s"
)

// read returns the key. Depending on its release virt-v2v uses the first line of a file, or all of it
// with the newline, so it gets one line without a newline.
func (k Key) read() ([]byte, error) {
	info, err := os.Stat(k.File)
	kind := fault.Denied
	if errors.Is(err, fs.ErrNotExist) {
		kind = fault.NotFound
	}
	bad := func(kind fault.Kind, format string, args ...any) error {
		return fault.New(kind, format, args...).WithHint(keyHint, fault.Quote(k.File))
	}
	switch {
	case err != nil:
		return nil, bad(kind, "key file: %w", err)
	case !info.Mode().IsRegular():
		return nil, bad(fault.Invalid, "key file %s is no file", k.File)
	case info.Mode().Perm()&0o007 != 0:
		return nil, bad(fault.Denied, "key file %s is readable by all users of this machine", k.File)
	case info.Size() > longestKey:
		return nil, bad(fault.Invalid, "key file %s has %d bytes: that is no passphrase", k.File, info.Size())
	}
	text, err := os.ReadFile(k.File)
	if err != nil {
		return nil, bad(fault.Denied, "key file: %w", err)
	}
	text = bytes.TrimSuffix(bytes.TrimSuffix(text, []byte("\n")), []byte("\r"))
	if len(text) == 0 || bytes.ContainsAny(text, "\n\x00") {
		return nil, bad(fault.Invalid, "key file %s has not one line with a key, but none, more, or bytes that are no text", k.File)
	}
	return text, nil
}

// held returns a key as a memory file with a name for virt-v2v only: without a file on disk, none is
// left behind by a kill.
func (k Key) held() (*os.File, error) {
	text, err := k.read()
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("key", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("hold a key in memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), "key")
	if _, err := f.Write(text); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// hold holds all keys.
func hold(keys []Key) (files []*os.File, closeAll func() error, err error) {
	closeAll = func() error {
		var errs []error
		for _, f := range files {
			errs = append(errs, f.Close())
		}
		return errors.Join(errs...)
	}
	for _, k := range keys {
		f, err := k.held()
		if err != nil {
			return nil, nil, errors.Join(err, closeAll())
		}
		files = append(files, f)
	}
	return files, closeAll, nil
}

// selectors are the arguments for keys that virt-v2v finds as its files first, first + 1, …. Releases
// before 2.4 take a volume by its name only, later ones all of them, too; a file's name must not have
// a colon.
func selectors(keys []Key, locked []Locked, first int) (args []string) {
	for i, k := range keys {
		ids := []string{k.ID}
		if k.ID == "" {
			ids[0] = "all"
			for _, l := range locked {
				ids = append(ids, l.ID())
			}
		}
		for _, id := range ids {
			args = append(args, "--key", fmt.Sprintf("%s:file:/dev/fd/%d", id, first+i))
		}
	}
	return args
}
