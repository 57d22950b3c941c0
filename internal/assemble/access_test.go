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

// Each parameter of a destination has a class. Without one, an operator could use the rights of the server.
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

// The fingerprint in a submitted plan never replaces the stored fingerprint.
func TestSubmittedPlanDoesNotReplaceAKnownCertificate(t *testing.T) {
	r := newTestAssembler(t)
	r.mustTrust("AA:01", "AA:01")
	before := r.readState("known_hosts.json")
	for _, shown := range []string{"AA:01", "BB:02"} {
		err := r.verifyCertificate(t.Context(), host, shownCertificate(shown), Login{submitted: true, Fingerprint: "BB:02"})
		if !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "AA:01") || !strings.Contains(err.Error(), "BB:02") || fault.HintOf(err) == "" {
			t.Errorf("shown %s: %v", shown, err)
		}
	}
	if err := r.verifyCertificate(t.Context(), host, shownCertificate("AA:01"), Login{submitted: true, Fingerprint: "aa01"}); err != nil {
		t.Errorf("the same fingerprint: %v", err)
	}
	if after := r.readState("known_hosts.json"); after != before {
		t.Errorf("known hosts changed from %s to %s", before, after)
	}
}

// A named credential accepts only its bound fingerprint, and does not change the known hosts.
func TestCredentialIsBoundToItsCertificate(t *testing.T) {
	r := newTestAssembler(t)
	r.mustTrust("BB:02", "BB:02")
	before := r.readState("known_hosts.json")
	bound := Login{submitted: true, bound: "aa01"}
	if err := r.verifyCertificate(t.Context(), host, shownCertificate("AA:01"), bound); err != nil {
		t.Errorf("the bound fingerprint: %v", err)
	}
	err := r.verifyCertificate(t.Context(), host, shownCertificate("BB:02"), bound)
	if !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), "BB:02") || !strings.Contains(fault.HintOf(err), "access file") {
		t.Errorf("another fingerprint: %v", err)
	}
	if after := r.readState("known_hosts.json"); after != before {
		t.Errorf("known hosts changed from %s to %s", before, after)
	}
}

// readState returns the text of a file in the state directory.
func (r *testAssembler) readState(name string) string {
	r.t.Helper()
	text, err := os.ReadFile(filepath.Join(r.State, name))
	if err != nil {
		r.t.Fatal(err)
	}
	return string(text)
}

// writeState writes a file with mode 0600 to the state directory, and returns its path.
func (r *testAssembler) writeState(name, text string) string {
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

// A submitted plan does not use the password file of the environment. A local plan does.
func TestSubmittedPlanHasNoDefaultPassword(t *testing.T) {
	r := newTestAssembler(t)
	r.vars[PasswordEnv] = r.writeState("password", "hush\n")
	for _, role := range []planfile.Role{planfile.Operate, planfile.Admin, ""} {
		var l Login
		if err := r.PlanLogin(&l, mustPlan(t, sourcePlan), r.State, role); !fault.Is(err, fault.Denied) || fault.HintOf(err) == "" {
			t.Errorf("role %q: %v", role, err)
		}
	}
	var l Login
	if err := r.PlanLogin(&l, mustPlan(t, sourcePlan), r.State, planfile.Local); err != nil || l.submitted {
		t.Errorf("role local: %v", err)
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
		t.Error("the login connected to the host")
	}
}

// A local plan gets its missing values from the source in the config file. A submitted plan does not.
func TestALocalPlanUsesTheConfiguredSource(t *testing.T) {
	r := newTestAssembler(t)
	r.Settings = &config.Settings{Sources: map[string]config.Source{"lab": {URL: "esxi://root@esx1", PasswordFile: "/pw", Fingerprint: "AA:BB"}}}
	for _, tt := range []struct {
		plan, env, file, fingerprint string
		role                         planfile.Role
	}{
		{sourcePlan, "", "/pw", "AA:BB", planfile.Local},
		{sourcePlan, "/env", "", "AA:BB", planfile.Local}, // the environment has precedence
		{strings.Replace(sourcePlan, "esx1}", "esx2}", 1), "", "", "", planfile.Local},
		{strings.Replace(sourcePlan, "esx1}", "esx1, credentials: {file: /own}}", 1), "", "/own", "AA:BB", planfile.Local},
		{strings.Replace(sourcePlan, "esx1}", "esx1, credentials: {file: /own}}", 1), "", "/own", "", planfile.Admin},
	} {
		var l Login
		r.vars[PasswordEnv] = tt.env
		if err := r.PlanLogin(&l, mustPlan(t, tt.plan), "", tt.role); err != nil || l.PasswordFile != tt.file || l.Fingerprint != tt.fingerprint {
			t.Errorf("%+v: got login %+v, %v", tt, l, err)
		}
	}
}

const boundAccess = `version: 1
credentials:
  esx1: {url: esxi://root@esx1, fingerprint: "%FP%", passwordFile: %FILE%, roles: [operate]}
  hosts: {ssh: {port: 2222, hostKeys: {ESX1: "SHA256:one"}}, passwordFile: %FILE%, roles: [operate]}
`

// writeAccessFile writes boundAccess as the access file.
func (r *testAssembler) writeAccessFile() (fingerprint, file string) {
	fingerprint, file = strings.Repeat("AB", 32), r.writeState("esx1.password", "hush\n")
	r.writeState(planfile.AccessFile, strings.NewReplacer("%FP%", fingerprint, "%FILE%", file).Replace(boundAccess))
	return fingerprint, file
}

// A named credential is valid only for its bound host and certificate, also in a local plan.
func TestNamedCredentialIsBoundToHostAndCertificate(t *testing.T) {
	r := newTestAssembler(t)
	fingerprint, file := r.writeAccessFile()
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
			t.Errorf("role %q for another host: %v", role, err)
		}
	}
	if f, err := r.InFiles(mustPlan(t, named)); err != nil || string(f.Source.Credentials.File) != file || string(f.Source.SSH.Credentials.File) != file {
		t.Errorf("files of the plan: %+v, %v", f.Source, err)
	}
	other := strings.ReplaceAll(named, "name: esx1", "name: other")
	r.vars["CREDENTIALS_DIRECTORY"] = "/run/credentials/decamp"
	var l Login
	if err := r.PlanLogin(&l, mustPlan(t, other), "", planfile.Local); err != nil || l.PasswordFile != "/run/credentials/decamp/other" || l.bound != "" {
		t.Errorf("a systemd credential in a local plan: %+v, %v", l, err)
	}
	if err := r.PlanLogin(&l, mustPlan(t, other), "", planfile.Admin); !fault.Is(err, fault.Denied) {
		t.Errorf("a systemd credential in a submitted plan: %v", err)
	}
}

// A credential for SSH is valid only for the hosts whose keys it contains.
func TestCredentialForSSHIsBoundToItsHosts(t *testing.T) {
	r := newTestAssembler(t)
	r.writeAccessFile()
	o, err := r.PlanSSH(mustPlan(t, strings.Replace(sourcePlan, "esx1}", "esx1, credentials: {name: esx1}, ssh: {credentials: {name: hosts}}}", 1)), "", planfile.Operate)
	if err != nil {
		t.Fatal(err)
	}
	h := &HostShells{assembler: r.Assembler, opts: o}
	if key, err := h.expectedKeys(t.Context(), "Esx1", "Esx1:2222"); key != "SHA256:one" || err != nil {
		t.Errorf("a host of the credential: %q, %v", key, err)
	}
	if key, err := h.expectedKeys(t.Context(), "esx2", "esx2:2222"); key != "" || !fault.Is(err, fault.Denied) || fault.HintOf(err) == "" {
		t.Errorf("another host: %q, %v", key, err)
	}
}

// The host keys in a submitted plan do not replace the stored keys, even if an administrator submitted it.
func TestSubmittedPlanDoesNotReplaceAKnownHostKey(t *testing.T) {
	r := newTestAssembler(t)
	expectedKey := func(role planfile.Role, key string) (string, error) {
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
		key, err := expectedKey(v.role, v.key)
		if v.conflict != fault.Is(err, fault.Conflict) || !v.conflict && (err != nil || key != v.key) {
			t.Errorf("role %s with key %s: got %q, %v", v.role, v.key, key, err)
		}
	}
}

// A submitted plan neither prompts for an SSH password nor uses the password of another account.
func TestSubmittedPlanDoesNotPromptForSSHPassword(t *testing.T) {
	r := newTestAssembler(t)
	r.vars[PasswordEnv] = r.writeState("password", "hush\n")
	r.Terminal = func() (Terminal, error) { t.Error("the plan opened the terminal"); return nil, os.ErrNotExist }
	h := &HostShells{assembler: r.Assembler, opts: SSHOptions{submitted: true}, login: sourceLogin{vcenter: true, host: "vc1", user: "ops", passwordFile: r.writeState("vc1", "secret\n")}}
	cfg := shell.Config{User: "root", Addr: "esx1:22"}
	if err := h.setPassword(&cfg, "esx1"); err != nil {
		t.Fatal(err)
	}
	if text, err := cfg.Password(t.Context()); text != "" || !fault.Is(err, fault.Denied) {
		t.Errorf("got %v", err)
	}
}

// --to accepts a named place, and the destination keeps its name.
func TestCommandLineAcceptsNamedPlace(t *testing.T) {
	r := newTestAssembler(t)
	r.writeState(planfile.AccessFile, "version: 1\nplaces:\n  kvm: {to: \"libvirt:qemu:///system?pool=vms\"}\n")
	stage := t.TempDir()
	to, err := DestinationOf("place:kvm", stage)
	must(t, err)
	w := &Parts{}
	if err := r.OpenTargets(w, Move{Options: planfile.Options{To: []planfile.Destination{to}, Format: "raw"}}, planfile.Local); err != nil {
		t.Fatal(err)
	}
	if d := w.To[0]; d.To.Kind() != planfile.Place || d.At.Address() != "qemu:///system?pool=vms" || d.At.Folder() != stage {
		t.Errorf("place %s resolves to %s", d.To, d.At)
	}
	if err := r.OpenTargets(w, Move{Options: planfile.Options{To: []planfile.Destination{to}, Format: "raw"}}, planfile.Operate); !fault.Is(err, fault.Denied) {
		t.Errorf("a place in a plan of an operator: %v", err)
	}
	if err := r.OpenTargets(w, Move{Options: planfile.Options{To: []planfile.Destination{planfile.Destination(strings.Replace(string(to), "kvm", "other", 1))}, Format: "raw"}}, planfile.Local); !fault.Is(err, fault.Denied) {
		t.Errorf("an unknown place: %v", err)
	}
}

func TestConfiguredAccessFileMustExist(t *testing.T) {
	r := newTestAssembler(t)
	if a, err := r.Access(); err != nil || len(a.Credentials) > 0 {
		t.Errorf("no access file at the default path: %v", err)
	}
	r.vars[AccessEnv] = filepath.Join(r.State, "nothing")
	if _, err := r.Access(); !fault.Is(err, fault.NotFound) {
		t.Errorf("no access file at the path of the environment: %v", err)
	}
}
