package assemble

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/config"
	"github.com/decamp/decamp/internal/esx/shell"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/planfile"
)

// A parameter that nobody classified could let an operator act as the server.
func TestEveryParameterOfADestinationIsClassified(t *testing.T) {
	for _, kind := range []string{planfile.KubeVirt, planfile.Libvirt, planfile.Proxmox, planfile.OpenStack} {
		parameters := ParametersOf(kind)
		if len(parameters) < 5 {
			t.Errorf("%s has only the parameters %v", kind, parameters)
		}
		if missing := planfile.UnclassifiedParameters(kind, parameters); len(missing) > 0 {
			t.Errorf("parameters of %s without a class: %v", kind, missing)
		}
		if missing := planfile.UnclassifiedParameters(kind, []string{"no-such-parameter"}); len(missing) != 1 {
			t.Errorf("%s: an unknown parameter has a class", kind)
		}
	}
}

// The fingerprint in a submitted plan never replaces the one that the machine knows.
func TestSubmittedPlanDoesNotReplaceAKnownCertificate(t *testing.T) {
	r := newMachine(t)
	r.mustTrust("AA:01", "AA:01")
	before := r.read("known_hosts.json")
	for _, shown := range []string{"AA:01", "BB:02"} {
		err := r.verifyCertificate(t.Context(), host, shownCertificate(shown), Login{submitted: true, Fingerprint: "BB:02"})
		if !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "AA:01") || !strings.Contains(err.Error(), "BB:02") || fault.HintOf(err) == "" {
			t.Errorf("shown %s: %v", shown, err)
		}
	}
	if err := r.verifyCertificate(t.Context(), host, shownCertificate("AA:01"), Login{submitted: true, Fingerprint: "aa01"}); err != nil {
		t.Errorf("the same fingerprint: %v", err)
	}
	if after := r.read("known_hosts.json"); after != before {
		t.Errorf("known hosts changed from %s to %s", before, after)
	}
}

// For a named credential the fingerprint that it is bound to decides alone, and changes nothing.
func TestCredentialIsBoundToItsCertificate(t *testing.T) {
	r := newMachine(t)
	r.mustTrust("BB:02", "BB:02")
	before := r.read("known_hosts.json")
	bound := Login{submitted: true, bound: "aa01"}
	if err := r.verifyCertificate(t.Context(), host, shownCertificate("AA:01"), bound); err != nil {
		t.Errorf("the bound one: %v", err)
	}
	err := r.verifyCertificate(t.Context(), host, shownCertificate("BB:02"), bound)
	if !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), "BB:02") || !strings.Contains(fault.HintOf(err), "access file") {
		t.Errorf("another one: %v", err)
	}
	if after := r.read("known_hosts.json"); after != before {
		t.Errorf("known hosts changed from %s to %s", before, after)
	}
}

// read returns the text of a file in the state directory.
func (r *machine) read(name string) string {
	r.t.Helper()
	text, err := os.ReadFile(filepath.Join(r.State, name))
	if err != nil {
		r.t.Fatal(err)
	}
	return string(text)
}

// put writes a file that only the user can read into the state directory, and returns its path.
func (r *machine) put(name, text string) string {
	r.t.Helper()
	path := filepath.Join(r.State, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
	return path
}

func mustPlan(t *testing.T, text string) *planfile.File {
	t.Helper()
	f, found := planfile.Parse([]byte(text))
	if len(found) > 0 {
		t.Fatal(found)
	}
	return f
}

const sourcePlan = "version: 1\nname: p\nsource: {url: esxi://root@esx1}\ndefaults: {to: [dir:/srv/vm]}\nselect: poweredOn\n"

// The password file in the environment is for the user's own commands.
func TestSubmittedPlanHasNoDefaultPassword(t *testing.T) {
	r := newMachine(t)
	r.vars[PasswordEnv] = r.put("password", "hush\n")
	for _, role := range []planfile.Role{planfile.Operate, planfile.Admin, ""} {
		var l Login
		if err := r.PlanLogin(&l, mustPlan(t, sourcePlan), r.State, role); !fault.Is(err, fault.Denied) || fault.HintOf(err) == "" {
			t.Errorf("role %q: %v", role, err)
		}
	}
	var l Login
	if err := r.PlanLogin(&l, mustPlan(t, sourcePlan), r.State, planfile.Local); err != nil || l.submitted {
		t.Errorf("here: %v", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan bool, 1)
	go func() {
		c, err := listener.Accept()
		if err == nil {
			c.Close()
		}
		accepted <- err == nil
	}()
	if _, err := r.Dial(t.Context(), "esxi://root@"+listener.Addr().String(), Login{submitted: true}); !fault.Is(err, fault.Denied) {
		t.Errorf("dial: %v", err)
	}
	listener.Close()
	if <-accepted {
		t.Error("the host was connected to")
	}
}

// The local user's plan uses the source of a config file for what it does not set. A submitted plan never does.
func TestALocalPlanUsesTheConfiguredSource(t *testing.T) {
	r := newMachine(t)
	r.Settings = &config.Settings{Sources: map[string]config.Source{"lab": {URL: "esxi://root@esx1", PasswordFile: "/pw", Fingerprint: "AA:BB"}}}
	for _, tt := range []struct {
		plan, env, file, print string
		role                   planfile.Role
	}{
		{sourcePlan, "", "/pw", "AA:BB", planfile.Local},
		{sourcePlan, "/env", "", "AA:BB", planfile.Local}, // the environment has precedence
		{strings.Replace(sourcePlan, "esx1}", "esx2}", 1), "", "", "", planfile.Local},
		{strings.Replace(sourcePlan, "esx1}", "esx1, credentials: {file: /own}}", 1), "", "/own", "AA:BB", planfile.Local},
		{strings.Replace(sourcePlan, "esx1}", "esx1, credentials: {file: /own}}", 1), "", "/own", "", planfile.Admin},
	} {
		var l Login
		r.vars[PasswordEnv] = tt.env
		if err := r.PlanLogin(&l, mustPlan(t, tt.plan), "", tt.role); err != nil || l.PasswordFile != tt.file || l.Fingerprint != tt.print {
			t.Errorf("%+v: %+v, %v", tt, l, err)
		}
	}
}

const boundAccess = `version: 1
credentials:
  esx1: {url: esxi://root@esx1, fingerprint: "%FP%", passwordFile: %FILE%, roles: [operate]}
  hosts: {ssh: {port: 2222, hostKeys: {ESX1: "SHA256:one"}}, passwordFile: %FILE%, roles: [operate]}
`

func (r *machine) bind() (fingerprint, file string) {
	fingerprint, file = strings.Repeat("AB", 32), r.put("esx1.password", "hush\n")
	r.put(planfile.AccessFile, strings.NewReplacer("%FP%", fingerprint, "%FILE%", file).Replace(boundAccess))
	return fingerprint, file
}

// A named credential is used with what it is bound to, also for a plan of the user's own.
func TestNamedCredentialIsUsedAsBound(t *testing.T) {
	r := newMachine(t)
	fingerprint, file := r.bind()
	named := strings.Replace(sourcePlan, "esx1}", "esx1, credentials: {name: esx1}, ssh: {credentials: {name: hosts}, enable: true}}", 1)
	for _, role := range []planfile.Role{planfile.Operate, planfile.Admin, planfile.Local} {
		var l Login
		if err := r.PlanLogin(&l, mustPlan(t, named), "", role); err != nil || l.PasswordFile != file || l.bound != fingerprint {
			t.Errorf("role %q: %+v, %v", role, l, err)
		}
		o, err := r.PlanSSH(mustPlan(t, named), "", role)
		if err != nil || o.User != "root" || o.Port != 2222 || o.PasswordFile != file || o.hostKeys["esx1"] != "SHA256:one" || !o.Enable || !o.noAgent {
			t.Errorf("role %q: %+v, %v", role, o, err)
		}
		if err := r.PlanLogin(new(Login), mustPlan(t, strings.Replace(named, "root@esx1", "root@evil", 1)), "", role); !fault.Is(err, fault.Denied) {
			t.Errorf("role %q at another host: %v", role, err)
		}
	}
	if f, err := r.InFiles(mustPlan(t, named)); err != nil || string(f.Source.Credentials.File) != file || string(f.Source.SSH.Credentials.File) != file {
		t.Errorf("files of the plan: %+v, %v", f.Source, err)
	}
	other := strings.ReplaceAll(named, "name: esx1", "name: other")
	r.vars["CREDENTIALS_DIRECTORY"] = "/run/credentials/decamp"
	var l Login
	if err := r.PlanLogin(&l, mustPlan(t, other), "", planfile.Local); err != nil || l.PasswordFile != "/run/credentials/decamp/other" || l.bound != "" {
		t.Errorf("a systemd credential here: %+v, %v", l, err)
	}
	if err := r.PlanLogin(&l, mustPlan(t, other), "", planfile.Admin); !fault.Is(err, fault.Denied) {
		t.Errorf("a systemd credential that is not bound: %v", err)
	}
}

// A credential for SSH logs in to the hosts that it has the keys of, and to no other.
func TestCredentialForSSHIsBoundToItsHosts(t *testing.T) {
	r := newMachine(t)
	r.bind()
	o, err := r.PlanSSH(mustPlan(t, strings.Replace(sourcePlan, "esx1}", "esx1, credentials: {name: esx1}, ssh: {credentials: {name: hosts}}}", 1)), "", planfile.Operate)
	if err != nil {
		t.Fatal(err)
	}
	h := &HostShells{assembler: r.Assembler, opts: o}
	if key, err := h.expectedKeys(t.Context(), "Esx1", "Esx1:2222"); key != "SHA256:one" || err != nil {
		t.Errorf("its host: %q, %v", key, err)
	}
	if key, err := h.expectedKeys(t.Context(), "esx2", "esx2:2222"); key != "" || !fault.Is(err, fault.Denied) || fault.HintOf(err) == "" {
		t.Errorf("another host: %q, %v", key, err)
	}
}

// The keys in a submitted plan of an administrator do not replace those that the machine knows.
func TestSubmittedPlanDoesNotReplaceAKnownHostKey(t *testing.T) {
	r := newMachine(t)
	pin := func(role planfile.Role, key string) (string, error) {
		text := strings.Replace(sourcePlan, "esx1}", `esx1, credentials: {file: /x}, ssh: {hostKeys: {esx1: "`+key+`"}}}`, 1)
		o, err := r.PlanSSH(mustPlan(t, text), "", role)
		if err != nil {
			t.Fatal(err)
		}
		return (&HostShells{assembler: r.Assembler, opts: o}).expectedKeys(t.Context(), "esx1", "esx1:22")
	}
	for _, v := range []struct {
		role     planfile.Role
		key      string
		conflict bool
	}{
		{planfile.Local, "SHA256:one", false}, {planfile.Admin, "SHA256:one", false}, {planfile.Admin, "SHA256:two", true},
		{planfile.Local, "SHA256:two", false}, {planfile.Admin, "SHA256:one", true},
	} {
		key, err := pin(v.role, v.key)
		if v.conflict != fault.Is(err, fault.Conflict) || !v.conflict && (err != nil || key != v.key) {
			t.Errorf("%s states %s: %q, %v", v.role, v.key, key, err)
		}
	}
}

// Nobody is asked for a password of a submitted plan, and no other account's is taken.
func TestSubmittedPlanAsksForNoSSHPassword(t *testing.T) {
	r := newMachine(t)
	r.vars[PasswordEnv] = r.put("password", "hush\n")
	r.Terminal = func() (Terminal, error) { t.Error("the terminal was asked"); return nil, os.ErrNotExist }
	h := &HostShells{assembler: r.Assembler, opts: SSHOptions{submitted: true}, login: sourceLogin{vcenter: true, host: "vc1", user: "ops", passwordFile: r.put("vc1", "secret\n")}}
	cfg := shell.Config{User: "root", Addr: "esx1:22"}
	if err := h.setPassword(&cfg, "esx1"); err != nil {
		t.Fatal(err)
	}
	if text, err := cfg.Password(t.Context()); text != "" || !fault.Is(err, fault.Denied) {
		t.Errorf("got %v", err)
	}
}

// A destination of the command line may be a named place, too. What is recorded is its name.
func TestPlaceOnTheCommandLine(t *testing.T) {
	r := newMachine(t)
	r.put(planfile.AccessFile, "version: 1\nplaces:\n  kvm: {to: \"libvirt:qemu:///system?pool=vms\"}\n")
	stage := t.TempDir()
	to, err := DestinationOf("place:kvm", stage)
	must(t, err)
	w := &Parts{}
	if err := r.OpenTargets(w, Move{Options: planfile.Options{To: []planfile.Destination{to}, Format: "raw"}}, planfile.Local); err != nil {
		t.Fatal(err)
	}
	if d := w.To[0]; d.To.Kind() != planfile.Place || d.At.Address() != "qemu:///system?pool=vms" || d.At.Folder() != stage {
		t.Errorf("%s stands for %s", d.To, d.At)
	}
	if err := r.OpenTargets(w, Move{Options: planfile.Options{To: []planfile.Destination{to}, Format: "raw"}}, planfile.Operate); !fault.Is(err, fault.Denied) {
		t.Errorf("for an operator: %v", err)
	}
	if err := r.OpenTargets(w, Move{Options: planfile.Options{To: []planfile.Destination{planfile.Destination(strings.Replace(string(to), "kvm", "other", 1))}, Format: "raw"}}, planfile.Local); !fault.Is(err, fault.Denied) {
		t.Errorf("an unknown one: %v", err)
	}
}

func TestAccessFileThatIsStatedHasToExist(t *testing.T) {
	r := newMachine(t)
	if a, err := r.Access(); err != nil || len(a.Credentials) > 0 {
		t.Errorf("the default: %v", err)
	}
	r.vars[AccessEnv] = filepath.Join(r.State, "nothing")
	if _, err := r.Access(); !fault.Is(err, fault.NotFound) {
		t.Errorf("stated: %v", err)
	}
}
