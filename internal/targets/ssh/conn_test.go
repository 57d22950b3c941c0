package ssh

import (
	"io"
	"testing"

	"github.com/decamp/decamp/internal/childenv/childenvtest"
)

func TestSSHGetsListedVariablesOnly(t *testing.T) {
	check := childenvtest.Replace(t, "ssh", "SSH_AUTH_SOCK", "KRB5CCNAME", "TERM", "LC_TIME")
	c, err := Login{Host: "kvm1"}.Start("true")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.Copy(io.Discard, c.Conn); err != nil { // until the program ends
		t.Fatal(err)
	}
	check()
}
