// Package flaghelp formats flags for the help of a command, and has the flag values that decamp and decamp-lab share.
package flaghelp

import (
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
