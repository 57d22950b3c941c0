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

var update = flag.Bool("update", false, "write the golden files anew")

// mixed is a lab with VMs that can be moved and others that cannot.
func mixed() lab.Config {
	return lab.Config{VMs: []lab.VM{
		{Name: "web01", Disks: []lab.Disk{{Capacity: 48 << 20, Fill: 40, Seed: 1}}, NICs: []lab.NIC{{}}},
		{Name: "R&D: 100%", Disks: []lab.Disk{{Capacity: 16 << 20, Fill: 10, Seed: 2}, {Capacity: 8 << 20, Seed: 3}}},
		{Name: "db01", PoweredOn: true, ChangeTracking: true, Disks: []lab.Disk{{Capacity: 32 << 20, Fill: 20, Seed: 4}}},
		{Name: "old01", Snapshots: []string{"before update"}, Disks: []lab.Disk{{Capacity: 8 << 20, Seed: 5}}},
	}}
}

// transcript compares the output of a command with a golden file. It masks the parts that differ between runs.
func (r *rig) transcript(name, got string) {
	r.t.Helper()
	for was, is := range map[string]string{r.dir: "DIR", r.lab.Addr(): "HOST:PORT"} {
		got = strings.ReplaceAll(got, was, is)
	}
	got = regexp.MustCompile(`[0-9.]+ [KMGT]iB (free|to )`).ReplaceAllString(got, "N GiB $1") // as the file system of this machine has it
	path := filepath.Join("testdata", name)
	if *update {
		must(r.t, os.MkdirAll("testdata", 0o755))
		must(r.t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	must(r.t, err)
	if got != string(want) {
		r.t.Errorf("%s differs (go test ./test/cli -run Plan -update writes it anew); got:\n%s", path, got)
	}
}

func TestPlanInitIsCheckedAndPasses(t *testing.T) {
	t.Parallel()
	r := newRig(t, mixed()).trusting()
	made := r.source("plan", "init", r.url(), "--name", "wave-1", "--to", "dir:"+r.vms()).ends(0)
	r.transcript("plan-init.txt", made.stdout)
	path := r.write("plan.yaml", made.stdout)
	r.transcript("plan-check.txt", r.run("plan", "check", path).ends(0).stdout) // the certificate is known by now
	var report struct {
		Plan     string
		VMs      int
		Findings []struct{ Code string }
	}
	r.run("plan", "check", path, "--json").ends(0).last(&report)
	if report.Plan != "wave-1" || report.VMs != 2 || report.Findings == nil || len(report.Findings) > 0 {
		t.Errorf("JSON says %+v", report)
	}
	if entries, err := os.ReadDir(r.vms()); err != nil || len(entries) > 0 {
		t.Errorf("a check left %v, %v", entries, err)
	}
	if n := r.lab.Stats().SOAP["CreateSnapshot_Task"] + r.lab.Stats().SOAP["PowerOffVM_Task"] + r.lab.Stats().SOAP["ShutdownGuest"]; n > 0 {
		t.Errorf("%d calls changed VMs", n)
	}
}

func TestPlanOfRunningVMs(t *testing.T) {
	t.Parallel()
	r := newRig(t, mixed()).trusting()
	made := r.source("plan", "init", r.url(), "--warm", "--select", "name ~ *01 && snapshots=0", "--to", "dir:"+r.vms()).ends(0)
	made.says("mode: warm", "- vm: db01", "- vm: web01", "Selected by: name ~ *01")
	path := r.write("plan.yaml", made.stdout)
	r.run("plan", "check", path).ends(0).says("2 VMs with 2 disks")
	path = r.write("plan.yaml", strings.Replace(made.stdout, "  transport: nfc", "  transport: https", 1))
	r.run("plan", "check", path).ends(7).says("warm-https!: db01: https cannot read this running VM", "set transport: nfc")
}

// All problems are reported, in the order of the file. The exit code is that of problems of several kinds.
func TestPlanCheckTellsAll(t *testing.T) {
	t.Parallel()
	r := newRig(t, mixed()).trusting()
	r.migrate("web01").ends(0)
	r.migrate("R&D: 100%").ends(0)
	must(t, os.Rename(filepath.Join(r.vms(), "web01"), filepath.Join(r.vms(), "db01"))) // somebody else's db01
	path := r.write("plan.yaml", `version: 1
name: all-wrong
source: {url: "`+r.url()+`", credentials: {file: gone}}
defaults: {to: [dir:`+r.vms()+`], sourceHash: true}
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
	r.run("plan", "check", path).ends(6).says("credentials!", "gone: no such file", "hook!")
	text, err := os.ReadFile(path)
	must(t, err)
	path = r.write("plan.yaml", strings.Replace(string(text), ", credentials: {file: gone}", "", 1))
	r.transcript("plan-check-all.txt", r.run("plan", "check", path).ends(6).stdout)
}

func TestPlanThatIsNone(t *testing.T) {
	t.Parallel()
	r := newRig(t, small())
	path := r.write("plan.yaml", "version: 1\nname: p\nsource: {url: "+r.url()+", pasword: "+secret+"}\nvms: [{vm: a, transprot: nfc}]\n")
	refused := r.run("plan", "check", path).ends(2).says(`plan.yaml:3:`, `unknown key "pasword"`, `plan.yaml:4:15: file!: vms[0]: unknown key "transprot"`, "did you mean transport?", "the plan has 2 problems")
	if strings.Contains(refused.stdout+refused.stderr, secret) {
		t.Error("the secret was repeated")
	}
	if n := r.lab.Stats().SOAP["Login"]; n > 0 {
		t.Errorf("%d logins for a file that is no plan", n)
	}
	r.run("plan", "check", filepath.Join(r.dir, "none.yaml")).ends(3).says("Remedy: create one: decamp plan init")
	var e struct{ Error struct{ Kind string } }
	if r.run("plan", "check", path, "--json").ends(2).last(&e); e.Error.Kind != "invalid" {
		t.Errorf("JSON says %+v", e)
	}
}

func TestPlanCheckOfASourceThatIsAway(t *testing.T) {
	t.Parallel()
	r := newRig(t, small())
	must(t, r.lab.Stop())
	path := r.write("plan.yaml", "version: 1\nname: p\nsource: {url: "+r.url()+"}\ndefaults: {to: [dir:"+r.vms()+"]}\nvms: [{vm: web01}]\n")
	r.run("plan", "check", path).ends(5).says("plan.yaml:3:10: source!: ")
}

// The remedy of a certificate that is not known is a command to paste here, too.
func TestPlanCheckAsksForTheCertificate(t *testing.T) {
	t.Parallel()
	r := newRig(t, small())
	path := r.write("plan.yaml", "version: 1\nname: p\nsource: {url: "+r.url()+", credentials: {file: password}}\ndefaults: {to: [dir:"+r.vms()+"]}\nvms: [{vm: web01}]\n")
	refused := r.run("plan", "check", path).ends(4).says("source!", "is not known")
	r.paste(refused.remedy()).ends(0).says("No blocking findings.")
	cmd := r.command("plan", "check", path)
	cmd.Env = os.Environ() // the password's file is the one that the plan names
	r.finish(cmd).ends(0)
	r.run("plan", "check", path, "--password-file", r.write("wrong", "guess\n")).ends(4).says("source!", "check the user and the password")
}

// What only a landing needs is looked at without serving anything.
func TestPlanOfALanding(t *testing.T) {
	t.Parallel()
	r := newRig(t, mixed()).trusting()
	plan := r.source("plan", "init", r.url(), "--to", "dir:"+r.vms()).ends(0).stdout
	landing := func(options string) string {
		return r.write("plan.yaml", strings.Replace(plan, "\ndefaults:\n", "\ndefaults:\n  transport: landing\n  landing: "+options+"\n", 1))
	}
	r.run("plan", "check", landing("{memory: 64M}")).ends(0)
	r.run("plan", "check", landing("{memory: 64M, copy: ssh}")).ends(4).says("ssh-off!")
	r.run("plan", "check", landing("{memory: 8000T}")).ends(2).says("transport!", "reduce it: landing: {memory:")
	if n := r.lab.Stats().SOAP["CreateNasDatastore"]; n > 0 {
		t.Errorf("%d datastores were mounted by a check", n)
	}
}

func TestPlanForAFreeLicence(t *testing.T) {
	t.Parallel()
	cfg := free(mixed())
	for i := range cfg.VMs {
		cfg.VMs[i].ChangeTracking = false
	}
	r := newRig(t, cfg).trusting()
	made := r.source("plan", "init", r.url(), "--warm", "--to", "dir:"+r.vms(), "--select", "name=db01").ends(0)
	path := r.write("plan.yaml", made.stdout)
	r.run("plan", "check", path).ends(0).says("no-cbt: db01: ", "the free licence of the host has no change tracking", " MiB/s", "paid licence")
	must(t, r.lab.SetSSH(false))
	r.run("plan", "check", path).ends(denied).says("ssh-off!", "start SSH on the host", "vim-cmd hostsvc/start_ssh")
}

// Direct plans reach each host.
func TestDirectPlanOfAVCenter(t *testing.T) {
	t.Parallel()
	cfg := mixed()
	cfg.VCenter, cfg.HostListeners = true, true
	cfg.VMs[1].Host = "esx2.lab"
	r := newRig(t, cfg).trusting()
	made := r.source("plan", "init", r.vcenter(), "--to", "dir:"+r.vms(), "--select", "power=off && snapshots=0").ends(0)
	path := r.write("plan.yaml", strings.Replace(made.stdout, "  # direct: true ", "  direct: true #", 1))
	r.run("plan", "check", path).ends(0).says("2 VMs with 3 disks")
}

func (r *rig) vcenter() string { return "vcenter://administrator@vsphere.local@" + r.lab.Addr() }

func TestPlanOfAVCenter(t *testing.T) {
	t.Parallel()
	cfg := mixed()
	cfg.VCenter = true
	cfg.VMs[1].Host = "esx2.lab"
	r := newRig(t, cfg).trusting()
	url := r.vcenter()
	r.source("plan", "init", url, "--to", "dir:"+r.vms(), "--select", "host=esx2.lab || name=web01").ends(0).
		says("# direct: true", "2 VMs that can be migrated")
	r.source("plan", "init", url, "--select", "host=esx9").ends(3).says("the selection matches no VM: host=esx9")
	var both struct {
		Plan map[string]any
		Left []struct{ VM string }
	}
	r.source("plan", "init", url, "--json").ends(0).last(&both)
	if len(both.Left) != 2 || both.Plan["version"] != 1.0 {
		t.Errorf("JSON says %+v", both)
	}
}

func TestPlanSchemaIsPrinted(t *testing.T) {
	t.Parallel()
	r := newRig(t, small())
	r.run("plan", "schema").ends(0).says(`"$schema": "https://json-schema.org/draft/2020-12/schema"`, `"downtimeBudget"`)
}
