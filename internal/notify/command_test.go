package notify

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/childenv/childenvtest"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/planfile"
)

func TestCommandsGetTheEventOnStandardInput(t *testing.T) {
	out := t.TempDir()
	program := writeProgram(t, "#!/bin/sh\ncat > \"$1/event\"\nenv > \"$1/env\"\necho \"$#\" > \"$1/count\"\n")
	for _, name := range childenvtest.Secrets {
		t.Setenv(name, "s3cr3t")
	}
	t.Setenv("CREDENTIALS_DIRECTORY", t.TempDir())
	e := Sample(planfile.CutoverDue)
	must(t, loadReceivers(t, fmt.Sprintf("version: 1\nreceivers: {page: {command: {run: [%q, %q]}}}", program, out)).Test(t.Context(), "page", e))
	text, err := os.ReadFile(filepath.Join(out, "event"))
	must(t, err)
	var got Event
	must(t, json.Unmarshal(text, &got))
	if got.ID != e.ID || got.VM != "sample-vm" || !strings.Contains(got.Text, "decamp cutover sample-plan/vm-42") {
		t.Errorf("received %+v", got)
	}
	env, err := os.ReadFile(filepath.Join(out, "env"))
	must(t, err)
	if strings.Contains(string(env), "s3cr3t") || strings.Contains(string(env), "CREDENTIALS_DIRECTORY") {
		t.Errorf("environment %s", env)
	}
	if n, err := os.ReadFile(filepath.Join(out, "count")); err != nil || string(n) != "1\n" {
		t.Errorf("arguments %q, %v", n, err)
	}
}

func TestFailuresOfCommands(t *testing.T) {
	for name, c := range map[string]struct{ script, want string }{
		"exit code": {"echo no pager >&2; exit 3", "exit status 3: no pager"},
		"time":      {"sleep 60", "exceeded its time limit of 100ms"},
		"output":    {"head -c 100000 /dev/zero | tr '\\0' x; exit 1", "exit status 1: xxx"},
	} {
		program := writeProgram(t, "#!/bin/sh\n"+c.script+"\n")
		config := fmt.Sprintf("version: 1\nreceivers: {page: {command: {run: [%q]", program)
		if name == "time" {
			config += ", timeout: 100ms"
		}
		err := loadReceivers(t, config+"}}}").Test(t.Context(), "page", Sample(planfile.PlanDone))
		if err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 2*maxOutput {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

func TestCommandsRequirePermission(t *testing.T) {
	_, err := Load(writeFile(t, "notify.yaml", "version: 1\nreceivers: {page: {command: {run: [/bin/true]}}}", 0o644), Options{Log: slog.New(slog.DiscardHandler)})
	if !fault.Is(err, fault.Denied) || !strings.Contains(fault.HintOf(err), "--allow-notify-commands") {
		t.Errorf("Load: got %v, want Denied with a hint on --allow-notify-commands", err)
	}
}
