// Package config reads the configuration files of a user and of a machine: names for sources, targets and
// servers, and defaults of flags.
//
// A setting of the command line has precedence, then the environment, the user's file, the machine's file,
// and the built-in default. The files contain no secrets. A file that other users may write or own is refused.
package config

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/secretfile"
)

// Paths are the paths of both files.
type Paths struct {
	System string // file of the machine
	User   string // file of the user; empty if the user has no home
}

// systemFile is the path of the machine's file.
const systemFile = "/etc/decamp/config.yaml"

// fileName is the name of the user's file in Folder.
const fileName = "config.yaml"

// FindPaths returns the paths of both files. env returns an environment variable.
func FindPaths(env func(string) string) Paths {
	p := Paths{System: systemFile}
	if folder := Folder(env); folder != "" {
		p.User = filepath.Join(folder, fileName)
	}
	return p
}

// Folder returns the user's folder for configuration: decamp in $XDG_CONFIG_HOME or in ~/.config. It is
// empty if the user has no home.
func Folder(env func(string) string) string {
	base := env("XDG_CONFIG_HOME")
	if !filepath.IsAbs(base) { // the XDG specification requires ignoring relative paths
		if base = env("HOME"); !filepath.IsAbs(base) {
			return ""
		}
		base = filepath.Join(base, ".config")
	}
	return filepath.Join(base, "decamp")
}

// Origin is the place of a setting.
type Origin struct {
	Path string // path of the file
	Line int    // line of the key, from 1
}

// String returns PATH:LINE.
func (o Origin) String() string { return fmt.Sprintf("%s:%d", o.Path, o.Line) }

// Source is a named ESXi host or vCenter.
type Source struct {
	Origin
	URL          string // valid for esx.ParseURL
	Fingerprint  string // SHA-256 of the certificate as AA:BB:…; empty if not set
	PasswordFile string // absolute path; empty if not set
}

// Target is a named value of --to.
type Target struct {
	Origin
	To string // valid for planfile.ParseDestination
}

// Server is a named decamp server.
type Server struct {
	Origin
	URL         string // https://HOST:PORT
	Fingerprint string // SHA-256 of the certificate as AA:BB:…; empty if not set
	CA          string // absolute path of the CA's certificate; empty if not set
	TokenFile   string // absolute path of the token; empty if not set
	ClientCert  string // absolute path of the client certificate; empty if not set
	ClientKey   string // absolute path of the client's key; set with ClientCert
}

// Default is the default of a flag.
type Default struct {
	Origin
	Values []string // at least one; several for a flag that may be repeated
}

// Settings are the merged settings of both files, by name.
type Settings struct {
	Sources  map[string]Source
	Targets  map[string]Target
	Servers  map[string]Server
	Defaults map[string]Default // by the name of the flag
}

// newSettings returns empty settings.
func newSettings() *Settings {
	return &Settings{Sources: map[string]Source{}, Targets: map[string]Target{}, Servers: map[string]Server{}, Defaults: map[string]Default{}}
}

// Load reads both files. flags are the names that defaults may contain. A missing file is not an error. An
// entry of the user's file replaces the entry of that name in the machine's file.
func Load(p Paths, flags []string) (*Settings, error) {
	all := newSettings()
	for _, path := range []string{p.System, p.User} {
		if path == "" {
			continue
		}
		s, problems, err := loadFile(path, flags)
		switch {
		case err != nil:
			return nil, err
		case len(problems) > 0:
			return nil, problems.Err()
		}
		for name := range s.Defaults {
			delete(all.Defaults, excluding[name])
		}
		maps.Copy(all.Sources, s.Sources)
		maps.Copy(all.Targets, s.Targets)
		maps.Copy(all.Servers, s.Servers)
		maps.Copy(all.Defaults, s.Defaults)
	}
	return all, nil
}

// Check reads both files, and returns all mistakes of their text. exist are the paths of the files that
// exist.
func Check(p Paths, flags []string) (exist []string, found Problems, err error) {
	for _, path := range []string{p.System, p.User} {
		if path == "" {
			continue
		}
		_, problems, err := loadFile(path, flags)
		if err != nil {
			return exist, found, err
		}
		if _, err := os.Stat(path); err == nil {
			exist = append(exist, path)
		}
		found = append(found, problems...)
	}
	return exist, found, nil
}

// SecretFiles returns the paths of the files with passwords and tokens. A nil s has none.
func (s *Settings) SecretFiles() (paths []string) {
	if s == nil {
		return nil
	}
	for _, source := range s.Sources {
		paths = append(paths, source.PasswordFile)
	}
	for _, server := range s.Servers {
		paths = append(paths, server.TokenFile)
	}
	return slices.DeleteFunc(paths, func(path string) bool { return path == "" })
}

// FindAccount returns the URL of a source or a server by its name. It returns a URL unchanged.
func (s *Settings) FindAccount(text string) (string, error) {
	if !planfile.IsName(text) {
		return text, nil
	}
	source, isSource := s.Sources[text]
	server, isServer := s.Servers[text]
	switch {
	case isSource && isServer:
		return "", fault.New(fault.Invalid, "%q is a source and a server", text).WithHint("write the URL")
	case isSource:
		return source.URL, nil
	case isServer:
		return server.URL, nil
	}
	both := map[string]bool{}
	for name := range s.Sources {
		both[name] = true
	}
	for name := range s.Servers {
		both[name] = true
	}
	return "", unknownName("source or server", text, both, "write the URL")
}

// FindSource returns the source with a URL, and its name. A nil s has no sources.
func (s *Settings) FindSource(rawURL string) (name string, source Source, known bool) {
	if s == nil {
		return "", source, false
	}
	for _, name := range slices.Sorted(maps.Keys(s.Sources)) {
		if s.Sources[name].URL == rawURL {
			return name, s.Sources[name], true
		}
	}
	return "", source, false
}

// NameSource returns the name of the source with a URL; without one a name made from its host.
func (s *Settings) NameSource(rawURL string) string {
	if name, _, known := s.FindSource(rawURL); known {
		return name
	}
	u, err := url.Parse(rawURL)
	if err != nil {
		return "source"
	}
	return makeName(u.Hostname(), "source")
}

// NameTarget returns the name of the target with a value of --to; without one a name made from its kind.
func (s *Settings) NameTarget(to string) string {
	for _, name := range slices.Sorted(maps.Keys(s.Targets)) {
		if s.Targets[name].To == to {
			return name
		}
	}
	kind, _, _ := strings.Cut(to, ":")
	return makeName(kind, "target")
}

// makeName replaces the characters of a text that a name must not have.
func makeName(text, otherwise string) string {
	name := strings.Trim(strings.Map(func(r rune) rune {
		if planfile.IsName(string(r)) || r == '.' || r == '-' {
			return r
		}
		return '-'
	}, text), ".-")
	if !planfile.IsName(name) {
		return otherwise
	}
	return name
}

// maxBytes is the maximum size of a file.
const maxBytes = 1 << 20

// loadFile reads and parses one file. A missing file has no settings.
func loadFile(path string, flags []string) (*Settings, Problems, error) {
	text, err := readFile(path)
	if text == nil || err != nil {
		return newSettings(), nil, err
	}
	s, problems := parse(path, text, flags)
	return s, problems, nil
}

// canSearch reports whether this user may search the folders of a path. A service that runs as another user than
// the one that $HOME names may not.
func canSearch(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, os.ErrPermission)
}

// readFile returns the text of a file, and nil if it does not exist, or if its folder belongs to another user
// and cannot be searched. It returns fault.Denied if the file cannot be read, if other users may write it, or if it
// belongs to another user than this one and root.
func readFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO must not block
	switch {
	case errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) && !canSearch(path):
		return nil, nil
	case err != nil:
		return nil, fault.New(fault.Denied, "read the config file: %w", err).WithHint("make %s readable for the user that runs decamp", fault.Quote(path))
	}
	defer f.Close() // only read
	st, err := f.Stat()
	switch {
	case err != nil:
		return nil, fault.Wrap(fault.Invalid, err)
	case !st.Mode().IsRegular():
		return nil, fault.New(fault.Invalid, "the config file %s is not a regular file", path).WithHint("move it away")
	case st.Mode().Perm()&0o022 != 0:
		return nil, fault.New(fault.Denied, "other users may write the config file %s", path).WithHint("run: chmod go-w %s", fault.Quote(path))
	case st.Size() > maxBytes:
		return nil, fault.New(fault.Invalid, "the config file %s has %d bytes; at most %d are possible", path, st.Size(), maxBytes)
	}
	if err := secretfile.CheckOwner(path, "the config file", st); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxBytes))
	if err != nil {
		return nil, fault.New(fault.Invalid, "read the config file: %w", err)
	}
	return append([]byte{}, text...), nil // not nil for an empty file
}

// Problem is a mistake in the text of a file.
type Problem struct {
	File   string `json:"file"`             // path of the file
	Line   int    `json:"line,omitempty"`   // line of the mistake, from 1; 0 if unknown
	Text   string `json:"text"`             // description of the mistake, with its key
	Remedy string `json:"remedy,omitempty"` // change that removes it; empty if unknown
}

// String returns the mistake with its position.
func (p Problem) String() string {
	if p.Line == 0 {
		return p.File + ": " + p.Text
	}
	return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Text)
}

// Problems are mistakes in the order of the text.
type Problems []Problem

// Err returns the first mistake as fault.Invalid, with the number of the others; nil without mistakes.
func (ps Problems) Err() error {
	if len(ps) == 0 {
		return nil
	}
	more := ""
	if n := len(ps) - 1; n > 0 {
		more = fmt.Sprintf(" (and %d more: decamp config check)", n)
	}
	return fault.New(fault.Invalid, "%s%s", ps[0], more).WithHint("%s", ps[0].Remedy)
}
