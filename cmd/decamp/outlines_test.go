package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/lab/pve"
)

// planToProxmox is a plan of three VMs that go to one node.
func planToProxmox(t *testing.T) (c *clinic, s *pve.Server, plan string) {
	t.Helper()
	c = newClinic(t, lab.Config{VMs: []lab.VM{small("web01"), small("web02"), small("db01")}})
	s, to := proxmoxNode(t, pve.Config{})
	plan = writeFile(t, "plan.yaml", fmt.Sprintf("version: 1\nname: p\nsource: {url: %q, fingerprint: %q}\nselect: '!poweredOn'\ndefaults: {to: [%q]}\n",
		c.url(), c.lab.Fingerprint(), to+"&staging="+t.TempDir()))
	return c, s, plan
}

// A place is asked each question once, be there as many VMs as there will.
func TestPlanCheckAsksAPlaceOnce(t *testing.T) {
	c, s, plan := planToProxmox(t)
	if code := c.do("plan", "check", plan); code != 0 {
		t.Fatalf("exit code %d: %s%s", code, c.out, c.stderr())
	}
	asked := map[string]int{}
	for _, r := range s.Requests() {
		asked[fmt.Sprint(r.Method, r.Path, r.Form)]++
		if r.Method != "GET" {
			t.Errorf("%s %s changes something", r.Method, r.Path)
		}
	}
	for what, n := range asked {
		if n > 1 {
			t.Errorf("%s was asked %d times", what, n)
		}
	}
	if len(asked) < 6 {
		t.Errorf("only %d questions: %v", len(asked), asked)
	}
	s.Close()
	c.out.Reset()
	if code := c.do("plan", "check", plan); code != 5 {
		t.Errorf("a node that is down: exit code %d", code)
	}
	if n := strings.Count(c.out.String(), "systemctl status pveproxy"); n != 1 {
		t.Errorf("it is told %d times that the node is down:\n%s", n, c.out)
	}
}

func TestPlanCheckDryRun(t *testing.T) {
	c, s, plan := planToProxmox(t)
	s.AddGuest(100, map[string]string{"name": "web02"})
	if code := c.do("plan", "check", plan, "--dry-run"); code != 6 {
		t.Fatalf("exit code %d: %s%s", code, c.out, c.stderr())
	}
	mustContain(t, c.out.String(), "web01 to proxmox:", "  name      web01\n", "  name      db01\n", "  disk      Hard disk 1 on pvscsi scsi0", "network vmbr0 (was VM Network)", "web02: guest 100 on pve1 already has the name web02")
	c.out.Reset()
	if code := c.do("plan", "check", plan, "--dry-run", "--json"); code != 6 {
		t.Errorf("exit code %d", code)
	}
	var told struct {
		Outlines []struct {
			VM           string
			Destinations []struct {
				Outline *struct{ Name string }
				Failure *struct{ Kind string }
			}
		}
	}
	if err := json.NewDecoder(c.out).Decode(&told); err != nil {
		t.Fatal(err)
	}
	if len(told.Outlines) != 3 {
		t.Fatalf("%d VMs: %+v", len(told.Outlines), told)
	}
	for _, vm := range told.Outlines {
		d := vm.Destinations
		if len(d) != 1 || d[0].Outline == nil || d[0].Outline.Name != vm.VM || (d[0].Failure != nil) != (vm.VM == "web02") {
			t.Errorf("%s: %+v", vm.VM, d)
		}
	}
	if len(s.VMIDs()) != 1 {
		t.Errorf("guests were made: %v", s.VMIDs())
	}
	c.out.Reset()
	_ = c.do("plan", "check", plan, "--json")
	if strings.Contains(c.out.String(), "outlines") {
		t.Errorf("nobody asked what would be defined: %s", c.out)
	}
}
