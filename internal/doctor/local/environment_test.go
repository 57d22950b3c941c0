package local

import (
	"testing"

	"github.com/decamp/decamp/internal/childenv/childenvtest"
)

func TestQEMUVersionGetsListedVariablesOnly(t *testing.T) {
	check := childenvtest.Replace(t, "qemu-system-x86_64")
	if _, err := qemuVersionOutput(t.Context()); err != nil {
		t.Fatal(err)
	}
	check()
}
