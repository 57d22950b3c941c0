package childenv

import (
	"slices"
	"testing"
)

func TestOnlyListedVariablesArePassedOn(t *testing.T) {
	environ := []string{"PATH=/bin", "PGPASSWORD=a", "CREDENTIALS_DIRECTORY=/c", "LC_ALL=C", "LC_TIME=C", "PATHS=/x", "HOME=", "=x", "SSH_AUTH_SOCK=/s", "X=PATH=1"}
	for _, c := range []struct{ more, want []string }{
		{nil, []string{"PATH=/bin", "LC_ALL=C", "HOME="}},
		{[]string{"LC_*", "SSH_AUTH_SOCK"}, []string{"PATH=/bin", "LC_ALL=C", "LC_TIME=C", "HOME=", "SSH_AUTH_SOCK=/s"}},
	} {
		if got := Of(environ, c.more...); !slices.Equal(got, c.want) {
			t.Errorf("with %q: %q, want %q", c.more, got, c.want)
		}
	}
	if got := Of([]string{"PGPASSWORD=a"}); got == nil || len(got) != 0 {
		t.Errorf("no listed variable: got %#v, want an empty slice, because nil means the whole environment", got)
	}
}
