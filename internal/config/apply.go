package config

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/suggest"
)

// refusedDefaults are flags that need a decision for each command, with the remedy.
var refusedDefaults = map[string]string{
	"fingerprint":        "set fingerprint of a source in sources",
	"server-fingerprint": "set fingerprint of a server in servers",
	"ssh-host-key":       "write the flag on the command line",
	"allow-hooks":        "write the flag on the command line",
	"discard":            "write the flag on the command line",
	"force":              "write the flag on the command line",
	"forget":             "write the flag on the command line",
	"insecure-database":  "write the flag on the command line",
	"nfc-plain":          "write the flag on the command line",
	"no-root-squash":     "write the flag on the command line",
	"withdraw":           "write the flag on the command line",
}

// FlagVariables are the environment variables that replace flags, by the name of the flag.
var FlagVariables = map[string]string{
	"access":        "DECAMP_ACCESS",
	"db":            "DECAMP_DB",
	"password-file": "DECAMP_PASSWORD_FILE",
	"server":        "DECAMP_SERVER",
	"token-file":    "DECAMP_TOKEN_FILE",
}

// excluding are flags of which the command uses one: a default of the other one does not apply.
var excluding = map[string]string{"server": "db", "db": "server"}

// Applier applies settings to the flags and arguments of one command.
type Applier struct {
	Settings *Settings
	Env      func(string) string // returns an environment variable
	Flags    *pflag.FlagSet      // parsed flags of the command
}

// isSet reports whether the command line or the environment sets a flag.
func (a Applier) isSet(name string) bool {
	v := FlagVariables[name]
	return a.Flags.Changed(name) || v != "" && a.Flags.Lookup(name) != nil && a.Env(v) != ""
}

// Apply sets the flags that neither the command line nor the environment sets to their defaults, and
// replaces the names of sources, targets and servers. use is the usage line of the command, whose words URL
// are sources. Apply changes args. A flag that Apply sets does not count as changed.
func (a Applier) Apply(use string, args []string) error {
	for _, name := range slices.Sorted(maps.Keys(a.Settings.Defaults)) {
		if a.isSet(name) || a.isSet(excluding[name]) {
			continue
		}
		if err := a.setDefault(name, a.Settings.Defaults[name]); err != nil {
			return err
		}
	}
	if err := a.nameServer(); err != nil {
		return err
	}
	if err := a.nameTargets(); err != nil {
		return err
	}
	return a.nameSources(use, args)
}

// setDefault sets a flag to its default, if the command has the flag.
func (a Applier) setDefault(name string, d Default) error {
	f := a.Flags.Lookup(name)
	if f == nil {
		return nil
	}
	if _, is := f.Value.(pflag.SliceValue); !is && len(d.Values) > 1 && f.Value.Type() != "stringArray" {
		return fault.New(fault.Invalid, "%s: defaults.%s: --%s accepts one value, not a list", d.Origin, name, name)
	}
	for _, v := range d.Values {
		if err := f.Value.Set(v); err != nil {
			return fault.New(fault.Invalid, "%s: defaults.%s: %q: %w", d.Origin, name, v, err).WithHint("correct the value; decamp help COMMAND lists the flags of a command")
		}
	}
	return nil
}

// setUnlessSet sets a flag to the value of a source or server, unless the command line or the environment
// sets it. It ignores an empty value, and a flag that the command does not have.
func (a Applier) setUnlessSet(name, value string) error {
	f := a.Flags.Lookup(name)
	if f == nil || value == "" || a.isSet(name) {
		return nil
	}
	return f.Value.Set(value)
}

// nameServer replaces the name of a server in --server by its URL, and sets the flags of its identity and
// login.
func (a Applier) nameServer() error {
	f := a.Flags.Lookup("server")
	if f == nil {
		return nil
	}
	name := f.Value.String()
	if !a.Flags.Changed("server") {
		name = cmp.Or(a.Env(FlagVariables["server"]), name)
	}
	if !planfile.IsName(name) {
		return nil
	}
	s, known := a.Settings.Servers[name]
	if !known {
		return unknownName("server", name, a.Settings.Servers, "write --server https://HOST:8470, or add it with decamp server add "+name+" URL")
	}
	if err := f.Value.Set(s.URL); err != nil {
		return err
	}
	for flag, value := range map[string]string{
		"server-fingerprint": s.Fingerprint, "server-ca": s.CA, "token-file": s.TokenFile, "client-cert": s.ClientCert, "client-key": s.ClientKey,
	} {
		if flag == "server-fingerprint" && a.isSet("server-ca") || flag == "server-ca" && a.isSet("server-fingerprint") {
			continue // the command line has another identity
		}
		if err := a.setUnlessSet(flag, value); err != nil {
			return err
		}
	}
	return nil
}

// nameTargets replaces the names of targets in --to.
func (a Applier) nameTargets() error {
	f := a.Flags.Lookup("to")
	if f == nil {
		return nil
	}
	list, is := f.Value.(pflag.SliceValue)
	if !is {
		return nil
	}
	values := list.GetSlice()
	for i, name := range values {
		if !planfile.IsName(name) {
			continue
		}
		t, known := a.Settings.Targets[name]
		if !known {
			return unknownName("target", name, a.Settings.Targets, "write a target such as dir:/FOLDER, or add "+name+" to targets in the config file")
		}
		values[i] = t.To
	}
	return list.Replace(values)
}

// nameSources replaces the names of sources in the arguments and in a flag --source with a URL.
func (a Applier) nameSources(use string, args []string) error {
	words := strings.Fields(use)
	for i, word := range words[min(1, len(words)):] {
		if i >= len(args) || strings.Trim(word, "[]") != "URL" {
			continue
		}
		var err error
		if args[i], err = a.nameSource(args[i]); err != nil {
			return err
		}
	}
	f := a.Flags.Lookup("source")
	if f == nil {
		return nil
	}
	if kind, _ := pflag.UnquoteUsage(f); kind != "URL" {
		return nil
	}
	u, err := a.nameSource(f.Value.String())
	if err != nil {
		return err
	}
	return f.Value.Set(u)
}

// nameSource returns the URL of a named source, and sets the flags of its identity and login. It returns
// a text that is not a name unchanged.
func (a Applier) nameSource(name string) (string, error) {
	if !planfile.IsName(name) {
		return name, nil
	}
	s, known := a.Settings.Sources[name]
	if !known {
		return "", unknownName("source", name, a.Settings.Sources, "write esxi://root@HOST or vcenter://USER@HOST, or add "+name+" to sources in the config file")
	}
	if err := a.setUnlessSet("fingerprint", s.Fingerprint); err != nil {
		return "", err
	}
	return s.URL, a.setUnlessSet("password-file", s.PasswordFile)
}

// unknownName is the error for a name that no config file has.
func unknownName[T any](kind, name string, known map[string]T, remedy string) error {
	err := fault.New(fault.Invalid, "the config files have no %s %q", kind, name)
	if near := suggest.Words(name, slices.Sorted(maps.Keys(known))); len(near) > 0 {
		return err.WithHint("did you mean %s? Otherwise %s", strings.Join(near, ", "), remedy)
	}
	return err.WithHint("%s", remedy)
}
