package mover

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/fleetkey"
	"github.com/decamp/decamp/internal/planfile"
)

const plainPlan = "version: 1\nname: wave\nsource: {url: \"esxi://root@esx1\", credentials: {name: esx1}}\ndefaults: {to: [\"dir:/srv/vm\"]}\nselect: name ~ *\n"

// hookedPlan returns a plan with a hook of the plan, of the defaults or of a VM.
func hookedPlan(where string) string {
	const hooks = `{post: {command: ["/bin/true"]}}`
	switch where {
	case "plan":
		return plainPlan + "hooks: " + hooks + "\n"
	case "defaults":
		return strings.Replace(plainPlan, `/srv/vm"]`, `/srv/vm"], hooks: `+hooks, 1)
	}
	return strings.Replace(plainPlan, "select: name ~ *", "vms:\n  - vm: web1\n    hooks: "+hooks, 1)
}

// newWorker returns the mover of a worker with a fleet key, an empty database and a credential for operators.
func newWorker(t *testing.T) (m *Mover, r *fleetdb.Database, url string) {
	t.Helper()
	dir := t.TempDir()
	keys, err := fleetkey.Ensure(filepath.Join(dir, fleetkey.FileName))
	must(t, err)
	url = "sqlite:" + filepath.Join(dir, "fleet.db")
	r, err = fleetdb.Open(t.Context(), fleetdb.Config{URL: url, Keys: keys})
	must(t, err)
	t.Cleanup(func() { must(t, r.Close()) })
	m = New(&assemble.Assembler{Prompts: assemble.Prompts{Log: slog.New(slog.DiscardHandler)}, Env: os.Getenv, AccessFile: filepath.Join(dir, planfile.AccessFile)})
	access := "version: 1\ncredentials:\n  esx1: {url: \"esxi://root@esx1\", fingerprint: \"" + strings.Repeat("AB", 32) + "\", passwordFile: /etc/decamp/esx1, roles: [operate]}\n"
	must(t, os.WriteFile(m.a.AccessFile, []byte(access), 0o600))
	m.database = r
	return m, r, url
}

// A worker admits a plan with hooks only if an admin submitted it. Hooks of the plan also require --allow-hooks.
func TestWorkersRunHooksOfAdminsOnly(t *testing.T) {
	for _, where := range []string{"plan", "defaults", "vm"} {
		for _, role := range []string{"", "view", "operate", "root", "admin"} {
			for _, allowed := range []bool{false, true} {
				m, r, _ := newWorker(t)
				m.Hooks = allowed
				p, err := r.Plans.Add(t.Context(), fleetdb.Plan{Name: "wave", Text: hookedPlan(where), Role: role})
				must(t, err)
				err = m.Admit(t.Context(), p)
				want := role != "admin" || where == "plan" && !allowed // hooks of VMs are checked when they run
				if want != fault.Is(err, fault.Denied) || want != (err != nil) || want && fault.HintOf(err) == "" {
					t.Errorf("hooks of the %s, role %q, allowed %v: got %v", where, role, allowed, err)
				}
			}
		}
	}
}

// runHook runs no command without --allow-hooks.
func TestHooksNeedAllowHooks(t *testing.T) {
	m, s := newHookMover(t)
	m.Hooks = false
	created := filepath.Join(s.folder, "made")
	err := m.runHook(t.Context(), s, shHook("touch "+created, time.Minute), nil)
	if !fault.Is(err, fault.Denied) || !strings.Contains(fault.HintOf(err), "--allow-hooks") {
		t.Errorf("error %v (remedy %q), want Denied", err, fault.HintOf(err))
	}
	if _, err := os.Stat(created); err == nil {
		t.Error("the hook ran")
	}
	must(t, m.runHook(t.Context(), s, planfile.Hook{}, nil))
}

// A worker refuses a plan without a signature of the fleet key: it neither admits, lists, migrates nor parses it.
func TestForgedPlanIsRefused(t *testing.T) {
	m, r, url := newWorker(t)
	m.Hooks = true
	forger, err := fleetdb.Open(t.Context(), fleetdb.Config{URL: url})
	must(t, err)
	defer forger.Close()
	p, err := forger.Plans.Add(t.Context(), fleetdb.Plan{Name: "wave", Text: hookedPlan("plan"), Role: "admin", By: "ann"})
	must(t, err)
	must(t, forger.VMs.Add(t.Context(), []fleetdb.VM{{Key: fleetdb.Key{Plan: "wave", VM: "vm-1"}, Name: "web1", To: []string{"dir:/etc"}}}))
	row, err := r.VMs.Get(t.Context(), fleetdb.Key{Plan: "wave", VM: "vm-1"})
	must(t, err)
	_, capacities := m.Capacities(t.Context(), p)
	for name, err := range map[string]error{
		"admit": m.Admit(t.Context(), p), "hook": m.Hook(t.Context(), p, hookPre), "limits": capacities,
		"list": m.List(t.Context(), p, nil), "move": m.Move(t.Context(), row, nil), "undo": m.Undo(t.Context(), row),
	} {
		if !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), "no signature") {
			t.Errorf("%s: got %v, want Denied", name, err)
		}
	}
	if len(m.sources) != 0 {
		t.Error("the plan was parsed")
	}

	// A signed plan is admitted, but the forged row of its VM is still refused.
	_, err = r.Plans.Add(t.Context(), fleetdb.Plan{Name: "wave", Text: hookedPlan("plan"), Role: "admin", By: "ann"})
	must(t, err)
	must(t, m.Admit(t.Context(), p))
	for name, err := range map[string]error{"move": m.Move(t.Context(), row, nil), "undo": m.Undo(t.Context(), row)} {
		if !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), "VM web1") {
			t.Errorf("%s of a forged row: got %v, want Denied", name, err)
		}
	}
}

// A worker refuses a signed plan under a name that differs from the name in its text.
func TestWorkerRefusesRenamedPlan(t *testing.T) {
	m, r, _ := newWorker(t)
	p, err := r.Plans.Add(t.Context(), fleetdb.Plan{Name: "other", Text: plainPlan, Role: "admin"})
	must(t, err)
	if err := m.Admit(t.Context(), p); !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), "plan wave") {
		t.Errorf("got %v, want Denied", err)
	}
}

// A worker uses the new text of a plan that was dropped and submitted again under the same name.
func TestWorkerUsesResubmittedPlan(t *testing.T) {
	m, r, _ := newWorker(t)
	p, err := r.Plans.Add(t.Context(), fleetdb.Plan{Name: "wave", Text: plainPlan, Role: "admin"})
	must(t, err)
	first, err := m.sourceOf(t.Context(), p)
	must(t, err)
	if again, err := m.sourceOf(t.Context(), p); err != nil || again != first {
		t.Fatalf("the plan was parsed twice: %v", err)
	}
	must(t, r.Plans.SetState(t.Context(), "wave", fleetdb.PlanEnded, nil))
	must(t, r.Plans.Drop(t.Context(), "wave"))
	text := strings.Replace(plainPlan, "/srv/vm", "/srv/other", 1)
	_, err = r.Plans.Add(t.Context(), fleetdb.Plan{Name: "wave", Text: text, Role: "admin"})
	must(t, err)
	must(t, r.VMs.Add(t.Context(), []fleetdb.VM{{Key: fleetdb.Key{Plan: "wave", VM: "vm-1"}, Name: "web1"}}))
	row, err := r.VMs.Get(t.Context(), fleetdb.Key{Plan: "wave", VM: "vm-1"})
	must(t, err)
	s, err := m.currentSource(t.Context(), "wave", func(p fleetdb.Plan) error { return r.VMs.Verify(p, row) })
	must(t, err)
	if to := s.file.Defaults.To; len(to) != 1 || to[0] != "dir:/srv/other" {
		t.Errorf("got destination %v of the VMs", to)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
