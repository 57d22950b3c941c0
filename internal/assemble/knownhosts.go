package assemble

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/decamp/decamp/internal/durable"
	"github.com/decamp/decamp/internal/fault"
)

// knownHost is a certificate that an operator confirmed.
type knownHost struct {
	SHA256  string    `json:"sha256"` // AA:BB:…
	Subject string    `json:"subject"`
	Since   time.Time `json:"since"`
}

// knownHosts is the file in the state directory that remembers them, by host:port. When
// two commands confirm at the same moment one of the answers is lost, and asked for
// again.
type knownHosts struct {
	path  string
	hosts map[string]knownHost
}

func (a *Assembler) knownHosts() (*knownHosts, error) {
	dir, err := a.StateDir()
	if err != nil {
		return nil, err
	}
	k := &knownHosts{path: filepath.Join(dir, "known_hosts.json"), hosts: map[string]knownHost{}}
	text, err := os.ReadFile(k.path)
	if errors.Is(err, fs.ErrNotExist) {
		return k, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read known hosts: %w", err)
	}
	if err := json.Unmarshal(text, &k.hosts); err != nil {
		return nil, fault.New(fault.Corrupt, "read known hosts %s: %w", k.path, err).
			WithHint("remove %s; decamp asks about each certificate again", fault.Quote(k.path))
	}
	return k, nil
}

func (k *knownHosts) remember(addr string, c certificate) error {
	if k.hosts[addr].SHA256 == c.Fingerprint {
		return nil
	}
	k.hosts[addr] = knownHost{SHA256: c.Fingerprint, Subject: c.Subject, Since: time.Now().UTC().Truncate(time.Second)}
	text, err := json.MarshalIndent(k.hosts, "", "  ")
	if err != nil {
		return err
	}
	if err := durable.Replace(k.path, append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("write known hosts: %w", err)
	}
	return nil
}
