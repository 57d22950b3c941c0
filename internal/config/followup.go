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

// stateFlag is the flag that selects the state directory.
const stateFlag = "state"

// FollowUps adds the flags by which the user selected a fleet and a state directory to commands in messages, so
// that they work as printed. The zero value adds nothing.
type FollowUps struct {
	commands *regexp.Regexp  // commands that are completed; nil without flags
	shared   map[string]bool // reports for each command whether it has the flags of a fleet
	fleet    string          // flags of the command line that select the fleet, each after a blank
	state    string          // flag of the command line that selects the state directory, after a blank
}

// NewFollowUps returns the FollowUps of a command. f has its parsed flags before defaults are applied. commands are
// the paths of all commands that use the state directory, such as "plan run". A value is true if the command has a
// flag --server.
func NewFollowUps(f *pflag.FlagSet, commands map[string]bool) FollowUps {
	flagsOf := func(names ...string) string {
		var flags strings.Builder
		for _, name := range names {
			if f.Changed(name) {
				flags.WriteString(" --" + name + " " + fault.Quote(f.Lookup(name).Value.String()))
			}
		}
		return flags.String()
	}
	u := FollowUps{shared: commands, state: flagsOf(stateFlag)}
	if f.Lookup("server") != nil {
		u.fleet = flagsOf(fleetFlags...)
	}
	if u.fleet+u.state == "" || len(commands) == 0 {
		return FollowUps{}
	}
	var words []string
	for c := range commands {
		words = append(words, regexp.QuoteMeta(c))
	}
	slices.SortFunc(words, func(a, b string) int { return len(b) - len(a) }) // plan run before plan
	u.commands = regexp.MustCompile(`\bdecamp (` + strings.Join(words, "|") + `)(?: --help)?\b`)
	return u
}

// Complete returns a message with the flags after each command. A message that repeats the command as it was typed
// has --state already. For a user of a server, commands without a flag --server are those of its administrator.
func (u FollowUps) Complete(text string) string {
	if u.commands == nil {
		return text
	}
	state := u.state
	if strings.Contains(text, " --"+stateFlag) {
		state = ""
	}
	return u.commands.ReplaceAllStringFunc(text, func(command string) string {
		switch {
		case strings.HasSuffix(command, " --help"):
		case u.shared[strings.TrimPrefix(command, "decamp ")]:
			return command + u.fleet + state
		case u.fleet == "":
			return command + state
		}
		return command
	})
}
