package export

import (
	"testing"

	"github.com/decamp/decamp/internal/childenv/childenvtest"
)

func TestExportfsGetsListedVariablesOnly(t *testing.T) {
	check := childenvtest.Replace(t, "exportfs")
	if _, err := runExportfs(t.Context()); err != nil {
		t.Fatal(err)
	}
	check()
}
