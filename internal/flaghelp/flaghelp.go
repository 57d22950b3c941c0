// Package flaghelp formats flags for the help of a command.
package flaghelp

import "github.com/spf13/pflag"

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
