// Package flaghelp formats flags for the help of a command, and has values of flags.
package flaghelp

import (
	"errors"
	"strings"

	"github.com/spf13/pflag"

	"github.com/decamp/decamp/internal/units"
)

// Rate is a rate in bytes per second, as a pflag.Value.
type Rate int64

// String returns "": the help shows no default.
func (r *Rate) String() string { return "" }

// Type returns the name of the value in the help.
func (r *Rate) Type() string { return "RATE" }

// Set sets the rate to one in a format of units.ParseRate.
func (r *Rate) Set(s string) error {
	n, err := units.ParseRate(s)
	*r = Rate(n)
	return err
}

// Size is a size in bytes as a pflag.Value.
type Size int64

// String returns the size in the largest unit that divides it.
func (s *Size) String() string {
	if *s == 0 {
		return ""
	}
	return units.FormatSize(int64(*s))
}

// Type returns the name of the value in the help.
func (s *Size) Type() string { return "SIZE" }

// Set parses what units.ParseSize accepts.
func (s *Size) Set(text string) error {
	n, err := units.ParseSize(text)
	*s = Size(n)
	return err
}

// Tmpfs is tmpfs:SIZE as a pflag.Value, in bytes. Zero is not set.
type Tmpfs int64

// String returns the value as written.
func (t *Tmpfs) String() string {
	if *t == 0 {
		return ""
	}
	return "tmpfs:" + (*Size)(t).String()
}

// Type returns the name of the value in the help.
func (t *Tmpfs) Type() string { return "tmpfs:SIZE" }

// Set parses tmpfs:SIZE with a size above 0.
func (t *Tmpfs) Set(s string) error {
	digits, ok := strings.CutPrefix(s, "tmpfs:")
	n, err := units.ParseSize(digits)
	switch {
	case !ok:
		return errors.New("want tmpfs:SIZE, such as tmpfs:16G")
	case err == nil && n == 0:
		return errors.New("want a size above 0, such as tmpfs:16G")
	}
	*t = Tmpfs(n)
	return err
}

// Usages returns the usages of the flags in the order of their declaration, wrapped at width
// columns. A flag without an argument is shown as --json, not as --json[=true|false].
func Usages(f *pflag.FlagSet, width int) string {
	f.SortFlags = false
	shown := pflag.NewFlagSet("", pflag.ContinueOnError)
	shown.SortFlags = false
	f.VisitAll(func(flag *pflag.Flag) {
		c := *flag
		if c.Value.Type() == "bool" {
			c.Value = plainValue{c.Value}
		}
		shown.AddFlag(&c)
	})
	return shown.FlagUsagesWrapped(width)
}

// plainValue hides from pflag that a value is a bool.
type plainValue struct{ pflag.Value }
