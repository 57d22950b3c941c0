package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/lab/pve"
)

// planToProxmox returns a plan of three VMs with one Proxmox node as the target.
func planToProxmox(t *testing.T) (c *labProgram, s *pve.Server, plan string) {
	t.Helper()
	c = newLabProgram(t, lab.Config{VMs: []lab.VM{smallVM("web01"), smallVM("web02"), smallVM("db01")}})
	s, to := proxmoxNode(t, pve.Config{})
	plan = writeFile(t, "plan.yaml", fmt.Sprintf("version: 1\nname: p\nsource: {url: %q, fingerprint: %q}\nselect: '!poweredOn'\ndefaults: {to: [%q]}\n",
		c.url(), c.lab.Fingerprint(), to+"&staging="+t.TempDir()))
	return c, s, plan
}

// decamp plan check sends each request to a target once for all VMs.
func TestPlanCheckQueriesTargetOnce(t *testing.T) {
	c, s, plan := planToProxmox(t)
	if code := c.runArgs("plan", "check", plan); code != 0 {
		t.Fatalf("exit code %d: %s%s", code, c.out, c.stderr())
	}
	requests := map[string]int{}
	for _, r := range s.Requests() {
		requests[fmt.Sprint(r.Method, r.Path, r.Form)]++
		if r.Method != "GET" {
			t.Errorf("%s %s changes something", r.Method, r.Path)
		}
	}
	for request, n := range requests {
		if n > 1 {
			t.Errorf("request %s was sent %d times", request, n)
		}
	}
	if len(requests) < 6 {
		t.Errorf("got %d requests, want at least 6: %v", len(requests), requests)
	}
	s.Close()
	c.out.Reset()
	if code := c.runArgs("plan", "check", plan); code != 5 {
		t.Errorf("a node that is down: exit code %d, want 5", code)
	}
	if n := strings.Count(c.out.String(), "systemctl status pveproxy"); n != 1 {
		t.Errorf("the output reports %d times that the node is down, want once:\n%s", n, c.out)
	}
}

func TestPlanCheckDryRun(t *testing.T) {
	c, s, plan := planToProxmox(t)
	s.AddGuest(100, map[string]string{"name": "web02"})
	if code := c.runArgs("plan", "check", plan, "--dry-run"); code != 6 {
		t.Fatalf("exit code %d: %s%s", code, c.out, c.stderr())
	}
	mustContain(t, c.out.String(), "web01 to proxmox:", "  name      web01\n", "  name      db01\n", "  disk      Hard disk 1 on pvscsi scsi0", "network vmbr0 (was VM Network)", "web02: guest 100 on pve1 already has the name web02")
	c.out.Reset()
	if code := c.runArgs("plan", "check", plan, "--dry-run", "--json"); code != 6 {
		t.Errorf("exit code %d", code)
	}
	var got struct {
		Outlines []struct {
			VM           string
			Destinations []struct {
				Outline *struct{ Name string }
				Failure *struct{ Kind string }
			}
		}
	}
	if err := json.NewDecoder(c.out).Decode(&got); err != nil {
		t.Fatal(err)
	}
	if len(got.Outlines) != 3 {
		t.Fatalf("got %d VMs, want 3: %+v", len(got.Outlines), got)
	}
	for _, vm := range got.Outlines {
		d := vm.Destinations
		if len(d) != 1 || d[0].Outline == nil || d[0].Outline.Name != vm.VM || (d[0].Failure != nil) != (vm.VM == "web02") {
			t.Errorf("%s: got destinations %+v", vm.VM, d)
		}
	}
	if len(s.VMIDs()) != 1 {
		t.Errorf("the check created guests: %v", s.VMIDs())
	}
	c.out.Reset()
	_ = c.runArgs("plan", "check", plan, "--json")
	if strings.Contains(c.out.String(), "outlines") {
		t.Errorf("got outlines without --dry-run: %s", c.out)
	}
}
