package main

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/dir"
)

// Entries of a plan may share a line: a plan may be JSON.
func TestEntriesOnOneLine(t *testing.T) {
	c := newClinic(t, lab.Config{VMs: []lab.VM{small("web01"), small("web02")}})
	text := fmt.Sprintf("version: 1\nname: p\nsource: {url: %q, fingerprint: %q}\ndefaults: {to: [%q]}\nvms: [{vm: web01, format: qcow2}, {vm: gone1}, {vm: web02, format: raw}, {vm: gone2}]\n",
		c.url(), c.lab.Fingerprint(), "dir:"+c.to)
	if code := c.run(t.Context(), []string{"plan", "run", writeFile(t, "plan.yaml", text), "--state", c.assembler.State}); code == 0 {
		t.Errorf("VMs are missing: %s", c.out)
	}
	for name, want := range map[string]targets.Format{"web01": targets.QCOW2, "web02": targets.Raw} {
		r, err := dir.ReadRecord(filepath.Join(c.to, name))
		if err != nil || r.Images[0].Format != want {
			t.Errorf("%s is %+v, %v", name, r.Images, err)
		}
	}
	c.out.Reset()
	_ = c.run(t.Context(), []string{"status", "p", "--state", c.assembler.State})
	mustContain(t, c.out.String(), "gone1", "gone2")
}
