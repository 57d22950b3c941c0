package config

import (
	"testing"

	"github.com/spf13/pflag"
)

// Complete adds the flags that the user typed to the commands in a message, once, if the commands accept them.
func TestSuggestedCommandsKeepFlags(t *testing.T) {
	commands := map[string]bool{"plan run": true, "status": true, "runs": false, "token add": false}
	const state, server = "--state=/a b", "--server=prod"
	for _, tt := range []struct {
		args       []string
		text, want string
	}{
		{nil, "run decamp status", "run decamp status"},
		{[]string{state}, "decamp runs lists them; decamp plan run FILE", "decamp runs --state '/a b' lists them; decamp plan run --state '/a b' FILE"},
		{[]string{server}, "decamp plan run FILE; decamp token add NAME", "decamp plan run --server prod FILE; decamp token add NAME"},
		{[]string{state, server}, "decamp status w, decamp runs", "decamp status --server prod --state '/a b' w, decamp runs"},
		{[]string{state}, "run: decamp status --state '/a b' --all", "run: decamp status --state '/a b' --all"}, // the flag is already in the text
		{[]string{state}, "run: decamp plan run --help", "run: decamp plan run --help"},
		{[]string{state}, "decamp plan FILE, decamp statuses", "decamp plan FILE, decamp statuses"},
	} {
		f := pflag.NewFlagSet("x", pflag.ContinueOnError)
		f.String("state", "", "")
		f.String("server", "", "")
		if err := f.Parse(tt.args); err != nil {
			t.Fatal(err)
		}
		if got := NewFollowUps(f, commands).Complete(tt.text); got != tt.want {
			t.Errorf("%q, %q: got %q, want %q", tt.args, tt.text, got, tt.want)
		}
	}
	f := pflag.NewFlagSet("x", pflag.ContinueOnError) // a command without a server
	f.String("state", "", "")
	if err := f.Parse([]string{"--state=/s"}); err != nil {
		t.Fatal(err)
	}
	if got := NewFollowUps(f, commands).Complete("decamp status"); got != "decamp status --state /s" {
		t.Errorf("got %q", got)
	}
}
