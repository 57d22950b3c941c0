package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/lab/executable"
)

// decamp plan run sends the notifications of failed VMs and of the end of the plan before it ends.
func TestPlanRunSendsNotifications(t *testing.T) {
	c := newLabProgram(t, lab.Config{VMs: []lab.VM{smallVM("web01")}})
	folder := t.TempDir()
	page := filepath.Join(folder, "page")
	executable.Write(t, page, "#!/bin/sh\ncat >> "+folder+"/events\necho >> "+folder+"/events\n")
	receivers := fmt.Sprintf("version: 1\nreceivers: {page: {command: {run: [%q]}}}\n", page)
	if err := os.WriteFile(filepath.Join(c.assembler.State, "notify.yaml"), []byte(receivers), 0o644); err != nil {
		t.Fatal(err)
	}
	plan := writeFile(t, "plan.yaml", fmt.Sprintf("version: 1\nname: p\nsource: {url: %q, fingerprint: %q}\ndefaults: {to: [%q]}\nvms: [{vm: web01}, {vm: gone1}]\n", c.url(), c.lab.Fingerprint(), "dir:"+c.to))
	if code := c.run(t.Context(), []string{"plan", "run", plan, "--state", c.assembler.State}); code != 4 {
		t.Errorf("plan run without --allow-notify-commands: exit code %d, want 4: %s", code, c.stderr())
	}
	mustContain(t, c.stderr(), "--allow-notify-commands")
	if code := c.run(t.Context(), []string{"plan", "run", plan, "--state", c.assembler.State, "--allow-notify-commands"}); code == 0 {
		t.Errorf("a VM of the plan is missing, but exit code 0: %s", c.out)
	}
	events, err := os.ReadFile(filepath.Join(folder, "events"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"kind":"vm-failed"`, `"vm":"gone1"`, `"kind":"plan-failed"`, `"vms":{"done":1,"failed":1}`} {
		if strings.Count(string(events), want) != 1 {
			t.Errorf("want %s once in the events: %s", want, events)
		}
	}
}

func TestNotifyTestSendsOrPrintsASample(t *testing.T) {
	c := newLabProgram(t, lab.Config{VMs: []lab.VM{smallVM("web01")}})
	received := filepath.Join(t.TempDir(), "event")
	page := filepath.Join(t.TempDir(), "page")
	executable.Write(t, page, "#!/bin/sh\ncat > "+received+"\n")
	file := writeFile(t, "notify.yaml", fmt.Sprintf("version: 1\nreceivers:\n  page: {command: {run: [%q]}, subject: '{{.Kind}} of {{.Plan}}'}\n  bad: {command: {run: [/bin/false]}}\n", page))
	for _, each := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"page", "--print"}, 0, "Subject: vm-failed of sample-plan"},
		{[]string{"page", "--event", "plan-done"}, 0, "page accepted the sample evt_"},
		{[]string{"page", "--event", "plan-dun"}, 2, "want one of"},
		{[]string{"pag"}, 3, "did you mean page?"},
		{[]string{"bad"}, 5, "correct the receiver"},
	} {
		c.out.Reset()
		code := c.run(t.Context(), append([]string{"notify", "test", "--notify", file, "--allow-notify-commands"}, each.args...))
		if code != each.code {
			t.Errorf("%q: exit code %d, want %d: %s", each.args, code, each.code, c.stderr())
		}
		mustContain(t, c.out.String()+c.stderr(), each.want)
	}
	if text, err := os.ReadFile(received); err != nil || !strings.Contains(string(text), `"subject":"plan-done of sample-plan"`) {
		t.Errorf("the command received %s, %v", text, err)
	}
}
