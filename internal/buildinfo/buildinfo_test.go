package buildinfo

import (
	"runtime/debug"
	"strings"
	"testing"
)

func TestVersionWithoutLinkerFlag(t *testing.T) {
	module := func(version string) *debug.BuildInfo { return &debug.BuildInfo{Main: debug.Module{Version: version}} }
	for _, c := range []struct {
		build *debug.BuildInfo
		want  string
	}{
		{nil, "devel"},
		{module(""), "devel"},
		{module("(devel)"), "devel"},
		{module("v0.1.0"), "0.1.0"},
		{module("v0.0.0-20261128035800-627aa5ea0b1c+dirty"), "0.0.0-20261128035800-627aa5ea0b1c+dirty"},
	} {
		if got := moduleVersion(c.build); got != c.want {
			t.Errorf("%+v: %q, want %q", c.build, got, c.want)
		}
	}
}

func TestLinkedVersionTakesPrecedence(t *testing.T) {
	before := linked
	defer func() { linked = before }()
	linked = ""
	if v := Current().Version; v == "" {
		t.Error("no version without a linker flag")
	}
	linked = "1.2.3"
	i := Current()
	if i.Version != "1.2.3" || !strings.HasPrefix(i.Go, "go1.") || !strings.Contains(i.Platform, "/") {
		t.Errorf("got %+v", i)
	}
	if got, want := i.Line("decamp"), "decamp 1.2.3 ("+i.Go+", "+i.Platform+")\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
