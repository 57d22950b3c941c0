// Package credentials stores passwords of sources and tokens of servers for a user: in the keyring of the
// desktop (Secret Service), or in a file that only the user can read. The user chooses the place of each.
package credentials

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/decamp/decamp/internal/atomicfile"
	"github.com/decamp/decamp/internal/fault"
)

// Place is where a secret is stored.
type Place string

// The places of secrets.
const (
	Keyring Place = "keyring" // the user's keyring, by the Secret Service on D-Bus
	File    Place = "file"    // the file of Store
)

// Store is the store of one user. Its file lists the accounts; it contains the secrets that are not in the
// keyring. Two processes that change the file at the same time overwrite each other.
type Store struct {
	Folder string              // folder of the file; empty if the user has none: then nothing is stored
	Env    func(string) string // returns an environment variable
}

// fileName is the name of the file in the folder.
const fileName = "credentials.json"

// entry is an account in the file.
type entry struct {
	Store  Place  `json:"store"`            // place of the secret
	Secret string `json:"secret,omitempty"` // the secret; empty if it is in the keyring
}

// path returns the path of the file.
func (s Store) path() string { return filepath.Join(s.Folder, fileName) }

// load reads the file. A missing file has no accounts. It returns fault.Denied if other users may read
// the file.
func (s Store) load() (map[string]entry, error) {
	all := map[string]entry{}
	if s.Folder == "" {
		return all, nil
	}
	f, err := os.Open(s.path())
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err != nil {
		return nil, fault.New(fault.Denied, "read stored credentials: %w", err).WithHint("make %s readable for the user that runs decamp", fault.Quote(s.path()))
	}
	defer f.Close() // only read
	st, err := f.Stat()
	switch {
	case err != nil:
		return nil, fault.Wrap(fault.Invalid, err)
	case st.Mode().Perm()&0o077 != 0:
		return nil, fault.New(fault.Denied, "other users may read the stored credentials in %s", s.path()).WithHint("run: chmod 600 %s; if another user has read them, change the passwords", fault.Quote(s.path()))
	}
	if err := json.NewDecoder(f).Decode(&all); err != nil {
		return nil, fault.New(fault.Corrupt, "the stored credentials in %s are malformed", s.path()). // the error of the decoder may quote a secret
														WithHint("remove the file, and store them again with decamp login: rm %s", fault.Quote(s.path()))
	}
	return all, nil
}

// save replaces the file.
func (s Store) save(all map[string]entry) error {
	if s.Folder == "" {
		return fault.New(fault.Invalid, "the user has no folder for credentials").WithHint("set HOME or XDG_CONFIG_HOME to an absolute path")
	}
	text, err := json.MarshalIndent(all, "", "  ")
	if err == nil {
		err = os.MkdirAll(s.Folder, 0o700)
	}
	if err == nil {
		err = atomicfile.Replace(s.path(), append(text, '\n'), 0o600)
	}
	if err != nil {
		return fault.New(fault.Denied, "write stored credentials: %w", err)
	}
	return nil
}

// Set stores the secret of an account in a place, and removes it from the other one.
func (s Store) Set(ctx context.Context, account, secret string, place Place) error {
	all, err := s.load()
	if err != nil {
		return err
	}
	if all[account].Store == Keyring && place != Keyring {
		if err := s.removeFromKeyring(ctx, account); err != nil {
			return err
		}
	}
	next := entry{Store: place}
	switch place {
	case Keyring:
		err = s.setInKeyring(ctx, account, secret)
	case File:
		next.Secret = secret
	default:
		err = fault.New(fault.Invalid, "%q is not a place for credentials", place).WithHint("use keyring or file")
	}
	if err != nil {
		return err
	}
	all[account] = next
	return s.save(all)
}

// Get returns the secret of an account. known is false if none is stored.
func (s Store) Get(ctx context.Context, account string) (secret string, known bool, err error) {
	all, err := s.load()
	if err != nil {
		return "", false, err
	}
	e, known := all[account]
	if known && e.Store == Keyring {
		e.Secret, err = s.getFromKeyring(ctx, account)
	}
	return e.Secret, known, err
}

// Has reports whether a secret of an account is stored. It does not ask the keyring.
func (s Store) Has(account string) (bool, error) {
	all, err := s.load()
	_, known := all[account]
	return known, err
}

// Remove removes the secret of an account. It returns fault.NotFound if none is stored.
func (s Store) Remove(ctx context.Context, account string) error {
	all, err := s.load()
	if err != nil {
		return err
	}
	e, known := all[account]
	if !known {
		return fault.New(fault.NotFound, "no credential of %s is stored", account)
	}
	if e.Store == Keyring {
		if err := s.removeFromKeyring(ctx, account); err != nil {
			return err
		}
	}
	delete(all, account)
	return s.save(all)
}
