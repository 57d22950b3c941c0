// Package fleetkey signs what the processes of a fleet pass to each other through a database, and
// verifies it.
//
// A signature is an HMAC with SHA-256 under a key that all servers and workers of the fleet share.
// It proves that a process with the key wrote a message for the use that it names. It does not
// prove when, and not that the message was not there before: a message that was signed once can be
// put back.
package fleetkey

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/atomicfile"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/secretfile"
)

const (
	// FileName is the name of a key file in a state directory.
	FileName = "fleet.key"

	linePrefix = "decamp-fleet-key-1:" // prefix of a line with a key
	keyBytes   = 32                    // length of a secret
	idBytes    = 4                     // bytes of a key's hash in its ID
	maxKeys    = 16                    // limit of the keys in a file
	maxFile    = 64 << 10              // limit of a key file, in bytes
)

// Keys are the keys of a fleet. The first one signs, all of them verify. They are immutable and safe
// for concurrent use.
type Keys struct{ keys []key }

// A key is one line of a key file.
type key struct {
	id     string         // name of the key in signatures; it reveals nothing about the key
	secret [keyBytes]byte // key of the HMAC
}

// newKey returns the key of a secret. Its id is the beginning of a hash of the secret.
func newKey(secret [keyBytes]byte) key {
	sum := sha256.Sum256(append([]byte("decamp fleet key id\x00"), secret[:]...))
	return key{hex.EncodeToString(sum[:idBytes]), secret}
}

// toLine returns the line of a key file, without its line break.
func (k key) toLine() string {
	return linePrefix + base64.RawURLEncoding.EncodeToString(k.secret[:])
}

// String returns the ids of the keys and no secret.
func (k *Keys) String() string { return strings.Join(k.IDs(), " ") }

// IDs returns the ids of the keys, in the order of the file.
func (k *Keys) IDs() []string {
	var ids []string
	for _, each := range k.keys {
		ids = append(ids, each.id)
	}
	return ids
}

// Sign returns a signature of fields for use. A signature for one use is not valid for another one, and
// fields are signed with their boundaries.
func (k *Keys) Sign(use string, fields ...string) string {
	first := k.keys[0]
	return first.id + ":" + base64.RawURLEncoding.EncodeToString(first.mac(use, fields))
}

// Verify returns nil if signature is a signature of fields for use under one of the keys, and
// fault.Denied with the reason otherwise.
func (k *Keys) Verify(signature, use string, fields ...string) error {
	if signature == "" {
		return fault.New(fault.Denied, "it has no signature")
	}
	id, text, _ := strings.Cut(signature, ":")
	i := slices.IndexFunc(k.keys, func(each key) bool { return each.id == id })
	if i < 0 {
		return fault.New(fault.Denied, "it is signed with another fleet key than %s", k)
	}
	mac, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || !hmac.Equal(mac, k.keys[i].mac(use, fields)) {
		return fault.New(fault.Denied, "its signature is wrong: it was changed in the database")
	}
	return nil
}

// mac returns the HMAC-SHA-256 (RFC 2104) of use and fields. Each is preceded by its length in 8 bytes,
// so that different fields cannot have the same bytes.
func (k key) mac(use string, fields []string) []byte {
	h := hmac.New(sha256.New, k.secret[:])
	var size [8]byte
	for _, field := range append([]string{use}, fields...) {
		binary.BigEndian.PutUint64(size[:], uint64(len(field)))
		h.Write(size[:])
		h.Write([]byte(field))
	}
	return h.Sum(nil)
}

// Load reads a key file. It returns fault.NotFound if the file does not exist. The file must be
// readable by its owner only. A file in $CREDENTIALS_DIRECTORY may be readable by a group, because
// systemd grants access to it by an ACL.
func Load(path string) (*Keys, error) {
	text, err := secretfile.Read(path, "fleet key", maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.New(fault.NotFound, "fleet key file %s does not exist", path).
			WithHint("make one with decamp key new %s, and copy it to all servers and workers of the fleet", fault.Quote(path))
	}
	if err != nil {
		return nil, err
	}
	keys, err := Parse(text)
	if err != nil {
		return nil, fault.New(fault.KindOf(err), "fleet key file %s: %w", path, err).
			WithHint("copy the file from another machine of the fleet, or make one with decamp key new")
	}
	return keys, nil
}

// Parse reads the text of a key file: one key per line. Empty lines and lines that begin with # are
// skipped. Errors do not contain the line, which may be a secret.
func Parse(text []byte) (*Keys, error) {
	if len(text) > maxFile {
		return nil, fault.New(fault.Invalid, "has more than %d bytes", maxFile)
	}
	k := &Keys{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, maxFile+1)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		coded, found := strings.CutPrefix(line, linePrefix)
		raw, err := base64.RawURLEncoding.Strict().DecodeString(coded)
		if !found || err != nil || len(raw) != keyBytes {
			return nil, fault.New(fault.Invalid, "line %d is no key", n) // without the line: it may be a secret
		}
		next := newKey([keyBytes]byte(raw))
		if slices.ContainsFunc(k.keys, func(each key) bool { return each.id == next.id }) {
			return nil, fault.New(fault.Invalid, "line %d repeats key %s", n, next.id)
		}
		k.keys = append(k.keys, next)
	}
	switch {
	case lines.Err() != nil:
		return nil, fault.New(fault.Invalid, "%w", lines.Err())
	case len(k.keys) == 0:
		return nil, fault.New(fault.Invalid, "has no key")
	case len(k.keys) > maxKeys:
		return nil, fault.New(fault.Invalid, "has %d keys, want %d or fewer", len(k.keys), maxKeys)
	}
	return k, nil
}

// fileHeader is the comment at the beginning of a new key file.
const fileHeader = `# Fleet key of decamp. It signs and verifies plans in the fleet's database: a process that has it can make
# any worker of the fleet execute any plan. The first key signs, all keys verify.
`

// Create writes a file with one new key. An existing file is fault.Conflict.
func Create(path string) (*Keys, error) {
	made := newRandomKey()
	err := createFile(path, []byte(fileHeader+made.toLine()+"\n"))
	if errors.Is(err, fs.ErrExist) {
		return nil, fault.New(fault.Conflict, "%s exists", path).WithHint("decamp key add %s adds a key to it", fault.Quote(path))
	}
	if err != nil {
		return nil, fault.New(fault.Denied, "make fleet key: %w", err)
	}
	return &Keys{[]key{made}}, nil
}

// createFile writes a file that must not exist. Of several processes one succeeds, and no process can
// read an incomplete file.
func createFile(path string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil {
		return err
	}
	return atomicfile.Sync(filepath.Dir(path))
}

// Ensure loads the key file at path, and creates it if it does not exist.
func Ensure(path string) (*Keys, error) {
	keys, err := Load(path)
	if !fault.Is(err, fault.NotFound) {
		return keys, err
	}
	if keys, err = Create(path); fault.Is(err, fault.Conflict) { // another process was faster
		return Load(path)
	}
	return keys, err
}

// Add appends a new key to the file at path. It verifies; it does not sign before it is moved to
// the top.
func Add(path string) (*Keys, error) {
	keys, err := Load(path)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fault.New(fault.Denied, "read fleet key: %w", err)
	}
	if len(keys.keys) == maxKeys {
		return nil, fault.New(fault.Full, "%s has %d keys", path, maxKeys).WithHint("remove the lines of keys that are not used any more")
	}
	made := newRandomKey()
	text = append(bytes.TrimRight(text, "\n"), "\n"+made.toLine()+"\n"...)
	if err := atomicfile.Replace(path, text, 0o600); err != nil {
		return nil, fault.New(fault.Denied, "write fleet key: %w", err)
	}
	return &Keys{append(slices.Clone(keys.keys), made)}, nil
}

// newRandomKey returns a key with a random secret.
func newRandomKey() key {
	var secret [keyBytes]byte
	rand.Read(secret[:])
	return newKey(secret)
}
