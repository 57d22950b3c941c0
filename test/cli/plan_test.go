package cli

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/lab"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// mixedLab returns a lab with VMs that can be migrated and VMs that cannot.
func mixedLab() lab.Config {
	return lab.Config{VMs: []lab.VM{
		{Name: "web01", Disks: []lab.Disk{{Capacity: 48 << 20, Fill: 40, Seed: 1}}, NICs: []lab.NIC{{}}},
		{Name: "R&D: 100%", Disks: []lab.Disk{{Capacity: 16 << 20, Fill: 10, Seed: 2}, {Capacity: 8 << 20, Seed: 3}}},
		{Name: "db01", PoweredOn: true, ChangeTracking: true, Disks: []lab.Disk{{Capacity: 32 << 20, Fill: 20, Seed: 4}}},
		{Name: "old01", Snapshots: []string{"before update"}, Disks: []lab.Disk{{Capacity: 8 << 20, Seed: 5}}},
	}}
}

// compareGolden compares output with a golden file. It masks the parts that differ between runs.
func (r *rig) compareGolden(name, got string) {
	r.t.Helper()
	for was, is := range map[string]string{r.dir: "DIR", r.lab.Addr(): "HOST:PORT"} {
		got = strings.ReplaceAll(got, was, is)
	}
	got = regexp.MustCompile(`[0-9.]+ [KMGT]iB (free|to )`).ReplaceAllString(got, "N GiB $1") // depends on the file system
	path := filepath.Join("testdata", name)
	if *update {
		must(r.t, os.MkdirAll("testdata", 0o755))
		must(r.t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	must(r.t, err)
	if got != string(want) {
		r.t.Errorf("%s differs (go test ./test/cli -run Plan -update rewrites it); got:\n%s", path, got)
	}
}

func TestPlanCheckAcceptsPlanInit(t *testing.T) {
	t.Parallel()
	r := newRig(t, mixedLab()).withFingerprint()
	made := r.runOnSource("plan", "init", r.url(), "--name", "wave-1", "--to", "dir:"+r.vmsDir()).wantExit(0)
	r.compareGolden("plan-init.txt", made.stdout)
	path := r.writeFile("plan.yaml", made.stdout)
	r.compareGolden("plan-check.txt", r.run("plan", "check", path).wantExit(0).stdout) // the certificate is known by now
	var report struct {
		Plan     string
		VMs      int
		Findings []struct{ Code string }
	}
	r.run("plan", "check", path, "--json").wantExit(0).decodeLast(&report)
	if report.Plan != "wave-1" || report.VMs != 2 || report.Findings == nil || len(report.Findings) > 0 {
		t.Errorf("JSON: %+v", report)
	}
	if entries, err := os.ReadDir(r.vmsDir()); err != nil || len(entries) > 0 {
		t.Errorf("the check created %v, %v", entries, err)
	}
	if n := r.lab.Stats().SOAP["CreateSnapshot_Task"] + r.lab.Stats().SOAP["PowerOffVM_Task"] + r.lab.Stats().SOAP["ShutdownGuest"]; n > 0 {
		t.Errorf("got %d calls that change VMs, want 0", n)
	}
}

func TestPlanOfRunningVMs(t *testing.T) {
	t.Parallel()
	r := newRig(t, mixedLab()).withFingerprint()
	made := r.runOnSource("plan", "init", r.url(), "--warm", "--select", "name ~ *01 && snapshots=0", "--to", "dir:"+r.vmsDir()).wantExit(0)
	made.wantOutput("mode: warm", "- vm: db01", "- vm: web01", "Selected by: name ~ *01")
	path := r.writeFile("plan.yaml", made.stdout)
	r.run("plan", "check", path).wantExit(0).wantOutput("2 VMs with 2 disks")
	path = r.writeFile("plan.yaml", strings.Replace(made.stdout, "  transport: nfc", "  transport: https", 1))
	r.run("plan", "check", path).wantExit(7).wantOutput("warm-https!: db01: https cannot read this running VM", "set transport: nfc")
}

// decamp plan check reports all problems, in the order of the file. The exit code is that for problems of several kinds.
func TestPlanCheckReportsAllProblems(t *testing.T) {
	t.Parallel()
	r := newRig(t, mixedLab()).withFingerprint()
	r.migrate("web01").wantExit(0)
	r.migrate("R&D: 100%").wantExit(0)
	must(t, os.Rename(filepath.Join(r.vmsDir(), "web01"), filepath.Join(r.vmsDir(), "db01"))) // a db01 that decamp did not create
	path := r.writeFile("plan.yaml", `version: 1
name: all-wrong
source: {url: "`+r.url()+`", credentials: {file: gone}}
defaults: {to: [dir:`+r.vmsDir()+`], sourceHash: true}
maps: {datastores: {no such: dir:/x}}
hooks: {pre: {command: [/nonexistent/hook]}}
vms:
  - vm: web02
  - vm: db01
  - vm: old01
    to: [dir:/nonexistent]
  - vm: web01
  - vm: WEB01
  - vm: "R&D: 100%"
`)
	r.run("plan", "check", path).wantExit(6).wantOutput("credentials!", "gone: no such file", "hook!")
	text, err := os.ReadFile(path)
	must(t, err)
	path = r.writeFile("plan.yaml", strings.Replace(string(text), ", credentials: {file: gone}", "", 1))
	r.compareGolden("plan-check-all.txt", r.run("plan", "check", path).wantExit(6).stdout)
}

func TestInvalidPlan(t *testing.T) {
	t.Parallel()
	r := newRig(t, smallLab())
	path := r.writeFile("plan.yaml", "version: 1\nname: p\nsource: {url: "+r.url()+", pasword: "+secret+"}\nvms: [{vm: a, transprot: nfc}]\n")
	refused := r.run("plan", "check", path).wantExit(2).wantOutput(`plan.yaml:3:`, `unknown key "pasword"`, `plan.yaml:4:15: file!: vms[0]: unknown key "transprot"`, "did you mean transport?", "the plan has 2 problems")
	if strings.Contains(refused.stdout+refused.stderr, secret) {
		t.Error("the output contains the secret")
	}
	if n := r.lab.Stats().SOAP["Login"]; n > 0 {
		t.Errorf("got %d logins for an invalid plan, want 0", n)
	}
	r.run("plan", "check", filepath.Join(r.dir, "none.yaml")).wantExit(3).wantOutput("Remedy: create one: decamp plan init")
	var e struct{ Error struct{ Kind string } }
	if r.run("plan", "check", path, "--json").wantExit(2).decodeLast(&e); e.Error.Kind != "invalid" {
		t.Errorf("JSON: %+v", e)
	}
}

func TestPlanCheckOfUnreachableSource(t *testing.T) {
	t.Parallel()
	r := newRig(t, smallLab())
	must(t, r.lab.Stop())
	path := r.writeFile("plan.yaml", "version: 1\nname: p\nsource: {url: "+r.url()+"}\ndefaults: {to: [dir:"+r.vmsDir()+"]}\nvms: [{vm: web01}]\n")
	r.run("plan", "check", path).wantExit(5).wantOutput("plan.yaml:3:10: source!: ")
}

// The remedy of an unknown certificate is a command that the user can run.
func TestPlanCheckOfUnknownCertificate(t *testing.T) {
	t.Parallel()
	r := newRig(t, smallLab())
	path := r.writeFile("plan.yaml", "version: 1\nname: p\nsource: {url: "+r.url()+", credentials: {file: password}}\ndefaults: {to: [dir:"+r.vmsDir()+"]}\nvms: [{vm: web01}]\n")
	refused := r.run("plan", "check", path).wantExit(4).wantOutput("source!", "is not known")
	r.runShell(refused.remedyCommand()).wantExit(0).wantOutput("No blocking findings.")
	cmd := r.command("plan", "check", path)
	cmd.Env = os.Environ() // without DECAMP_PASSWORD_FILE, because the plan names the password file
	r.runCommand(cmd).wantExit(0)
	r.run("plan", "check", path, "--password-file", r.writeFile("wrong", "guess\n")).wantExit(4).wantOutput("source!", "check the user and the password")
}

// decamp plan check checks the requirements of a landing, but mounts no datastore.
func TestPlanCheckOfLanding(t *testing.T) {
	t.Parallel()
	r := newRig(t, mixedLab()).withFingerprint()
	plan := r.runOnSource("plan", "init", r.url(), "--to", "dir:"+r.vmsDir()).wantExit(0).stdout
	landing := func(options string) string {
		return r.writeFile("plan.yaml", strings.Replace(plan, "\ndefaults:\n", "\ndefaults:\n  transport: landing\n  landing: "+options+"\n", 1))
	}
	r.run("plan", "check", landing("{memory: 64M}")).wantExit(0)
	r.run("plan", "check", landing("{memory: 64M, copy: ssh}")).wantExit(4).wantOutput("ssh-off!")
	r.run("plan", "check", landing("{memory: 8000T}")).wantExit(2).wantOutput("transport!", "reduce it: landing: {memory:")
	if n := r.lab.Stats().SOAP["CreateNasDatastore"]; n > 0 {
		t.Errorf("the check mounted %d datastores, want 0", n)
	}
}

func TestPlanCheckOfFreeLicence(t *testing.T) {
	t.Parallel()
	cfg := freeLicence(mixedLab())
	for i := range cfg.VMs {
		cfg.VMs[i].ChangeTracking = false
	}
	r := newRig(t, cfg).withFingerprint()
	made := r.runOnSource("plan", "init", r.url(), "--warm", "--to", "dir:"+r.vmsDir(), "--select", "name=db01").wantExit(0)
	path := r.writeFile("plan.yaml", made.stdout)
	r.run("plan", "check", path).wantExit(0).wantOutput("no-cbt: db01: ", "the free licence of the host has no change tracking", " MiB/s", "paid licence")
	must(t, r.lab.SetSSH(false))
	r.run("plan", "check", path).wantExit(exitDenied).wantOutput("ssh-off!", "start SSH on the host", "vim-cmd hostsvc/start_ssh")
}

// decamp plan check of a direct plan connects to each host.
func TestDirectPlanOfVCenter(t *testing.T) {
	t.Parallel()
	cfg := mixedLab()
	cfg.VCenter, cfg.HostListeners = true, true
	cfg.VMs[1].Host = "esx2.lab"
	r := newRig(t, cfg).withFingerprint()
	made := r.runOnSource("plan", "init", r.vcenterURL(), "--to", "dir:"+r.vmsDir(), "--select", "power=off && snapshots=0").wantExit(0)
	path := r.writeFile("plan.yaml", strings.Replace(made.stdout, "  # direct: true ", "  direct: true #", 1))
	r.run("plan", "check", path).wantExit(0).wantOutput("2 VMs with 3 disks")
}

func (r *rig) vcenterURL() string { return "vcenter://administrator@vsphere.local@" + r.lab.Addr() }

func TestPlanInitOfVCenter(t *testing.T) {
	t.Parallel()
	cfg := mixedLab()
	cfg.VCenter = true
	cfg.VMs[1].Host = "esx2.lab"
	r := newRig(t, cfg).withFingerprint()
	url := r.vcenterURL()
	r.runOnSource("plan", "init", url, "--to", "dir:"+r.vmsDir(), "--select", "host=esx2.lab || name=web01").wantExit(0).
		wantOutput("# direct: true", "2 VMs that can be migrated")
	r.runOnSource("plan", "init", url, "--select", "host=esx9").wantExit(3).wantOutput("the selection matches no VM: host=esx9")
	var both struct {
		Plan map[string]any
		Left []struct{ VM string }
	}
	r.runOnSource("plan", "init", url, "--json").wantExit(0).decodeLast(&both)
	if len(both.Left) != 2 || both.Plan["version"] != 1.0 {
		t.Errorf("JSON: %+v", both)
	}
}

func TestPlanSchemaIsPrinted(t *testing.T) {
	t.Parallel()
	r := newRig(t, smallLab())
	r.run("plan", "schema").wantExit(0).wantOutput(`"$schema": "https://json-schema.org/draft/2020-12/schema"`, `"downtimeBudget"`)
}
