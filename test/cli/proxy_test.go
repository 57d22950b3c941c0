package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/lab/loopback"
	"github.com/decamp/decamp/internal/proxy/proxytest"
	"github.com/decamp/decamp/test/lane"
)

// behindProxy returns a rig whose host is reachable only through a proxy, by the name esx1.test.
func behindProxy(t *testing.T) (*rig, *proxytest.Proxy) {
	t.Helper()
	r := newRig(t, small()).trusting()
	p := proxytest.Start(t, map[string]string{"esx1.test:443": r.lab.Addr()})
	p.User = "ada:" + proxySecret
	r.env = []string{"HTTPS_PROXY=" + strings.Replace(p.URL, "http://", "http://"+p.User+"@", 1), "NO_PROXY=127.0.0.0/8"}
	return r, p
}

// proxySecret is the password of the proxy; no output may contain it.
const proxySecret = "sesame-5b1c"

func TestAMigrationThroughAProxy(t *testing.T) {
	t.Parallel()
	r, p := behindProxy(t)
	log := filepath.Join(r.dir, "log")
	got := r.source("migrate", "esxi://root@esx1.test", "web01", "--to", "dir:"+r.vms(), "--verbose", "--log-file", log).ends(0)
	r.sameAsSource(r.image(0), "web01", 0)
	if seen := p.Seen(); len(seen) < 3 || slices.ContainsFunc(seen, func(host string) bool { return host != "esx1.test:443" }) {
		t.Errorf("the proxy has seen %q", seen)
	}
	text, err := os.ReadFile(log)
	must(t, err)
	if len(text) == 0 || strings.Contains(got.stdout+got.stderr+string(text), proxySecret) {
		t.Error("the password of the proxy is in the output or the log")
	}
}

// Each client names the proxy and the remedy if the proxy cannot connect to the address, requires a login, or
// does not run.
func TestAProxyThatFails(t *testing.T) {
	t.Parallel()
	for says, ruin := range map[string]func(*rig, *proxytest.Proxy){
		"502 Bad Gateway":                   func(*rig, *proxytest.Proxy) {},
		"407 Proxy Authentication Required": func(_ *rig, p *proxytest.Proxy) { p.User = "ada:other" },
		"connection refused": func(r *rig, p *proxytest.Proxy) {
			r.env[0] = strings.Replace(r.env[0], strings.TrimPrefix(p.URL, "http://"), loopback.Reserve(t), 1)
		},
	} {
		r, p := behindProxy(t)
		ruin(r, p)
		for addr, command := range r.clientCommands() {
			if !lane.Slow && says != "502 Bad Gateway" && addr != "other.test:443" {
				continue // all clients use package proxy
			}
			t.Run(says+" "+addr, func(t *testing.T) {
				t.Parallel()
				r := *r
				r.t = t
				got := r.run(command...)
				host, _, _ := strings.Cut(addr, ":")
				got.says(says, "proxy http://127.0.0.1:", "add "+host+" to NO_PROXY")
				if got.code == 0 || strings.Contains(got.stdout+got.stderr, proxySecret) {
					t.Errorf("%q: exit code %d:\n%s%s", command, got.code, got.stdout, got.stderr)
				}
			})
		}
	}
}

// clientCommands returns a command for each client, by the address that it requests.
func (r *rig) clientCommands() map[string][]string {
	r.t.Helper()
	kubeconfig := r.write("kubeconfig", `apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://kube.test:6443", insecure-skip-tls-verify: true}}]
users: [{name: u, user: {token: t}}]
`)
	token := r.write("token", "root@pam!t=11111111-2222-3333-4444-555555555555\n")
	r.env = append(r.env, "OS_AUTH_URL=https://cloud.test:5000/v3", "OS_USERNAME=u", "OS_PASSWORD=p", "OS_PROJECT_NAME=p", "OS_USER_DOMAIN_NAME=d", "OS_PROJECT_DOMAIN_NAME=d")
	return map[string][]string{
		"other.test:443":  {"ls", "esxi://root@other.test"},
		"srv.test:8470":   {"status", "--server", "https://srv.test:8470"},
		"pve.test:8006":   {"doctor", "--to", "proxmox:https://pve.test:8006/pve?token=" + token + "&staging=" + r.vms()},
		"cloud.test:5000": {"doctor", "--to", "openstack:?staging=" + r.vms()},
		"kube.test:6443":  {"doctor", "--to", "kubevirt:" + r.vms() + "?kubeconfig=" + kubeconfig},
	}
}

// NO_PROXY selects a direct connection.
func TestNoProxy(t *testing.T) {
	t.Parallel()
	r, p := behindProxy(t)
	r.env = append(r.env, "NO_PROXY=esx1.test")
	got := r.source("ls", "esxi://root@esx1.test").ends(5)
	if seen := p.Seen(); len(seen) > 0 || strings.Contains(got.stderr, "proxy") {
		t.Errorf("the proxy has seen %q; %s", seen, got.stderr)
	}
}
