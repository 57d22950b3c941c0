package config

import (
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/decamp/decamp/internal/fault"
)

// fleetFlags are the flags that select a server or a database, in the order of the help.
var fleetFlags = []string{"server", "token-file", "server-fingerprint", "server-ca", "client-cert", "client-key", "db"}

// FollowUps adds the flags by which the user selected a fleet to commands in messages, so that they work as
// printed. The zero value adds nothing.
type FollowUps struct {
	commands *regexp.Regexp // commands with these flags; nil without flags
	flags    string         // flags of the command line, each after a blank
}

// NewFollowUps returns the FollowUps of a command. f has its parsed flags before defaults are applied.
// commands are the paths of the commands that have a flag --server, such as "plan run".
func NewFollowUps(f *pflag.FlagSet, commands []string) FollowUps {
	var flags strings.Builder
	for _, name := range fleetFlags {
		if f.Lookup("server") != nil && f.Changed(name) {
			flags.WriteString(" --" + name + " " + fault.Quote(f.Lookup(name).Value.String()))
		}
	}
	if flags.Len() == 0 || len(commands) == 0 {
		return FollowUps{}
	}
	var words []string
	for _, c := range commands {
		words = append(words, regexp.QuoteMeta(c))
	}
	slices.SortFunc(words, func(a, b string) int { return len(b) - len(a) }) // plan run before plan
	return FollowUps{regexp.MustCompile(`\bdecamp (?:` + strings.Join(words, "|") + `)(?:\b)`), flags.String()}
}

// Complete returns a message with the flags after each command.
func (u FollowUps) Complete(text string) string {
	if u.commands == nil {
		return text
	}
	return u.commands.ReplaceAllStringFunc(text, func(command string) string { return command + u.flags })
}
