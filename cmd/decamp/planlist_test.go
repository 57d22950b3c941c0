package main

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/dir"
)

// Several VMs of a plan may be on one line, as in JSON.
func TestPlanAcceptsSeveralVMsOnOneLine(t *testing.T) {
	c := newLabProgram(t, lab.Config{VMs: []lab.VM{smallVM("web01"), smallVM("web02")}})
	text := fmt.Sprintf("version: 1\nname: p\nsource: {url: %q, fingerprint: %q}\ndefaults: {to: [%q]}\nvms: [{vm: web01, format: qcow2}, {vm: gone1}, {vm: web02, format: raw}, {vm: gone2}]\n",
		c.url(), c.lab.Fingerprint(), "dir:"+c.to)
	if code := c.run(t.Context(), []string{"plan", "run", writeFile(t, "plan.yaml", text), "--state", c.assembler.State}); code == 0 {
		t.Errorf("the plan has missing VMs, but exit code 0: %s", c.out)
	}
	for name, want := range map[string]targets.Format{"web01": targets.QCOW2, "web02": targets.Raw} {
		r, err := dir.ReadRecord(filepath.Join(c.to, name))
		if err != nil || r.Images[0].Format != want {
			t.Errorf("%s has images %+v, %v", name, r.Images, err)
		}
	}
	c.out.Reset()
	_ = c.run(t.Context(), []string{"status", "p", "--state", c.assembler.State})
	mustContain(t, c.out.String(), "gone1", "gone2")
}
