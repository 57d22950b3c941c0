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

// behindProxy returns a rig whose host is reachable as esx1.test through a proxy only.
func behindProxy(t *testing.T) (*rig, *proxytest.Proxy) {
	t.Helper()
	r := newRig(t, smallLab()).withFingerprint()
	p := proxytest.Start(t, map[string]string{"esx1.test:443": r.lab.Addr()})
	p.User = "ada:" + proxySecret
	r.env = []string{"HTTPS_PROXY=" + strings.Replace(p.URL, "http://", "http://"+p.User+"@", 1), "NO_PROXY=127.0.0.0/8"}
	return r, p
}

// proxySecret is the password of the proxy. No output may contain it.
const proxySecret = "sesame-5b1c"

func TestMigrationThroughProxy(t *testing.T) {
	t.Parallel()
	r, p := behindProxy(t)
	log := filepath.Join(r.dir, "log")
	got := r.runOnSource("migrate", "esxi://root@esx1.test", "web01", "--to", "dir:"+r.vmsDir(), "--verbose", "--log-file", log).wantExit(0)
	r.compareImage(r.imagePath(0), "web01", 0)
	if seen := p.Seen(); len(seen) < 3 || slices.ContainsFunc(seen, func(host string) bool { return host != "esx1.test:443" }) {
		t.Errorf("the proxy received requests for %q", seen)
	}
	text, err := os.ReadFile(log)
	must(t, err)
	if len(text) == 0 || strings.Contains(got.stdout+got.stderr+string(text), proxySecret) {
		t.Error("the password of the proxy is in the output or the log")
	}
}

// The error of each client contains the proxy and the remedy if the proxy cannot connect to the address, requires a login
// or does not run.
func TestFailingProxyIsReported(t *testing.T) {
	t.Parallel()
	for output, breakSource := range map[string]func(*rig, *proxytest.Proxy){
		"502 Bad Gateway":                   func(*rig, *proxytest.Proxy) {},
		"407 Proxy Authentication Required": func(_ *rig, p *proxytest.Proxy) { p.User = "ada:other" },
		"connection refused": func(r *rig, p *proxytest.Proxy) {
			r.env[0] = strings.Replace(r.env[0], strings.TrimPrefix(p.URL, "http://"), loopback.Reserve(t), 1)
		},
	} {
		r, p := behindProxy(t)
		breakSource(r, p)
		for addr, command := range r.clientCommands() {
			if !lane.Slow && output != "502 Bad Gateway" && addr != "other.test:443" {
				continue // all clients use package proxy
			}
			t.Run(output+" "+addr, func(t *testing.T) {
				t.Parallel()
				r := *r
				r.t = t
				got := r.run(command...)
				host, _, _ := strings.Cut(addr, ":")
				got.wantOutput(output, "proxy http://127.0.0.1:", "add "+host+" to NO_PROXY")
				if got.code == 0 || strings.Contains(got.stdout+got.stderr, proxySecret) {
					t.Errorf("%q: exit code %d:\n%s%s", command, got.code, got.stdout, got.stderr)
				}
			})
		}
	}
}

// clientCommands returns a command for each client. The keys are the addresses that the commands connect to.
func (r *rig) clientCommands() map[string][]string {
	r.t.Helper()
	kubeconfig := r.writeFile("kubeconfig", `apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://kube.test:6443", insecure-skip-tls-verify: true}}]
users: [{name: u, user: {token: t}}]
`)
	token := r.writeFile("token", "root@pam!t=11111111-2222-3333-4444-555555555555\n")
	r.env = append(r.env, "OS_AUTH_URL=https://cloud.test:5000/v3", "OS_USERNAME=u", "OS_PASSWORD=p", "OS_PROJECT_NAME=p", "OS_USER_DOMAIN_NAME=d", "OS_PROJECT_DOMAIN_NAME=d")
	return map[string][]string{
		"other.test:443":  {"ls", "esxi://root@other.test"},
		"srv.test:8470":   {"status", "--server", "https://srv.test:8470"},
		"pve.test:8006":   {"doctor", "--to", "proxmox:https://pve.test:8006/pve?token=" + token + "&staging=" + r.vmsDir()},
		"cloud.test:5000": {"doctor", "--to", "openstack:?staging=" + r.vmsDir()},
		"kube.test:6443":  {"doctor", "--to", "kubevirt:" + r.vmsDir() + "?kubeconfig=" + kubeconfig},
	}
}

// A host in NO_PROXY is connected directly.
func TestNoProxy(t *testing.T) {
	t.Parallel()
	r, p := behindProxy(t)
	r.env = append(r.env, "NO_PROXY=esx1.test")
	got := r.runOnSource("ls", "esxi://root@esx1.test").wantExit(5)
	if seen := p.Seen(); len(seen) > 0 || strings.Contains(got.stderr, "proxy") {
		t.Errorf("the proxy received requests for %q; %s", seen, got.stderr)
	}
}
