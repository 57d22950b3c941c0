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

// eve is a machine of an attacker: it answers over TLS, and counts who connects and what secrets arrive.
type eve struct {
	*httptest.Server
	conns   atomic.Int64
	secrets atomic.Int64
}

func newEve(t *testing.T, words string) *eve {
	t.Helper()
	e := &eve{}
	e.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, values := range r.Header {
			if strings.Contains(strings.Join(values, " "), words) {
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

func (e *eve) addr() string { return e.Listener.Addr().String() }

// fingerprint is the SHA-256 of the certificate of eve.
func (e *eve) fingerprint() string {
	sum := sha256.Sum256(e.Certificate().Raw)
	return strings.ToUpper(hex.EncodeToString(sum[:]))
}

// mustBeUntouched checks that no client connected.
func (e *eve) mustBeUntouched(t *testing.T) {
	t.Helper()
	if conns, secrets := e.conns.Load(), e.secrets.Load(); conns > 0 || secrets > 0 {
		t.Errorf("the attacker got %d connections, and the secret %d times", conns, secrets)
	}
}

// bind writes an access file with the lab as credential lab, for operators.
func (r *rig) bind(places string) {
	r.t.Helper()
	text := "version: 1\ncredentials:\n  lab: {url: \"" + r.url + "\", fingerprint: \"" + r.lab.Fingerprint() + "\", passwordFile: " + filepath.Join(r.dir, "password") + ", roles: [operate]}\n"
	r.write(filepath.Join("state", "access.yaml"), text+places)
}

// named is a plan of the lab by its named credential.
func (r *rig) named(name, rest string) string {
	r.t.Helper()
	return r.write(name+".yaml", "version: 1\nname: "+name+"\nsource:\n  url: "+r.url+"\n  credentials: {name: lab}\n"+rest)
}

// operates returns the flags of a command that connects to the server with the role operate.
func (s *serving) operates() []string {
	s.r.t.Helper()
	token := s.r.write("operate.token", s.r.run("token", "add", "op", "--role", "operate").ends(0).stdout)
	return []string{"--server", "https://" + s.addr, "--token-file", token, "--server-fingerprint", s.fingerprint}
}

const pveSecret = "00000000-feed-4bad-beef-000000000000"

// A plan of an operator names a file of the server with a token, and the address of a listener. The same plan of an
// administrator reaches the listener, so the listener would have noticed.
func TestOperatorsPlanSendsNoTokenToAListener(t *testing.T) {
	t.Parallel()
	r, e := newRig(t, many(1)), newEve(t, pveSecret)
	r.bind("")
	token := r.write("pve.token", "root@pam!decamp="+pveSecret+"\n")
	must(t, os.Chmod(token, 0o600))
	to := "proxmox:https://" + e.addr() + "/pve?token=" + token + "&fingerprint=" + e.fingerprint() + "&staging=" + r.vms()
	s := r.serve("127.0.0.1:0", "--offer", r.vms())
	operator := s.operates()
	file := r.named("attack", "defaults: {to: [\""+to+"\"]}\nselect: name ~ *\n")
	r.run(append([]string{"plan", "run", file, "--detach"}, operator...)...).ends(4).says("an address of proxmox", "role admin", "Remedy: ")

	// Who can write to the database skips the server. The worker checks again.
	text, err := os.ReadFile(file)
	must(t, err)
	_, err = r.database().Plans.Add(t.Context(), fleetdb.Plan{Name: "attack", Text: string(text), Folder: r.dir, By: "op", Role: "operate"})
	must(t, err)
	r.until("attack", "is refused", func(v view) bool { return v.plan.Failure != nil && v.plan.Failure.Kind == "denied" })
	e.mustBeUntouched(t)

	s.asks("plan", "run", r.named("trusted", "defaults: {to: [\""+to+"\"]}\nselect: name ~ *\n"), "--detach").ends(0)
	eventually(t, "the plan of an administrator reaches the listener", func() bool { return e.secrets.Load() > 0 })
	s.asks("audit").ends(0).says("submit a plan that sets defaults.to[0] (an address of proxmox")
}

// A raw disk image that reads as a kubeconfig names any file as its token.
func TestOperatorsPlanReadsNoKubeconfigFromADisk(t *testing.T) {
	t.Parallel()
	r, e := newRig(t, many(1)), newEve(t, pveSecret)
	r.bind("")
	token := r.write("any.file", pveSecret+"\n")
	must(t, os.Mkdir(filepath.Join(r.vms(), "old"), 0o700))
	config := "apiVersion: v1\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n" +
		"clusters: [{name: c, cluster: {server: \"https://" + e.addr() + "\", insecure-skip-tls-verify: true}}]\nusers: [{name: u, user: {tokenFile: " + token + "}}]\n"
	disk := filepath.Join(r.vms(), "old", "disk.raw")
	must(t, os.WriteFile(disk, []byte(config+strings.Repeat("\n", 4096-len(config)%4096)), 0o600))
	to := "kubevirt:" + r.vms() + "?kubeconfig=" + disk
	s := r.serve("127.0.0.1:0", "--offer", r.vms())
	file := r.named("attack", "defaults: {to: [\""+to+"\"]}\nselect: name ~ *\n")
	r.run(append([]string{"plan", "run", file, "--detach"}, s.operates()...)...).ends(4).says("parameter kubeconfig", "Remedy: ")
	e.mustBeUntouched(t)

	s.asks("plan", "run", r.named("trusted", "defaults: {to: [\""+to+"\"]}\nselect: name ~ *\n"), "--detach").ends(0)
	eventually(t, "the plan of an administrator reaches the listener", func() bool { return e.secrets.Load() > 0 })
}

// A plan without credentials names the host of an attacker, and its fingerprint. The password file of the
// server is not for submitted plans. A command of the user reaches the host, as it always did.
func TestSubmittedPlanWithoutCredentialsLogsInNowhere(t *testing.T) {
	r, e := newRig(t, many(1)), newEve(t, secret)
	r.bind("")
	t.Setenv("DECAMP_PASSWORD_FILE", filepath.Join(r.dir, "password"))
	s := r.serve("127.0.0.1:0", "--offer", r.vms())
	operator := s.operates()
	rest := "defaults: {to: [dir:" + r.vms() + "]}\nselect: name ~ *\n"
	for name, credentials := range map[string]string{"without": "", "named": "  credentials: {name: lab}\n"} {
		text := "version: 1\nname: " + name + "\nsource:\n  url: esxi://root@" + e.addr() + "\n  fingerprint: \"" + e.fingerprint() + "\"\n" + credentials + rest
		file := r.write(name+".yaml", text)
		r.run(append([]string{"plan", "run", file, "--detach"}, operator...)...).ends(4).says("Remedy: ")
		s.asks("plan", "run", file, "--detach").ends(4).says("Remedy: ")
		for _, role := range []string{"operate", "admin"} {
			_, err := r.database().Plans.Add(t.Context(), fleetdb.Plan{Name: name + role, Text: strings.Replace(text, "name: "+name, "name: "+name+role, 1), Folder: r.dir, By: "op", Role: role})
			must(t, err)
			r.until(name+role, "is refused", func(v view) bool { return v.plan.Failure != nil && v.plan.Failure.Kind == "denied" })
		}
	}
	e.mustBeUntouched(t)
	must(t, os.Remove(filepath.Join(r.state(), "access.yaml")))
	r.run("plan", "run", filepath.Join(r.dir, "without.yaml")).ends(4).says("a submitted plan has no credentials", "Remedy: ") // the server has the state directory
	s.stops()

	r.run("ls", "esxi://root@"+e.addr(), "--fingerprint", e.fingerprint())
	if e.conns.Load() == 0 {
		t.Error("a command of the user does not reach the listener, so it would not have noticed")
	}
}

// The secret of a place is sent to the address that the administrator bound it to.
func TestOperatorsPlanUsesANamedPlace(t *testing.T) {
	t.Parallel()
	r, e := newRig(t, many(1)), newEve(t, pveSecret)
	token := r.write("pve.token", "root@pam!decamp="+pveSecret+"\n")
	r.bind("places:\n  pve: {to: \"proxmox:https://" + e.addr() + "/pve?token=" + token + "&fingerprint=" + e.fingerprint() + "\", roles: [operate]}\n" +
		"  prod: {to: \"proxmox:https://" + e.addr() + "/pve?token=" + token + "\"}\n")
	s := r.serve("127.0.0.1:0", "--offer", r.vms())
	operator := s.operates()
	prod := r.named("prod", "defaults: {to: [\"place:prod?staging="+r.vms()+"\"]}\nselect: name ~ *\n")
	r.run(append([]string{"plan", "run", prod, "--detach"}, operator...)...).ends(4).says("may not use the place prod", "Remedy: ")
	elsewhere := r.named("elsewhere", "defaults: {to: [\"place:pve?staging="+r.dir+"\"]}\nselect: name ~ *\n")
	r.run(append([]string{"plan", "run", elsewhere, "--detach"}, operator...)...).ends(4).says("which no worker offers", "Remedy: ")
	e.mustBeUntouched(t)
	pve := r.named("pve", "defaults: {to: [\"place:pve?staging="+r.vms()+"\"]}\nselect: name ~ *\n")
	r.run(append([]string{"plan", "run", pve, "--detach"}, operator...)...).ends(0)
	eventually(t, "the place is logged in to", func() bool { return e.secrets.Load() > 0 })
}

// An operator's plan with a named credential and an offered folder is carried out.
func TestOperatorsPlanIsCarriedOut(t *testing.T) {
	t.Parallel()
	r := newRig(t, many(2))
	r.bind("")
	s := r.serve("127.0.0.1:0", "--offer", r.vms())
	file := r.named("named", "defaults: {to: [dir:"+filepath.Join(r.vms())+"]}\nselect: name ~ *\n")
	r.run(append([]string{"plan", "run", file}, s.operates()...)...).ends(0).says("2 done")
	r.allIsHere("named", r.vms(), 2, r.state())
}
