package fleet

import (
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/decamp/decamp/internal/fleetdb"
)

// An attacker is a server that counts the connections over TLS, and the secrets that it receives.
type attacker struct {
	*httptest.Server
	conns   atomic.Int64
	secrets atomic.Int64
}

func newAttacker(t *testing.T, secret string) *attacker {
	t.Helper()
	e := &attacker{}
	e.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, values := range r.Header {
			if strings.Contains(strings.Join(values, " "), secret) {
				e.secrets.Add(1)
			}
		}
		w.WriteHeader(http.StatusNotFound)
	}))
	e.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			e.conns.Add(1)
		}
	}
	e.StartTLS()
	t.Cleanup(e.Close)
	return e
}

func (e *attacker) addr() string { return e.Listener.Addr().String() }

// fingerprint returns the SHA-256 of the attacker's certificate.
func (e *attacker) fingerprint() string {
	sum := sha256.Sum256(e.Certificate().Raw)
	return strings.ToUpper(hex.EncodeToString(sum[:]))
}

// checkUntouched checks that no client has connected.
func (e *attacker) checkUntouched(t *testing.T) {
	t.Helper()
	if conns, secrets := e.conns.Load(), e.secrets.Load(); conns > 0 || secrets > 0 {
		t.Errorf("the attacker received %d connections and %d secrets, want none", conns, secrets)
	}
}

// writeAccess writes an access file in which operators may use the credential lab. It is bound to the address of the
// lab.
func (r *testEnv) writeAccess(places string) {
	r.t.Helper()
	text := "version: 1\ncredentials:\n  lab: {url: \"" + r.url + "\", fingerprint: \"" + r.lab.Fingerprint() + "\", passwordFile: " + filepath.Join(r.dir, "password") + ", roles: [operate]}\n"
	r.writeFile(filepath.Join("state", "access.yaml"), text+places)
}

// writeNamedPlan writes a plan that uses the credential lab.
func (r *testEnv) writeNamedPlan(name, rest string) string {
	r.t.Helper()
	return r.writeFile(name+".yaml", "version: 1\nname: "+name+"\nsource:\n  url: "+r.url+"\n  credentials: {name: lab}\n"+rest)
}

// operatorFlags returns the flags of a command that connects to the server with the role operate.
func (s *server) operatorFlags() []string {
	s.r.t.Helper()
	token := s.r.writeFile("operate.token", s.r.run("token", "add", "op", "--role", "operate").wantExit(0).stdout)
	return []string{"--server", "https://" + s.addr, "--token-file", token, "--server-fingerprint", s.fingerprint}
}

const pveSecret = "00000000-feed-4bad-beef-000000000000"

// A plan of an operator names a file of the server as its token, and the address of a listener. The token is not sent.
// The same plan of an administrator reaches the listener, which shows that the listener works.
func TestOperatorsPlanSendsNoTokenToAListener(t *testing.T) {
	t.Parallel()
	r, e := newTestEnv(t, labOf(1)), newAttacker(t, pveSecret)
	r.writeAccess("")
	token := r.writeFile("pve.token", "root@pam!decamp="+pveSecret+"\n")
	must(t, os.Chmod(token, 0o600))
	to := "proxmox:https://" + e.addr() + "/pve?token=" + token + "&fingerprint=" + e.fingerprint() + "&staging=" + r.vmFolder()
	s := r.startServer("127.0.0.1:0", "--offer", r.vmFolder())
	operator := s.operatorFlags()
	file := r.writeNamedPlan("attack", "defaults: {to: [\""+to+"\"]}\nselect: name ~ *\n")
	r.run(append([]string{"plan", "run", file, "--detach"}, operator...)...).wantExit(4).wantOutput("an address of proxmox", "role admin", "Remedy: ")

	// A user with write access to the database can bypass the server. The worker checks the plan again.
	text, err := os.ReadFile(file)
	must(t, err)
	_, err = r.database().Plans.Add(t.Context(), fleetdb.Plan{Name: "attack", Text: string(text), Folder: r.dir, By: "op", Role: "operate"})
	must(t, err)
	r.waitFor("attack", "is refused", func(v view) bool { return v.plan.Failure != nil && v.plan.Failure.Kind == "denied" })
	e.checkUntouched(t)

	s.runClient("plan", "run", r.writeNamedPlan("trusted", "defaults: {to: [\""+to+"\"]}\nselect: name ~ *\n"), "--detach").wantExit(0)
	eventually(t, "the plan of an administrator reaches the listener", func() bool { return e.secrets.Load() > 0 })
	s.runClient("audit").wantExit(0).wantOutput("submit a plan that sets defaults.to[0] (an address of proxmox")
}

// A plan of an operator cannot use a raw disk image as a kubeconfig. Such a file could name any file as its token.
func TestOperatorsPlanReadsNoKubeconfigFromADisk(t *testing.T) {
	t.Parallel()
	r, e := newTestEnv(t, labOf(1)), newAttacker(t, pveSecret)
	r.writeAccess("")
	token := r.writeFile("any.file", pveSecret+"\n")
	must(t, os.Mkdir(filepath.Join(r.vmFolder(), "old"), 0o700))
	config := "apiVersion: v1\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n" +
		"clusters: [{name: c, cluster: {server: \"https://" + e.addr() + "\", insecure-skip-tls-verify: true}}]\nusers: [{name: u, user: {tokenFile: " + token + "}}]\n"
	disk := filepath.Join(r.vmFolder(), "old", "disk.raw")
	must(t, os.WriteFile(disk, []byte(config+strings.Repeat("\n", 4096-len(config)%4096)), 0o600))
	to := "kubevirt:" + r.vmFolder() + "?kubeconfig=" + disk
	s := r.startServer("127.0.0.1:0", "--offer", r.vmFolder())
	file := r.writeNamedPlan("attack", "defaults: {to: [\""+to+"\"]}\nselect: name ~ *\n")
	r.run(append([]string{"plan", "run", file, "--detach"}, s.operatorFlags()...)...).wantExit(4).wantOutput("parameter kubeconfig", "Remedy: ")
	e.checkUntouched(t)

	s.runClient("plan", "run", r.writeNamedPlan("trusted", "defaults: {to: [\""+to+"\"]}\nselect: name ~ *\n"), "--detach").wantExit(0)
	eventually(t, "the plan of an administrator reaches the listener", func() bool { return e.secrets.Load() > 0 })
}

// A plan without credentials names the host of an attacker and its fingerprint. The server does not use its password
// file for a submitted plan. A command of a user reaches the host, which shows that the attacker's server works.
func TestSubmittedPlanWithoutCredentialsDoesNotLogIn(t *testing.T) {
	r, e := newTestEnv(t, labOf(1)), newAttacker(t, secret)
	r.writeAccess("")
	t.Setenv("DECAMP_PASSWORD_FILE", filepath.Join(r.dir, "password"))
	s := r.startServer("127.0.0.1:0", "--offer", r.vmFolder())
	operator := s.operatorFlags()
	rest := "defaults: {to: [dir:" + r.vmFolder() + "]}\nselect: name ~ *\n"
	for name, credentials := range map[string]string{"without": "", "named": "  credentials: {name: lab}\n"} {
		text := "version: 1\nname: " + name + "\nsource:\n  url: esxi://root@" + e.addr() + "\n  fingerprint: \"" + e.fingerprint() + "\"\n" + credentials + rest
		file := r.writeFile(name+".yaml", text)
		r.run(append([]string{"plan", "run", file, "--detach"}, operator...)...).wantExit(4).wantOutput("Remedy: ")
		s.runClient("plan", "run", file, "--detach").wantExit(4).wantOutput("Remedy: ")
		for _, role := range []string{"operate", "admin"} {
			_, err := r.database().Plans.Add(t.Context(), fleetdb.Plan{Name: name + role, Text: strings.Replace(text, "name: "+name, "name: "+name+role, 1), Folder: r.dir, By: "op", Role: role})
			must(t, err)
			r.waitFor(name+role, "is refused", func(v view) bool { return v.plan.Failure != nil && v.plan.Failure.Kind == "denied" })
		}
	}
	e.checkUntouched(t)
	must(t, os.Remove(filepath.Join(r.stateDir(), "access.yaml")))
	r.run("plan", "run", filepath.Join(r.dir, "without.yaml")).wantExit(4).wantOutput("a submitted plan has no credentials", "Remedy: ") // the server has the state directory
	s.stop()

	r.run("ls", "esxi://root@"+e.addr(), "--fingerprint", e.fingerprint())
	if e.conns.Load() == 0 {
		t.Error("a command of the user did not reach the listener")
	}
}

// An operator's plan may use a place that an administrator has allowed. Its secret is sent only to the address of the
// place.
func TestOperatorsPlanUsesANamedPlace(t *testing.T) {
	t.Parallel()
	r, e := newTestEnv(t, labOf(1)), newAttacker(t, pveSecret)
	token := r.writeFile("pve.token", "root@pam!decamp="+pveSecret+"\n")
	r.writeAccess("places:\n  pve: {to: \"proxmox:https://" + e.addr() + "/pve?token=" + token + "&fingerprint=" + e.fingerprint() + "\", roles: [operate]}\n" +
		"  prod: {to: \"proxmox:https://" + e.addr() + "/pve?token=" + token + "\"}\n")
	s := r.startServer("127.0.0.1:0", "--offer", r.vmFolder())
	operator := s.operatorFlags()
	prod := r.writeNamedPlan("prod", "defaults: {to: [\"place:prod?staging="+r.vmFolder()+"\"]}\nselect: name ~ *\n")
	r.run(append([]string{"plan", "run", prod, "--detach"}, operator...)...).wantExit(4).wantOutput("may not use the place prod", "Remedy: ")
	elsewhere := r.writeNamedPlan("elsewhere", "defaults: {to: [\"place:pve?staging="+r.dir+"\"]}\nselect: name ~ *\n")
	r.run(append([]string{"plan", "run", elsewhere, "--detach"}, operator...)...).wantExit(4).wantOutput("which no worker offers", "Remedy: ")
	e.checkUntouched(t)
	pve := r.writeNamedPlan("pve", "defaults: {to: [\"place:pve?staging="+r.vmFolder()+"\"]}\nselect: name ~ *\n")
	r.run(append([]string{"plan", "run", pve, "--detach"}, operator...)...).wantExit(0)
	eventually(t, "decamp logs in to the place", func() bool { return e.secrets.Load() > 0 })
}

// An operator's plan with a named credential and an offered folder is executed.
func TestOperatorsPlanIsExecuted(t *testing.T) {
	t.Parallel()
	r := newTestEnv(t, labOf(2))
	r.writeAccess("")
	s := r.startServer("127.0.0.1:0", "--offer", r.vmFolder())
	file := r.writeNamedPlan("named", "defaults: {to: [dir:"+filepath.Join(r.vmFolder())+"]}\nselect: name ~ *\n")
	r.run(append([]string{"plan", "run", file}, s.operatorFlags()...)...).wantExit(0).wantOutput("2 done")
	r.checkAllMoved("named", r.vmFolder(), 2, r.stateDir())
}
