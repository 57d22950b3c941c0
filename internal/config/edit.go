package config

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/decamp/decamp/internal/atomicfile"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/planfile"
)

// Editor changes the user's file. It keeps comments and the order of keys. Two processes that change the
// file at the same time overwrite each other.
type Editor struct {
	Path  string   // path of the user's file; it may be missing
	Flags []string // names that defaults may contain
}

// SetServer adds a server, or replaces the one of that name.
func (e Editor) SetServer(name string, s Server) error {
	return e.change(func(root *yaml.Node) {
		entry := &yaml.Node{Kind: yaml.MappingNode}
		for _, each := range []struct{ key, value string }{
			{"url", s.URL}, {"fingerprint", s.Fingerprint}, {"ca", s.CA}, {"tokenFile", s.TokenFile}, {"clientCert", s.ClientCert}, {"clientKey", s.ClientKey},
		} {
			if each.value != "" {
				setKey(entry, each.key, newText(each.value))
			}
		}
		setKey(findSection(root, "servers"), name, entry)
	})
}

// AddServer adds a server that no file has. confirm returns the fingerprint of the certificate at an
// https URL after the user has confirmed it.
func (e Editor) AddServer(p Paths, name string, s Server, confirm func(url string) (string, error)) error {
	s.URL = strings.TrimSuffix(s.URL, "/")
	if !planfile.IsName(name) {
		return fault.New(fault.Invalid, "%q is not a name", name).WithHint("use letters, digits, dots, dashes and underscores")
	}
	if err := CheckServerURL(s.URL); err != nil {
		return err
	}
	known, err := Load(p, e.Flags)
	if err != nil {
		return err
	}
	if old, exists := known.Servers[name]; exists {
		return fault.New(fault.Conflict, "server %s exists: %s", name, old.Origin).WithHint("forget it first: decamp server remove %s", name)
	}
	if strings.HasPrefix(s.URL, "https:") {
		if s.Fingerprint, err = confirm(s.URL); err != nil {
			return err
		}
	}
	return e.SetServer(name, s)
}

// RemoveServer removes a server, and the default of --server if it is that name. It returns fault.NotFound
// if the user's file does not have it.
func (e Editor) RemoveServer(name string) error {
	removed := false
	err := e.change(func(root *yaml.Node) {
		removed = removeKey(findSection(root, "servers"), name)
		if defaults := findSection(root, "defaults"); removed && valueOf(defaults, "server") != nil && valueOf(defaults, "server").Value == name {
			removeKey(defaults, "server")
		}
	})
	if err == nil && !removed {
		return fault.New(fault.NotFound, "%s has no server %q", e.Path, name).WithHint("list the servers with decamp server list")
	}
	return err
}

// SetSource adds a source, or replaces the one of that name.
func (e Editor) SetSource(name string, s Source) error {
	return e.change(func(root *yaml.Node) {
		entry := &yaml.Node{Kind: yaml.MappingNode}
		setKey(entry, "url", newText(s.URL))
		if s.Fingerprint != "" {
			setKey(entry, "fingerprint", newText(s.Fingerprint))
		}
		if s.PasswordFile != "" {
			setKey(entry, "passwordFile", newText(s.PasswordFile))
		}
		setKey(findSection(root, "sources"), name, entry)
	})
}

// SetTarget adds a target, or replaces the one of that name.
func (e Editor) SetTarget(name, to string) error {
	return e.change(func(root *yaml.Node) { setKey(findSection(root, "targets"), name, newText(to)) })
}

// SetDefaultServer makes a server of one of the files the default of --server. It returns fault.NotFound if
// no file has it.
func (e Editor) SetDefaultServer(p Paths, name string) error {
	s, err := Load(p, e.Flags)
	if err != nil {
		return err
	}
	if _, known := s.Servers[name]; !known {
		return fault.New(fault.NotFound, "the config files have no server %q", name).WithHint("add it: decamp server add %s URL", fault.Quote(name))
	}
	return e.SetDefault("server", name)
}

// SetDefault sets the default of a flag.
func (e Editor) SetDefault(flag, value string) error {
	return e.change(func(root *yaml.Node) { setKey(findSection(root, "defaults"), flag, newText(value)) })
}

// change replaces the file by its changed content. It refuses a file with mistakes, and a change that
// would make one.
func (e Editor) change(do func(root *yaml.Node)) error {
	if e.Path == "" {
		return fault.New(fault.Invalid, "the user has no folder for a config file").WithHint("set HOME or XDG_CONFIG_HOME to an absolute path")
	}
	text, err := readFile(e.Path)
	if err != nil {
		return err
	}
	if _, found := parse(e.Path, text, e.Flags); len(found) > 0 {
		return found.Err()
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return fault.Wrap(fault.Invalid, err)
	}
	if len(doc.Content) == 0 || doc.Content[0].Kind != yaml.MappingNode { // comments only
		doc = yaml.Node{Kind: yaml.DocumentNode, HeadComment: doc.HeadComment, Content: []*yaml.Node{{Kind: yaml.MappingNode}}}
	}
	root := doc.Content[0]
	do(root)
	for _, section := range []string{"sources", "targets", "servers", "defaults"} {
		if v := valueOf(root, section); v != nil && len(v.Content) == 0 {
			removeKey(root, section)
		}
	}
	next, err := encode(&doc)
	if err != nil {
		return err
	}
	if _, found := parse(e.Path, next, e.Flags); len(found) > 0 {
		return found.Err()
	}
	return e.write(next)
}

// encode returns the text of a document.
func encode(doc *yaml.Node) ([]byte, error) {
	if len(doc.Content[0].Content) == 0 {
		return nil, nil
	}
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	err := errors.Join(enc.Encode(doc), enc.Close())
	return b.Bytes(), err
}

// write replaces the file. A symbolic link stays, and its file is replaced. A new file has mode 600.
func (e Editor) write(text []byte) error {
	path, mode := e.Path, fs.FileMode(0o600)
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	if st, err := os.Stat(path); err == nil {
		mode = st.Mode().Perm()
	}
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = atomicfile.Replace(path, text, mode)
	}
	if err != nil {
		return fault.New(fault.Denied, "write the config file: %w", err)
	}
	return nil
}

// newText returns the node of a text.
func newText(s string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(s)
	return n
}

// valueOf returns the value of a key; nil if a mapping does not have it.
func valueOf(mapping *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return mapping.Content[i+1]
		}
	}
	return nil
}

// findSection returns the mapping of a section, which it creates if it is missing.
func findSection(root *yaml.Node, name string) *yaml.Node {
	if v := valueOf(root, name); v != nil {
		return v
	}
	v := &yaml.Node{Kind: yaml.MappingNode}
	setKey(root, name, v)
	return v
}

// setKey sets the value of a key.
func setKey(mapping *yaml.Node, key string, value *yaml.Node) {
	mapping.Style = 0 // not {}, in which long entries are hard to read
	if v := valueOf(mapping, key); v != nil {
		*v = *value
		return
	}
	mapping.Content = append(mapping.Content, newText(key), value)
}

// removeKey removes a key, and reports whether it existed.
func removeKey(mapping *yaml.Node, key string) bool {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			mapping.Content = append(mapping.Content[:i:i], mapping.Content[i+2:]...)
			return true
		}
	}
	return false
}
