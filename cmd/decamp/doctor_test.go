package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/doctor"
	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/targets/dir"
)

// labProgram is a program with a lab and its password.
type labProgram struct {
	*testProgram
	lab *lab.Lab
	to  string
}

func newLabProgram(t *testing.T, cfg lab.Config) *labProgram {
	t.Helper()
	l, err := lab.Start(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	c := &labProgram{newTestProgram(t), l, t.TempDir()}
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(l.Password()), 0o600); err != nil {
		t.Fatal(err)
	}
	c.vars[assemble.PasswordEnv] = file
	return c
}

func (c *labProgram) url() string { return "esxi://root@" + c.lab.Addr() }

// runArgs runs a command with the fingerprint of the lab, and returns its exit code.
func (c *labProgram) runArgs(args ...string) int {
	c.t.Helper()
	return c.run(c.t.Context(), append(args, "--fingerprint", c.lab.Fingerprint(), "--state", c.assembler.State))
}

func smallVM(name string) lab.VM {
	return lab.VM{Name: name, Disks: []lab.Disk{{Capacity: 1 << 20, Fill: 50}}, NICs: []lab.NIC{{}}}
}

func TestDoctorText(t *testing.T) {
	found := []doctor.Finding{
		{Code: "nfs-sync", Status: doctor.Failure, On: "/srv/vm", Found: "exported sync", Want: "async", Remedy: "# reload the exports:\nexportfs -ra"},
		{Code: "vm-tpm", Status: doctor.Warning, On: "VM a", Found: "the VM has a virtual TPM", Want: "none", Remedy: "have the key"},
		{Code: "vm-tpm", Status: doctor.Warning, On: "VM b\x1b[2J", Found: "the VM has a virtual TPM", Want: "none", Remedy: "have the key"},
		{Code: "host-power", Status: doctor.Advice, On: "host e", Found: "Balanced", Want: "High", Remedy: "esxcli x"},
		{Code: "host-clock", Status: doctor.Unknown, Found: "busy\nvery", Remedy: "try again"},
		{Code: "host-ssh", On: "host e", Found: "SSH is on"},
	}
	for range 5 {
		found = append(found, doctor.Finding{Code: "vm-name", Status: doctor.OK, On: "VM", Found: "no problems"})
	}
	var out bytes.Buffer
	writeFindings(&out, found, doctor.OK)
	out.WriteString(countFindings(found) + "\n" + countFindings(found[5:6]) + "\n")
	golden(t, "testdata/doctor.txt", out.String())
	out.Reset()
	writeFindings(&out, found, doctor.Warning)
	if strings.Contains(out.String(), "recommendation") || strings.Contains(out.String(), "host-ssh") || !strings.HasPrefix(out.String(), "failure: nfs-sync: /srv/vm: exported sync\n") {
		t.Errorf("findings at level warning:\n%s", &out)
	}
}

func TestDoctorWithoutFailures(t *testing.T) {
	busy := smallVM("busy")
	busy.PoweredOn = true // no problem for a VM that is not migrated
	c := newLabProgram(t, lab.Config{VMs: []lab.VM{smallVM("web01"), busy}, Host: lab.HostState{Power: "static"}})
	if code := c.runArgs("doctor", c.url(), "--to", "dir:"+c.to, "--short"); code != 0 {
		t.Errorf("exit code %d: %s%s", code, c.out, c.stderr())
	}
	if got := c.out.String(); strings.Contains(got, "failure") || strings.Contains(got, "host-") || !strings.Contains(got, "checks passed") {
		t.Errorf("got output:\n%s", got)
	}
}

func TestDoctorPrintsWorstFindingsFirst(t *testing.T) {
	bad := smallVM("bad")
	bad.PoweredOn, bad.TPM = true, true
	c := newLabProgram(t, lab.Config{VMs: []lab.VM{smallVM("web01"), bad}, Lacks: []string{"Datastore.FileManagement"}})
	if code := c.runArgs("doctor", c.url(), "web01", "bad", "--to", "dir:"+c.to, "--short"); code != 6 {
		t.Errorf("exit code %d: %s", code, c.stderr())
	}
	output := c.out.String()
	mustContain(t, output, "failure: vm-state: VM bad: ", "  Remedy: shut the VM down, or add --power-off or --warm (in a plan: powerOff: guest or mode: warm)\n", "warning: vm-tpm: VM bad: ", "recommendation: host-power")
	if !strings.HasPrefix(output, "failure: host-privilege: datastore datastore1: user root has no privilege Datastore.FileManagement\n") {
		t.Errorf("the output begins with:\n%s", output)
	}
	mustContain(t, c.stderr(), "2 checks failed", "run the command again")
}

func TestDoctorAsJSON(t *testing.T) {
	bad := smallVM("bad")
	bad.PoweredOn = true
	c := newLabProgram(t, lab.Config{VMs: []lab.VM{smallVM("web01"), bad}, Host: lab.HostState{Skew: lab.Duration(time.Hour)}})
	if code := c.runArgs("doctor", c.url(), "web01", "--to", "dir:"+c.to, "--short", "--json"); code != 0 {
		t.Errorf("exit code %d: %s", code, c.out)
	}
	var got diagnosisJSON
	if err := json.Unmarshal(c.out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Worst != "warning" || len(got.Findings) < 20 || got.Findings[0].Status != "warning" || strings.Contains(c.out.String(), "VM bad") {
		t.Errorf("got worst status %s of %d findings: %s", got.Worst, len(got.Findings), c.out)
	}
}

// With --json, one object contains the findings and the error of the command.
func TestDoctorAsJSONEndsWithAnError(t *testing.T) {
	bad := smallVM("bad")
	bad.PoweredOn = true
	c := newLabProgram(t, lab.Config{VMs: []lab.VM{bad}})
	for _, c := range []struct {
		*labProgram
		args    []string
		kind    string
		message string
	}{
		{c, []string{c.url(), "bad"}, "conflict", "1 check failed"},
		{c, []string{"esxi://root@127.0.0.1:1", "bad"}, "unreachable", "127.0.0.1:1"},
	} {
		c.out.Reset()
		code := c.runArgs(append([]string{"doctor", "--to", "dir:" + c.to, "--short", "--json"}, c.args...)...)
		var got diagnosisJSON
		if err := json.Unmarshal(c.out.Bytes(), &got); err != nil {
			t.Fatalf("%v: %s", err, c.out)
		}
		if code == 0 || got.Error == nil || got.Error.Kind != c.kind || !strings.Contains(got.Error.Message, c.message) || len(got.Findings) == 0 {
			t.Errorf("%v: exit code %d, error %+v, %d findings", c.args, code, got.Error, len(got.Findings))
		}
	}
}

// diagnosisJSON is the output of decamp doctor --json.
type diagnosisJSON struct {
	Worst    string
	Findings []struct{ Code, On, Status, Found, Want, Remedy string }
	Error    *struct{ Kind, Message, Remedy string }
}

func TestDoctorExitCodes(t *testing.T) {
	c := newLabProgram(t, lab.Config{VMs: []lab.VM{smallVM("web01")}})
	for _, arg := range []struct {
		args    []string
		code    int
		message string
	}{
		{[]string{"doctor", c.url(), "web02"}, 3, "no VM is called"},
		{[]string{"doctor", c.url(), "--to", "dir:/nonexistent"}, 3, "mkdir -p /nonexistent"},
		{[]string{"doctor", "esxi://nobody@" + c.lab.Addr()}, 4, "check the user and the password"},
		{[]string{"doctor", c.url(), "--to", "/srv"}, 2, "is not a destination"},
		{[]string{"doctor", c.url(), "--transport", "fax"}, 2, "want https, nfc or landing"},
		{[]string{"doctor", c.url(), "--transport", "nfc", "--landing", "tmpfs:1G"}, 2, "requires --transport landing"},
	} {
		if code := c.runArgs(append(arg.args, "--short")...); code != arg.code || !strings.Contains(c.stderr(), arg.message) {
			t.Errorf("%q: exit code %d: %s", arg.args, code, c.stderr())
		}
	}
}

// decamp doctor tests the address of an NFC ticket, which in a lab is not port 902.
func TestDoctorTestsPortOfNFCTicket(t *testing.T) {
	c := newLabProgram(t, lab.Config{VMs: []lab.VM{smallVM("web01")}, NFC: lab.NFC{Network: "127.0.0.7"}})
	_ = c.runArgs("doctor", c.url(), "--transport", "nfc", "--short", "--verbose") // this machine may have failures
	mustContain(t, c.out.String(), "ok: path-ports: "+c.lab.NFCAddr("")+": the port is open")
	if strings.Contains(c.out.String(), ":902") {
		t.Errorf("it connects to port 902:\n%s", c.out)
	}
	c = newLabProgram(t, lab.Config{VMs: []lab.VM{smallVM("web01")}, NFC: lab.NFC{Off: true}})
	if code := c.runArgs("doctor", c.url(), "--transport", "nfc", "--short"); code != 6 {
		t.Errorf("a host without NFC: exit code %d, want 6", code)
	}
	mustContain(t, c.out.String(), "failure: path-ports: ")
}

// The hosts of a vCenter may listen on other ports than 443.
func TestDoctorConnectsToThePortOfTheInventory(t *testing.T) {
	c := newLabProgram(t, lab.Config{VCenter: true, HostListeners: true, VMs: []lab.VM{smallVM("web01")}})
	_ = c.runArgs("doctor", "vcenter://administrator@vsphere.local@"+c.lab.Addr(), "web01", "--short", "--verbose") // this machine may have failures
	mustContain(t, c.out.String(), "ok: path-ports: "+c.lab.Addr())
	if strings.Contains(c.out.String(), ":443:") {
		t.Errorf("it connects to port 443:\n%s", c.out)
	}
}

// decamp migrate prints the warnings that do not block it before the copy, but no recommendations.
func TestMigratePrintsWarningsFirst(t *testing.T) {
	vm := smallVM("web01")
	vm.TPM = true
	c := newLabProgram(t, lab.Config{VMs: []lab.VM{vm, smallVM("other")}, Host: lab.HostState{Skew: lab.Duration(time.Hour)}})
	if code := c.runArgs("migrate", c.url(), "web01", "--to", "dir:"+c.to); code != 0 {
		t.Fatalf("exit code %d: %s", code, c.stderr())
	}
	output := c.stderr()
	mustContain(t, output, "warning: host-clock: host ", "warning: vm-tpm: VM web01: ")
	if strings.Contains(output, "host-power") {
		t.Errorf("got a recommendation:\n%s", output)
	}
	vm.PoweredOn = true
	c = newLabProgram(t, lab.Config{VMs: []lab.VM{vm}})
	if code := c.runArgs("migrate", c.url(), "web01", "--to", "dir:"+c.to); code != 6 {
		t.Errorf("exit code %d", code)
	}
	if got := c.stderr(); strings.Contains(got, "vm-state") || strings.Count(got, "powered on") != 1 {
		t.Errorf("want the obstacle once, and no warning about it:\n%s", got)
	}
}

func TestPlanPrintsWarningsFirst(t *testing.T) {
	vm := smallVM("web01")
	vm.TPM = true
	c := newLabProgram(t, lab.Config{VMs: []lab.VM{vm, smallVM("web02")}, Host: lab.HostState{Skew: lab.Duration(-time.Hour - 30*time.Second)}}) // the measurement may be off by seconds
	plan := filepath.Join(t.TempDir(), "plan.yaml")
	text := "version: 1\nname: p\nsource: {url: \"" + c.url() + "\", fingerprint: \"" + c.lab.Fingerprint() + "\"}\nselect: '!poweredOn'\ndefaults: {to: [\"dir:" + c.to + "\"]}\n"
	if err := os.WriteFile(plan, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if code := c.runArgs("plan", "check", plan); code != 0 {
		t.Fatalf("plan check: exit code %d: %s%s", code, c.out, c.stderr())
	}
	mustContain(t, c.out.String(), "vm-tpm: web01: the VM has a virtual TPM", "host-clock: host localhost.localdomain: the clock is 1h0m", "behind this machine's",
		"Remedy: on this machine: date -u; timedatectl; on the host: esxcli system time get; esxcli", "No blocking findings")
	if code := c.run(t.Context(), []string{"plan", "run", plan, "--state", c.assembler.State}); code != 0 {
		t.Fatalf("plan run: exit code %d: %s", code, c.stderr())
	}
	if n := strings.Count(c.stderr(), "warning: host-clock: "); n != 1 {
		t.Errorf("got %d warnings about the host, want 1:\n%s", n, c.stderr())
	}
}

// With --json, the warnings are objects in the stream.
func TestWarningsInJSONStream(t *testing.T) {
	vm := smallVM("web01")
	vm.TPM = true
	c := newLabProgram(t, lab.Config{VMs: []lab.VM{vm}, Host: lab.HostState{Skew: lab.Duration(time.Hour)}})
	if code := c.runArgs("migrate", c.url(), "web01", "--to", "dir:"+c.to, "--json"); code != 0 {
		t.Fatalf("migrate: exit code %d: %s", code, c.stderr())
	}
	if got, want := streamFindings(t, c.out.String()), []string{"warning host-clock", "warning vm-tpm"}; !slices.Equal(got, want) {
		t.Errorf("migrate: got findings %q, want %q:\n%s", got, want, c.out)
	}
	c.out.Reset()
	plan := filepath.Join(t.TempDir(), "plan.yaml")
	text := "version: 1\nname: p\nsource: {url: \"" + c.url() + "\", fingerprint: \"" + c.lab.Fingerprint() + "\"}\nvms: [{vm: web01}]\ndefaults: {to: [\"dir:" + t.TempDir() + "\"]}\n"
	if err := os.WriteFile(plan, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if code := c.run(t.Context(), []string{"plan", "run", plan, "--state", c.assembler.State, "--json"}); code != 0 {
		t.Fatalf("plan run: exit code %d: %s%s", code, c.out, c.stderr())
	}
	if got, want := streamFindings(t, c.out.String()), []string{"warning host-clock"}; !slices.Equal(got, want) {
		t.Errorf("plan run: got findings %q, want %q:\n%s", got, want, c.out)
	}
}

// streamFindings returns the findings in a stream of JSON lines.
func streamFindings(t *testing.T, out string) (found []string) {
	t.Helper()
	for line := range strings.Lines(out) {
		var o struct {
			Finding *struct{ Code, On, Status, Found, Remedy string }
		}
		if err := json.Unmarshal([]byte(line), &o); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if f := o.Finding; f != nil {
			if f.On == "" || f.Found == "" || f.Remedy == "" {
				t.Errorf("the finding is incomplete: %s", line)
			}
			found = append(found, f.Status+" "+f.Code)
		}
	}
	slices.Sort(found)
	return found
}

// decamp doctor reports that a VM is already migrated, but no conflict of its address with itself.
func TestDoctorFindsMigratedVM(t *testing.T) {
	c := newLabProgram(t, lab.Config{VMs: []lab.VM{smallVM("web01")}})
	if code := c.runArgs("migrate", c.url(), "web01", "--to", "dir:"+c.to); code != 0 {
		t.Fatalf("exit code %d: %s", code, c.stderr())
	}
	if got := assemble.Moved(c.to); len(got) != 1 || got[0].Name != "web01" {
		t.Errorf("got published VMs %+v, want only web01", got)
	}
	c.out.Reset()
	if code := c.runArgs("doctor", c.url(), "--to", "dir:"+c.to, "--short"); code != 0 {
		t.Errorf("exit code %d: %s", code, c.out)
	}
	mustContain(t, c.out.String(), "warning: vm-target: VM web01: already migrated to "+filepath.Join(c.to, "web01"), "decamp verify ")
	if strings.Contains(c.out.String(), "vm-mac") {
		t.Errorf("the VM conflicts with itself:\n%s", c.out)
	}
}

var heading = regexp.MustCompile(`(?m)^### ([a-z0-9-]+)\b`)

// Each code of a check has a section in the docs, and each section has a check.
func TestEveryDoctorCodeIsDocumented(t *testing.T) {
	var documented, have []string
	files, err := filepath.Glob("../../docs/doctor*.md")
	if err != nil || len(files) == 0 {
		t.Fatalf("found pages %v, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range heading.FindAllStringSubmatch(string(text), -1) {
			documented = append(documented, m[1])
		}
	}
	for _, c := range allChecks(t) {
		have = append(have, c.Code)
		if c.Title == "" || c.Run == nil {
			t.Errorf("check %s has no title or no function", c.Code)
		}
	}
	slices.Sort(documented)
	slices.Sort(have)
	if !slices.Equal(documented, have) {
		t.Errorf("documented:\n%q\nin the binary:\n%q", documented, have)
	}
}

// allChecks returns the checks of a migration from a lab to a folder.
func allChecks(t *testing.T) []doctor.Check {
	t.Helper()
	c := newLabProgram(t, lab.Config{})
	s, err := esx.Dial(t.Context(), esx.Config{
		URL: &url.URL{Scheme: "esxi", User: url.User(c.lab.User()), Host: c.lab.Addr()}, Fingerprint: c.lab.Fingerprint(),
		Password: func(context.Context) (esx.Secret, error) { return esx.Secret(c.lab.Password()), nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	target, err := dir.New(c.to, dir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	u, err := esx.ParseURL(c.url())
	if err != nil {
		t.Fatal(err)
	}
	d := &assemble.Diagnosis{Parts: &assemble.Parts{Session: s, URL: u, To: []*assemble.Destination{{Name: c.to, Target: target}}}}
	return d.Groups()
}
