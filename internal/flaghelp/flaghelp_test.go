package flaghelp

import (
	"testing"

	"github.com/spf13/pflag"
)

func TestUsages(t *testing.T) {
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.String("to", "", "`TARGET` of the copy")
	f.Bool("json", false, "print JSON")
	f.Bool("color", true, "print colors")
	want := "      --to TARGET   TARGET of the copy\n      --json        print JSON\n      --color       print colors (default true)\n"
	if got := Usages(f, 100); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
