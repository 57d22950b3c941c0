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
// BitLocker. Arguments, logs and errors contain only the path of its file.
type Key struct {
	ID   string // volume: its UUID, or its device in libguestfs, /dev/sdb2; empty means all volumes
	File string // path of a file with the key in one line
}

// keyID matches a key for one volume: ID=PATH.
var keyID = regexp.MustCompile(`^([0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}|/dev/[A-Za-z0-9._+/-]+)=(.+)$`)

// ParseKey parses "[ID=]PATH".
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

// String returns the form that ParseKey parses.
func (k Key) String() string {
	if k.ID == "" {
		return k.File
	}
	return k.ID + "=" + k.File
}

// A Locked is an encrypted volume of a guest.
type Locked struct {
	UUID   string // UUID of a LUKS volume; empty for BitLocker
	Device string // device in libguestfs: /dev/sdb2; empty for a logical volume, for which LUKS has a UUID
	Kind   string // "LUKS", "BitLocker"
}

// Device returns the name of a partition in libguestfs: /dev/sdb2 is the second partition of the disk
// with index 1. Partition 0 is the whole disk, /dev/sdb.
func Device(index, partition int) string {
	if partition == 0 {
		return "/dev/sd" + diskLetters(index)
	}
	return fmt.Sprintf("/dev/sd%s%d", diskLetters(index), partition)
}

// ID returns the name of the volume for virt-v2v.
func (l Locked) ID() string { return cmp.Or(l.UUID, l.Device) }

// Opened reports whether one of the keys is for the volume.
func (l Locked) Opened(keys []Key) bool {
	return slices.ContainsFunc(keys, func(k Key) bool { return k.ID == "" || k.ID == l.UUID || k.ID == l.Device })
}

// CheckKeys reads the key files. It is called before the copy, which takes hours. The error is
// fault.NotFound if a file does not exist, fault.Denied if it is unreadable or readable by all users,
// and fault.Invalid if it contains no key.
func CheckKeys(keys []Key) error {
	for _, k := range keys {
		if _, err := k.readKey(); err != nil {
			return err
		}
	}
	return nil
}

const (
	longestKey = 4096 // bytes of a key; a recovery key has 55
	// hint about key files; the argument is the path
	keyHint = "write the passphrase, or the recovery key with its dashes, as one line to a file that only you can read: chmod 600 %s"
)

// readKey returns the key without a newline. Depending on its release, virt-v2v uses the first line of
// a file or the whole file including the newline.
func (k Key) readKey() ([]byte, error) {
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
		return nil, bad(fault.Invalid, "key file %s is not a regular file", k.File)
	// A group may have access, for example that of a service.
	case info.Mode().Perm()&0o007 != 0:
		return nil, bad(fault.Denied, "key file %s is readable by all users of this machine", k.File)
	case info.Size() > longestKey:
		return nil, bad(fault.Invalid, "key file %s has %d bytes, which is not a passphrase", k.File, info.Size())
	}
	text, err := os.ReadFile(k.File)
	if err != nil {
		return nil, bad(fault.Denied, "key file: %w", err)
	}
	text = bytes.TrimSuffix(bytes.TrimSuffix(text, []byte("\n")), []byte("\r"))
	if len(text) == 0 || bytes.ContainsAny(text, "\n\x00") {
		return nil, bad(fault.Invalid, "key file %s must contain exactly one line of text with a key", k.File)
	}
	return text, nil
}

// openInMemory returns an anonymous file in memory with the key for virt-v2v. A file on disk could
// remain after a kill.
func (k Key) openInMemory() (*os.File, error) {
	text, err := k.readKey()
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

// openKeys opens all keys in memory. The caller must call closeAll.
func openKeys(keys []Key) (files []*os.File, closeAll func() error, err error) {
	closeAll = func() error {
		var errs []error
		for _, f := range files {
			errs = append(errs, f.Close())
		}
		return errors.Join(errs...)
	}
	for _, k := range keys {
		f, err := k.openInMemory()
		if err != nil {
			return nil, nil, errors.Join(err, closeAll())
		}
		files = append(files, f)
	}
	return files, closeAll, nil
}

// keyArguments returns the arguments for keys whose files have the descriptors first, first + 1, ….
// Releases before 2.4 require the name of a volume; later ones also accept "all". The path must not
// contain a colon, so descriptors are used.
func keyArguments(keys []Key, locked []Locked, first int) (args []string) {
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
