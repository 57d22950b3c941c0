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

// clinic is a lab for the doctor, and a rig that may log in there.
type clinic struct {
	*rig
	lab *lab.Lab
	to  string
}

func newClinic(t *testing.T, cfg lab.Config) *clinic {
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
	c := &clinic{newRig(t), l, t.TempDir()}
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(l.Password()), 0o600); err != nil {
		t.Fatal(err)
	}
	c.vars[assemble.PasswordEnv] = file
	return c
}

func (c *clinic) url() string { return "esxi://root@" + c.lab.Addr() }

// do runs a command, and returns its exit code.
func (c *clinic) do(args ...string) int {
	c.t.Helper()
	return c.run(c.t.Context(), append(args, "--fingerprint", c.lab.Fingerprint(), "--state", c.assembler.State))
}

func small(name string) lab.VM {
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
		t.Errorf("warnings and worse:\n%s", &out)
	}
}

func TestDoctorFindsNothingThatFails(t *testing.T) {
	busy := small("busy")
	busy.PoweredOn = true // which is nothing as long as nobody wants to move it
	c := newClinic(t, lab.Config{VMs: []lab.VM{small("web01"), busy}, Host: lab.HostState{Power: "static"}})
	if code := c.do("doctor", c.url(), "--to", "dir:"+c.to, "--short"); code != 0 {
		t.Errorf("exit code %d: %s%s", code, c.out, c.stderr())
	}
	if got := c.out.String(); strings.Contains(got, "failure") || strings.Contains(got, "host-") || !strings.Contains(got, "checks passed") {
		t.Errorf("said:\n%s", got)
	}
}

func TestDoctorTellsTheWorstFirstAndOfTheVMsThatAreNamed(t *testing.T) {
	bad := small("bad")
	bad.PoweredOn, bad.TPM = true, true
	c := newClinic(t, lab.Config{VMs: []lab.VM{small("web01"), bad}, Lacks: []string{"Datastore.FileManagement"}})
	if code := c.do("doctor", c.url(), "web01", "bad", "--to", "dir:"+c.to, "--short"); code != 6 {
		t.Errorf("exit code %d: %s", code, c.stderr())
	}
	said := c.out.String()
	mustContain(t, said, "failure: vm-state: VM bad: ", "  Remedy: shut the VM down, or add --power-off or --warm (in a plan: powerOff: guest or mode: warm)\n", "warning: vm-tpm: VM bad: ", "recommendation: host-power")
	if !strings.HasPrefix(said, "failure: host-privilege: datastore datastore1: user root has no privilege Datastore.FileManagement\n") {
		t.Errorf("begins with:\n%s", said)
	}
	mustContain(t, c.stderr(), "2 checks failed", "run the command again")
}

func TestDoctorAsJSON(t *testing.T) {
	bad := small("bad")
	bad.PoweredOn = true
	c := newClinic(t, lab.Config{VMs: []lab.VM{small("web01"), bad}, Host: lab.HostState{Skew: lab.Duration(time.Hour)}})
	if code := c.do("doctor", c.url(), "web01", "--to", "dir:"+c.to, "--short", "--json"); code != 0 {
		t.Errorf("exit code %d: %s", code, c.out)
	}
	var got diagnosisJSON
	if err := json.Unmarshal(c.out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Worst != "warning" || len(got.Findings) < 20 || got.Findings[0].Status != "warning" || strings.Contains(c.out.String(), "VM bad") {
		t.Errorf("worst %s of %d: %s", got.Worst, len(got.Findings), c.out)
	}
}

// One object has what was found and the error that the command ends with.
func TestDoctorAsJSONEndsWithAnError(t *testing.T) {
	bad := small("bad")
	bad.PoweredOn = true
	c := newClinic(t, lab.Config{VMs: []lab.VM{bad}})
	for _, c := range []struct {
		*clinic
		args    []string
		kind    string
		message string
	}{
		{c, []string{c.url(), "bad"}, "conflict", "1 check failed"},
		{c, []string{"esxi://root@127.0.0.1:1", "bad"}, "unreachable", "127.0.0.1:1"},
	} {
		c.out.Reset()
		code := c.do(append([]string{"doctor", "--to", "dir:" + c.to, "--short", "--json"}, c.args...)...)
		var got diagnosisJSON
		if err := json.Unmarshal(c.out.Bytes(), &got); err != nil {
			t.Fatalf("%v: %s", err, c.out)
		}
		if code == 0 || got.Error == nil || got.Error.Kind != c.kind || !strings.Contains(got.Error.Message, c.message) || len(got.Findings) == 0 {
			t.Errorf("%v: exit code %d, %+v of %d findings", c.args, code, got.Error, len(got.Findings))
		}
	}
}

// diagnosisJSON is what scripts read.
type diagnosisJSON struct {
	Worst    string
	Findings []struct{ Code, On, Status, Found, Want, Remedy string }
	Error    *struct{ Kind, Message, Remedy string }
}

func TestDoctorIsLetInByNobody(t *testing.T) {
	c := newClinic(t, lab.Config{VMs: []lab.VM{small("web01")}})
	for _, arg := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"doctor", c.url(), "web02"}, 3, "no VM is called"},
		{[]string{"doctor", c.url(), "--to", "dir:/nonexistent"}, 3, "mkdir -p /nonexistent"},
		{[]string{"doctor", "esxi://nobody@" + c.lab.Addr()}, 4, "check the user and the password"},
		{[]string{"doctor", c.url(), "--to", "/srv"}, 2, "is not a destination"},
		{[]string{"doctor", c.url(), "--transport", "fax"}, 2, "want https, nfc or landing"},
		{[]string{"doctor", c.url(), "--transport", "nfc", "--landing", "tmpfs:1G"}, 2, "requires --transport landing"},
	} {
		if code := c.do(append(arg.args, "--short")...); code != arg.code || !strings.Contains(c.stderr(), arg.says) {
			t.Errorf("%q: exit code %d: %s", arg.args, code, c.stderr())
		}
	}
}

// NFC is where a ticket leads, which is not 902 in a lab, nor where a host has an interface for it.
func TestDoctorKnocksWhereNFCIs(t *testing.T) {
	c := newClinic(t, lab.Config{VMs: []lab.VM{small("web01")}, NFC: lab.NFC{Network: "127.0.0.7"}})
	_ = c.do("doctor", c.url(), "--transport", "nfc", "--short", "--verbose") // this machine may be bad
	mustContain(t, c.out.String(), "ok: path-ports: "+c.lab.NFCAddr("")+": the port is open")
	if strings.Contains(c.out.String(), ":902") {
		t.Errorf("it knocks at 902, too:\n%s", c.out)
	}
	c = newClinic(t, lab.Config{VMs: []lab.VM{small("web01")}, NFC: lab.NFC{Off: true}})
	if code := c.do("doctor", c.url(), "--transport", "nfc", "--short"); code != 6 {
		t.Errorf("without NFC: exit code %d", code)
	}
	mustContain(t, c.out.String(), "failure: path-ports: ")
}

// The hosts of a vCenter may listen at other ports than 443.
func TestDoctorConnectsToThePortOfTheInventory(t *testing.T) {
	c := newClinic(t, lab.Config{VCenter: true, HostListeners: true, VMs: []lab.VM{small("web01")}})
	_ = c.do("doctor", "vcenter://administrator@vsphere.local@"+c.lab.Addr(), "web01", "--short", "--verbose") // this machine may be bad
	mustContain(t, c.out.String(), "ok: path-ports: "+c.lab.Addr())
	if strings.Contains(c.out.String(), ":443:") {
		t.Errorf("it connects to port 443:\n%s", c.out)
	}
}

// A move tells beforehand what it does not refuse, and only what is worth stopping for.
func TestMigrateTellsBeforehand(t *testing.T) {
	vm := small("web01")
	vm.TPM = true
	c := newClinic(t, lab.Config{VMs: []lab.VM{vm, small("other")}, Host: lab.HostState{Skew: lab.Duration(time.Hour)}})
	if code := c.do("migrate", c.url(), "web01", "--to", "dir:"+c.to); code != 0 {
		t.Fatalf("exit code %d: %s", code, c.stderr())
	}
	said := c.stderr()
	mustContain(t, said, "warning: host-clock: host ", "warning: vm-tpm: VM web01: ")
	if strings.Contains(said, "host-power") {
		t.Errorf("a recommendation is no warning:\n%s", said)
	}
	vm.PoweredOn = true
	c = newClinic(t, lab.Config{VMs: []lab.VM{vm}})
	if code := c.do("migrate", c.url(), "web01", "--to", "dir:"+c.to); code != 6 {
		t.Errorf("exit code %d", code)
	}
	if said := c.stderr(); strings.Contains(said, "vm-state") || strings.Count(said, "powered on") != 1 {
		t.Errorf("what is refused is told twice:\n%s", said)
	}
}

func TestPlansTellBeforehand(t *testing.T) {
	vm := small("web01")
	vm.TPM = true
	c := newClinic(t, lab.Config{VMs: []lab.VM{vm, small("web02")}, Host: lab.HostState{Skew: lab.Duration(-time.Hour)}})
	plan := filepath.Join(t.TempDir(), "plan.yaml")
	text := "version: 1\nname: p\nsource: {url: \"" + c.url() + "\", fingerprint: \"" + c.lab.Fingerprint() + "\"}\nselect: '!poweredOn'\ndefaults: {to: [\"dir:" + c.to + "\"]}\n"
	if err := os.WriteFile(plan, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if code := c.do("plan", "check", plan); code != 0 {
		t.Fatalf("plan check: exit code %d: %s%s", code, c.out, c.stderr())
	}
	mustContain(t, c.out.String(), "vm-tpm: web01: the VM has a virtual TPM", "host-clock: host localhost.localdomain: the clock is 1h0m0s behind this machine's",
		"Remedy: on this machine: date -u; timedatectl; on the host: esxcli system time get; esxcli", "No blocking findings")
	if code := c.run(t.Context(), []string{"plan", "run", plan, "--state", c.assembler.State}); code != 0 {
		t.Fatalf("plan run: exit code %d: %s", code, c.stderr())
	}
	if n := strings.Count(c.stderr(), "warning: host-clock: "); n != 1 {
		t.Errorf("plan run tells of the host %d times:\n%s", n, c.stderr())
	}
}

// Scripts are told what eyes are, as objects of their own in the stream.
func TestWhatIsToldBeforehandIsInTheStream(t *testing.T) {
	vm := small("web01")
	vm.TPM = true
	c := newClinic(t, lab.Config{VMs: []lab.VM{vm}, Host: lab.HostState{Skew: lab.Duration(time.Hour)}})
	if code := c.do("migrate", c.url(), "web01", "--to", "dir:"+c.to, "--json"); code != 0 {
		t.Fatalf("migrate: exit code %d: %s", code, c.stderr())
	}
	if got, want := streamed(t, c.out.String()), []string{"warning host-clock", "warning vm-tpm"}; !slices.Equal(got, want) {
		t.Errorf("migrate tells %q, want %q:\n%s", got, want, c.out)
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
	if got, want := streamed(t, c.out.String()), []string{"warning host-clock"}; !slices.Equal(got, want) {
		t.Errorf("plan run tells %q, want %q:\n%s", got, want, c.out)
	}
}

// streamed are the findings in a stream of objects, a line each.
func streamed(t *testing.T, out string) (found []string) {
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
				t.Errorf("half a finding: %s", line)
			}
			found = append(found, f.Status+" "+f.Code)
		}
	}
	slices.Sort(found)
	return found
}

// A VM that was moved and one that is to be moved with its address are told of each other.
func TestAddressOfOneMovedEarlier(t *testing.T) {
	c := newClinic(t, lab.Config{VMs: []lab.VM{small("web01")}})
	if code := c.do("migrate", c.url(), "web01", "--to", "dir:"+c.to); code != 0 {
		t.Fatalf("exit code %d: %s", code, c.stderr())
	}
	if got := assemble.Moved(c.to); len(got) != 1 || got[0].Name != "web01" {
		t.Errorf("moved: %+v", got)
	}
	c.out.Reset()
	if code := c.do("doctor", c.url(), "--to", "dir:"+c.to, "--short"); code != 0 {
		t.Errorf("exit code %d: %s", code, c.out)
	}
	mustContain(t, c.out.String(), "warning: vm-target: VM web01: already migrated to "+filepath.Join(c.to, "web01"), "decamp verify ")
	if strings.Contains(c.out.String(), "vm-mac") {
		t.Errorf("a VM is no double of itself:\n%s", c.out)
	}
}

var heading = regexp.MustCompile(`(?m)^### ([a-z0-9-]+)\b`)

// Each code has its section in the docs, and each section its code.
func TestEveryDoctorCodeIsDocumented(t *testing.T) {
	var documented, have []string
	files, err := filepath.Glob("../../docs/doctor*.md")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
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
			t.Errorf("check %s lacks a title, or looks at nothing", c.Code)
		}
	}
	slices.Sort(documented)
	slices.Sort(have)
	if !slices.Equal(documented, have) {
		t.Errorf("documented:\n%q\nin the binary:\n%q", documented, have)
	}
}

// allChecks are those of a move between a lab and a folder.
func allChecks(t *testing.T) []doctor.Check {
	t.Helper()
	c := newClinic(t, lab.Config{})
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
