// Package knownhosts stores the certificates and SSH host keys that a user accepted, in a JSON file.
package knownhosts

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/decamp/decamp/internal/atomicfile"
	"github.com/decamp/decamp/internal/fault"
)

// Host is a certificate, or an SSH host key, that the user accepted.
type Host struct {
	SHA256  string    `json:"sha256"`  // AA:BB:…
	Subject string    `json:"subject"` // subject of the certificate; "SSH" for a host key
	Since   time.Time `json:"since"`   // time of the acceptance
}

// File is a file of known hosts. Two processes that add a host at the same time overwrite each other:
// one acceptance is lost, and requested again later.
type File struct {
	path  string          // path of the file
	hosts map[string]Host // by host:port; SSH host keys by ssh://host:port
}

// Load reads a file. A missing file has no hosts. It returns fault.Corrupt if the file cannot be parsed.
func Load(path string) (*File, error) {
	f := &File{path: path, hosts: map[string]Host{}}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read known hosts: %w", err)
	}
	if err := json.Unmarshal(text, &f.hosts); err != nil {
		return nil, fault.New(fault.Corrupt, "read known hosts %s: %w", path, err).
			WithHint("remove %s; a confirmation of each certificate is requested again", fault.Quote(path))
	}
	return f, nil
}

// Find returns the host of an entry, and whether the file has it.
func (f *File) Find(entry string) (Host, bool) {
	h, ok := f.hosts[entry]
	return h, ok
}

// Add records a fingerprint for an entry and writes the file, unless it is recorded already.
func (f *File) Add(entry, fingerprint, subject string) error {
	if f.hosts[entry].SHA256 == fingerprint {
		return nil
	}
	if f.hosts == nil { // the file contains null
		f.hosts = map[string]Host{}
	}
	f.hosts[entry] = Host{SHA256: fingerprint, Subject: subject, Since: time.Now().UTC().Truncate(time.Second)}
	text, err := json.MarshalIndent(f.hosts, "", "  ")
	if err != nil {
		return err
	}
	if err := atomicfile.Replace(f.path, append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("write known hosts: %w", err)
	}
	return nil
}
