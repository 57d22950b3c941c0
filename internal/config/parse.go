package config

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/suggest"
)

// parser converts the text of a file to Settings. It continues after mistakes, so that one run finds all
// of them.
type parser struct {
	path  string   // path of the file
	found Problems // mistakes so far
}

// parse returns the settings in the text of a file. They must not be used if there are Problems.
func parse(path string, text []byte, flags []string) (*Settings, Problems) {
	p, s := &parser{path: path}, newSettings()
	root, ok := p.parseDocument(text)
	if !ok {
		return s, p.found
	}
	for _, section := range p.readMapping(root, "", []string{"sources", "targets", "servers", "defaults"}) {
		for _, e := range p.readMapping(section.value, section.name, nil) {
			at := Origin{path, e.key.Line}
			switch section.name {
			case "defaults":
				s.Defaults[e.name] = p.readDefault(e, at, flags)
			case "sources":
				s.Sources[e.name] = p.readSource(e, at)
			case "targets":
				s.Targets[e.name] = p.readTarget(e, at)
			case "servers":
				s.Servers[e.name] = p.readServer(e, at)
			}
		}
	}
	if d, both := s.Defaults["db"]; both && len(s.Defaults["server"].Values) > 0 {
		p.found = append(p.found, Problem{path, d.Line, "defaults.db: --db and --server exclude each other", "keep one of the two"})
	}
	slices.SortStableFunc(p.found, func(a, b Problem) int { return a.Line - b.Line })
	return s, p.found
}

// addProblem adds a mistake at a node. The path of the key precedes the text; it is empty for the whole
// file.
func (p *parser) addProblem(n *yaml.Node, path, remedy, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if path != "" {
		text = path + ": " + text
	}
	if len(text) > maxQuoteBytes {
		text = strings.ToValidUTF8(text[:maxQuoteBytes], "") + "…"
	}
	p.found = append(p.found, Problem{p.path, n.Line, text, remedy})
}

// maxQuoteBytes limits quotations of the file in messages.
const maxQuoteBytes = 300

// lineNumber matches the line in errors of the YAML parser.
var lineNumber = regexp.MustCompile(`^line (\d+): `)

// parseDocument parses the text, and returns the root node. ok is false for an empty text, and after a
// mistake.
func (p *parser) parseDocument(text []byte) (root *yaml.Node, ok bool) {
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var doc, next yaml.Node
	err := dec.Decode(&doc)
	if errors.Is(err, io.EOF) {
		return nil, false
	}
	if err == nil {
		if again := dec.Decode(&next); again == nil {
			p.addProblem(&next, "", "remove the line ---", "a second document begins")
			return nil, false
		} else if !errors.Is(again, io.EOF) {
			err = again
		}
	}
	if err != nil {
		what, at := strings.TrimPrefix(err.Error(), "yaml: "), &yaml.Node{}
		if m := lineNumber.FindStringSubmatch(what); m != nil {
			at.Line, _ = strconv.Atoi(m[1])
			what = strings.TrimPrefix(what, m[0])
		}
		p.addProblem(at, "", "indent with spaces, align keys and list items, and quote text that contains : or # or quotes", "%s", what)
		return nil, false
	}
	return doc.Content[0], doc.Content[0].ShortTag() != "!!null" // comments only
}

// entry is a key with its value.
type entry struct {
	name       string     // text of the key
	key, value *yaml.Node // both nodes
}

// secretWords occur in unknown keys below which users write secrets.
var secretWords = []string{"password", "passwd", "passphrase", "secret", "token"}

// readMapping returns the entries of a mapping. With keys, all others are mistakes; otherwise each key must
// be a name.
func (p *parser) readMapping(n *yaml.Node, path string, keys []string) (list []entry) {
	if n.Kind != yaml.MappingNode || n.Anchor != "" {
		p.addProblem(n, path, "write each KEY: VALUE on a separate line", "want keys with values")
		return nil
	}
	lines := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		first, twice := lines[k.Value]
		switch {
		case twice:
			p.addProblem(k, path, "keep one of the two", "duplicate key %q, first in line %d", k.Value, first)
		case keys != nil && !slices.Contains(keys, k.Value):
			p.addProblem(k, path, unknownRemedy(k.Value, keys), "unknown key %q", k.Value)
		case keys == nil && !planfile.IsName(k.Value):
			p.addProblem(k, path, "use letters, digits, dots, dashes and underscores", "%q is not a name", k.Value)
		case v.Kind == yaml.AliasNode || v.Anchor != "":
			p.addProblem(v, joinPath(path, k.Value), "write the value out", "anchors and aliases are not supported")
		case v.ShortTag() == "!!null":
			p.addProblem(k, joinPath(path, k.Value), "set a value, or remove the key", "the value is missing")
		default:
			list = append(list, entry{k.Value, k, v})
		}
		lines[k.Value] = k.Line
	}
	return list
}

// joinPath appends a key to a path.
func joinPath(path, name string) string { return strings.TrimPrefix(path+"."+name, ".") }

// unknownRemedy returns the remedy for an unknown key: how to store a secret, the nearest known key, or the
// list of known keys.
func unknownRemedy(name string, keys []string) string {
	near, is := suggest.Word(name, keys)
	switch {
	case is && suggest.Distance(near, name) <= 2: // also a misspelled passwordFile
		return "did you mean " + near + "?"
	case slices.ContainsFunc(secretWords, func(w string) bool { return strings.Contains(strings.ToLower(name), w) }):
		return "remove it: this file contains no secrets; store the secret with decamp login, or write it to a file that only you can read, and set passwordFile or tokenFile"
	case is:
		return "did you mean " + near + "?"
	}
	return "valid keys: " + strings.Join(keys, ", ")
}

// readText returns the value of an entry, which must be one text.
func (p *parser) readText(e entry, path string) string {
	if e.value.Kind != yaml.ScalarNode {
		p.addProblem(e.value, path, "", "want one value")
		return ""
	}
	return e.value.Value
}

// readTexts returns the values of an entry with these keys.
func (p *parser) readTexts(e entry, path string, keys ...string) map[string]string {
	texts := map[string]string{}
	for _, each := range p.readMapping(e.value, path, keys) {
		text := p.readText(each, joinPath(path, each.name))
		isPath := strings.HasSuffix(each.name, "File") || strings.HasPrefix(each.name, "client") || each.name == "ca"
		switch {
		case isPath && text != "" && !filepath.IsAbs(text):
			p.addProblem(each.value, joinPath(path, each.name), "write an absolute path", "%q is not an absolute path", text)
		case each.name == "fingerprint":
			digits := strings.ReplaceAll(text, ":", "")
			if sum, err := hex.DecodeString(digits); err != nil || len(sum) != 32 {
				p.addProblem(each.value, joinPath(path, each.name), "write 64 hexadecimal digits, with or without colons", "not a SHA-256 fingerprint")
			} else {
				text = formatFingerprint(sum)
			}
		}
		texts[each.name] = text
	}
	return texts
}

// formatFingerprint returns a hash as AA:BB:…
func formatFingerprint(sum []byte) string {
	return strings.ReplaceAll(fmt.Sprintf("% X", sum), " ", ":")
}

// readSource reads a source.
func (p *parser) readSource(e entry, at Origin) Source {
	path, before := "sources."+e.name, len(p.found)
	t := p.readTexts(e, path, "url", "user", "fingerprint", "passwordFile")
	s := Source{Origin: at, URL: t["url"], Fingerprint: t["fingerprint"], PasswordFile: t["passwordFile"]}
	if u, err := url.Parse(s.URL); err == nil && u.User == nil && t["user"] != "" {
		u.User = url.User(t["user"])
		s.URL = u.String()
	} else if t["user"] != "" {
		p.addProblem(e.key, path, "keep one of the two", "the user is in url and in user")
		return s
	}
	if len(p.found) > before {
		return s // a second mistake may follow from the first
	}
	if _, err := esx.ParseURL(s.URL); err != nil {
		p.addProblem(e.key, path+".url", fault.HintOf(err), "%v", err)
	}
	return s
}

// readTarget reads a target.
func (p *parser) readTarget(e entry, at Origin) Target {
	path := "targets." + e.name
	t := Target{Origin: at, To: p.readText(e, path)}
	if t.To == "" {
		return t
	}
	if _, err := planfile.ParseDestination(t.To, planfile.LocalDefaults{Staging: "/stage"}); err != nil { // --staging may add the folder
		p.addProblem(e.value, path, fault.HintOf(err), "%v", err)
	}
	return t
}

// readServer reads a server.
func (p *parser) readServer(e entry, at Origin) Server {
	path, before := "servers."+e.name, len(p.found)
	t := p.readTexts(e, path, "url", "fingerprint", "ca", "tokenFile", "clientCert", "clientKey")
	s := Server{Origin: at, URL: t["url"], Fingerprint: t["fingerprint"], CA: t["ca"], TokenFile: t["tokenFile"], ClientCert: t["clientCert"], ClientKey: t["clientKey"]}
	if len(p.found) > before {
		return s // a second mistake may follow from the first
	}
	if err := CheckServerURL(s.URL); err != nil {
		p.addProblem(e.key, path+".url", fault.HintOf(err), "%v", err)
	}
	if (s.ClientCert == "") != (s.ClientKey == "") {
		p.addProblem(e.key, path, "set both, or none", "clientCert and clientKey require each other")
	}
	return s
}

// CheckServerURL returns fault.Invalid unless a text is the URL of a server. The error does not contain
// the text, which may contain a password.
func CheckServerURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		err = errors.New("the value is not the URL of a server")
	case u.User != nil:
		err = errors.New("the URL of the server contains a user")
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		err = errors.New("the URL of the server has more than host and port")
	default:
		return nil
	}
	return fault.New(fault.Invalid, "%w", err).WithHint("write https://HOST:8470")
}

// readDefault reads the default of a flag.
func (p *parser) readDefault(e entry, at Origin, flags []string) Default {
	path, d := "defaults."+e.name, Default{Origin: at}
	if why := refusedDefaults[e.name]; why != "" {
		p.addProblem(e.key, path, why, "--%s has no default in a file", e.name)
	} else if !slices.Contains(flags, e.name) {
		remedy := "list the flags of a command with decamp help COMMAND"
		if near := suggest.Words(e.name, flags); len(near) > 0 {
			remedy = "did you mean " + strings.Join(near, ", ") + "?"
		}
		p.addProblem(e.key, path, remedy, "no command has a flag --%s", e.name)
	}
	values := []*yaml.Node{e.value}
	if e.value.Kind == yaml.SequenceNode {
		values = e.value.Content
	}
	for _, v := range values {
		if v.Kind != yaml.ScalarNode || v.ShortTag() == "!!null" {
			p.addProblem(v, path, "", "want one value, or a list of values")
			return d
		}
		d.Values = append(d.Values, v.Value)
	}
	if len(d.Values) == 0 {
		p.addProblem(e.value, path, "add a value, or remove the key", "the list is empty")
	}
	return d
}
