package firewall

import (
	"testing"

	"github.com/decamp/decamp/internal/childenv/childenvtest"
)

func TestFirewallToolsGetListedVariablesOnly(t *testing.T) {
	check := childenvtest.Replace(t, "nft")
	if _, err := Run(t.Context(), "nft"); err != nil {
		t.Fatal(err)
	}
	check()
}
