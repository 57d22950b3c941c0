// Package childenv makes the environment of programs that decamp starts. The environment of decamp may
// hold secrets and lead to others, such as PGPASSWORD and CREDENTIALS_DIRECTORY: a program gets only the
// variables that are listed for it.
package childenv

import (
	"slices"
	"strings"
)

// Common are the variables that every program receives.
var Common = []string{"PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR"}

// Of returns the variables of environ that are in Common or in more. A name that ends in * selects all
// names with that prefix. The result is never nil.
func Of(environ []string, more ...string) []string {
	listed := slices.Concat(Common, more)
	out := []string{} // not nil, which is the whole environment for os/exec
	for _, each := range environ {
		name, _, _ := strings.Cut(each, "=")
		if slices.ContainsFunc(listed, func(l string) bool { return isListed(l, name) }) {
			out = append(out, each)
		}
	}
	return out
}

// isListed reports whether listed is name, or a prefix of it followed by *.
func isListed(listed, name string) bool {
	prefix, isPrefix := strings.CutSuffix(listed, "*")
	return name == listed || isPrefix && strings.HasPrefix(name, prefix)
}
