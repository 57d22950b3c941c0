package mover

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/planfile"
)

func newHookMover(t *testing.T) (*Mover, *planSource) {
	a := &assemble.Assembler{Prompts: assemble.Prompts{Log: slog.New(slog.DiscardHandler)}, Env: func(name string) string {
		return map[string]string{"PATH": os.Getenv("PATH"), "DECAMP_PASSWORD_FILE": "/secret", "TOKEN": "hunter2"}[name]
	}}
	m := New(a)
	m.Hooks = true
	return m, &planSource{name: "wave", folder: t.TempDir()}
}

func shHook(script string, timeout time.Duration) planfile.Hook {
	return planfile.Hook{Command: []planfile.Text{"sh", "-c", planfile.Text(script)}, Timeout: planfile.Duration(timeout)}
}

func TestHookEnvironment(t *testing.T) {
	m, s := newHookMover(t)
	row := fleetdb.VM{Key: fleetdb.Key{Plan: "wave", VM: "vm-7"}, To: []string{"dir:/srv/vm"}, Runs: []string{"web01-1"}}
	vm := &inventory.VM{Ref: "vm-7", Name: "web 01", UUID: "u"}
	err := m.runVMHook(t.Context(), s, shHook("env | sort >env.txt", time.Minute), row, vm, hookPost, fault.New(fault.Full, "no room"))
	if err != nil {
		t.Fatal(err)
	}
	environment, err := os.ReadFile(filepath.Join(s.folder, "env.txt"))
	if err != nil {
		t.Fatalf("the hook did not run in the plan's folder: %v", err)
	}
	for _, want := range []string{"DECAMP_PLAN=wave\n", "DECAMP_VM=web 01\n", "DECAMP_REF=vm-7\n", "DECAMP_WHEN=post\n", "DECAMP_RESULT=full\n", "DECAMP_RUN=web01-1\n", "DECAMP_TO=dir:/srv/vm\n"} {
		if !strings.Contains(string(environment), want) {
			t.Errorf("%q is missing in the environment of the hook", want)
		}
	}
	for _, secret := range []string{"hunter2", "/secret"} {
		if strings.Contains(string(environment), secret) {
			t.Errorf("the environment of the hook contains %s", secret)
		}
	}
}

// Hooks get only the listed variables of the environment of decamp.
func TestHooksGetListedVariablesOnly(t *testing.T) {
	m, s := newHookMover(t)
	m.a.Env = os.Getenv
	for _, name := range []string{"CREDENTIALS_DIRECTORY", "PGPASSWORD", "PGPASSFILE", "PGSERVICEFILE", "DECAMP_DB", "DECAMP_TOKEN_FILE", "DECAMP_PASSWORD_FILE", "NOTIFY_SOCKET", "LD_PRELOAD", "BASH_ENV", "SSH_AUTH_SOCK", "AWS_SECRET_ACCESS_KEY"} {
		t.Setenv(name, "/nowhere")
	}
	row, vm := fleetdb.VM{Key: fleetdb.Key{Plan: "wave", VM: "vm-7"}}, &inventory.VM{Ref: "vm-7", Name: "web01"}
	must(t, m.runVMHook(t.Context(), s, planfile.Hook{Command: []planfile.Text{"sh", "-c", "tr '\\0' '\\n' </proc/$$/environ >env.txt"}, Timeout: planfile.Duration(time.Minute)}, row, vm, hookPre, nil))
	environment, err := os.ReadFile(filepath.Join(s.folder, "env.txt"))
	must(t, err)
	listed := append([]string{"DECAMP_PLAN", "DECAMP_WHEN", "DECAMP_RESULT", "DECAMP_VM", "DECAMP_REF", "DECAMP_UUID", "DECAMP_RUN", "DECAMP_TO"},
		"PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER")
	seen := 0
	for line := range strings.Lines(string(environment)) {
		name, _, _ := strings.Cut(line, "=")
		if seen++; !slices.Contains(listed, name) {
			t.Errorf("the environment of the hook contains %s", name)
		}
	}
	if seen < 8 {
		t.Errorf("got %d variables, want at least 8", seen)
	}
}

func TestFailingHooks(t *testing.T) {
	m, s := newHookMover(t)
	err := m.runHook(t.Context(), s, shHook("echo not today >&2; exit 3", time.Minute), nil)
	if !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "not today") || fault.HintOf(err) == "" {
		t.Errorf("a hook that fails: %v", err)
	}
	began := time.Now()
	err = m.runHook(t.Context(), s, shHook("sleep 600 & sleep 600", 50*time.Millisecond), nil)
	if !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "exceeded its timeout") || time.Since(began) > 5*time.Minute {
		t.Errorf("a hook that does not end: %v after %v", err, time.Since(began))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.runHook(ctx, s, shHook("sleep 600", time.Minute), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a canceled hook: %v", err)
	}
	if err := m.runHook(t.Context(), s, planfile.Hook{}, nil); err != nil {
		t.Errorf("no hook: %v", err)
	}
}
