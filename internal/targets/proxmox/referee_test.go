package proxmox

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/sleep"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/platform"
)

// fakepvePath is a fake of Proxmox VE by another author, which scripts/setup.sh installs. It checks each parameter
// against the schema of version 9. It imports nothing and accepts no uploads of disks.
const fakepvePath = "../../../build/fakepve/bin/fakepve"

// Each parameter of each guest and of each request matches the schema of the Proxmox API.
func TestRequestsMatchTheSchema(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath(fakepvePath); err != nil {
		t.Skip("no fakepve: run scripts/setup.sh test")
	}
	p := startFakepve(t)
	for _, def := range []targets.Definition{
		{VM: biosVM()},
		{VM: windowsVM()},
		{VM: windowsVM(), Hardware: targets.Virtio},
	} {
		for _, d := range def.VM.Disks {
			def.Images = append(def.Images, targets.Image{Key: d.Key, Format: targets.QCOW2})
		}
		sendAll(t, p, def)
	}
}

// sendAll sends all requests of a delivery except for the upload.
func sendAll(t *testing.T, p *Platform, def targets.Definition) {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	m, err := Config(def, p.opts)
	must(err)
	w := &importDelivery{
		delivery:      &delivery{clients: p.clients, Delivery: platform.Delivery{Definition: def}, machine: m, plan: "abcd"},
		uploadStorage: "local",
	}
	version, err := p.api.readVersion(ctx)
	must(err)
	must(p.newChecker().checkVersion(version))
	must(p.newChecker().checkOnline(ctx))
	_, err = p.storages.list(ctx)
	must(err)
	_, err = p.api.listBridges(ctx, p.node)
	must(err)
	_, err = p.api.missingPrivileges(ctx, "/vms/100", []string{"VM.Allocate"})
	must(err)
	g, err := w.createGuest(ctx, m.Base, w.plan)
	must(err)
	for _, d := range m.Disks {
		must(w.importDisk(ctx, g, d, upload{storage: "local", name: ownTag(def.VM) + "-" + d.Slot + ".qcow2"}))
	}
	must(p.uploads.awaitCopies(ctx, def.VM))
	must(w.finishGuest(ctx, g))
	sendDirect(t, p, def, g)
	again, err := p.guests.findGuest(ctx, def.VM)
	must(err)
	if again == nil || again.vmid != g.vmid || again.plan != "" {
		t.Errorf("findGuest returns %+v, want %+v", again, g)
	}
	_, err = p.Start(ctx, targets.Definition{VM: def.VM})
	must(err)
	_, err = p.api.runTask(ctx, http.MethodPost, guestPath(g.node, g.vmid)+"/status/stop", []Param{})
	must(err)
	must(p.guests.destroyGuest(ctx, g))
	if again, err := p.guests.findGuest(ctx, def.VM); err != nil || again != nil {
		t.Errorf("findGuest after destroyGuest: %+v, %v", again, err)
	}
}

// sendDirect sends the additional requests of a delivery over SSH. It ignores other errors about volumes: fakepve
// refuses parameters that the schema does not have as Invalid.
func sendDirect(t *testing.T, p *Platform, def targets.Definition, g *found) {
	t.Helper()
	opts := p.opts
	opts.SSH = "root@pve1"
	w, err := newSSHDelivery(p.clients, opts, platform.Delivery{Definition: def})
	if err != nil {
		t.Fatal(err)
	}
	m := w.machine
	for _, request := range []func() error{
		func() error {
			_, err := p.volumes.allocateVolume(t.Context(), w.VM, g.vmid, w.Images[0], storage{ID: "local-lvm"})
			return err
		},
		func() error { _, err := p.volumes.listOwn(t.Context(), w.VM, "local-lvm"); return err },
		func() error {
			_, err := p.volumes.inUse(t.Context(), volume{ID: "local-lvm:vm-999-x", vmid: 999})
			return err
		},
		func() error {
			params := w.missingOptions(nil, make([]string, len(m.Disks)))
			params = slices.DeleteFunc(params, func(p Param) bool { return p.Value == "" || p.Value[0] == ',' })
			_, err := p.api.runTask(t.Context(), http.MethodPost, guestPath(g.node, g.vmid)+"/config", params)
			return err
		},
		func() error { return w.dropVariables(t.Context(), g) },
	} {
		if err := request(); fault.Is(err, fault.Invalid) || fault.Is(err, fault.Unsupported) {
			t.Error(err)
		}
	}
}

// fakepve refuses parameters that do not match the schema.
func TestFakepveChecksTheSchema(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath(fakepvePath); err != nil {
		t.Skip("no fakepve: run scripts/setup.sh test")
	}
	p := startFakepve(t)
	for _, wrong := range []Param{{"scsihw", "bogus"}, {"name", "a b"}, {"net0", "vmxnet3=00:50:56:AB:CD:01,tag=5000"}, {"colour", "red"}} {
		_, err := p.api.runTask(t.Context(), http.MethodPost, "/nodes/pve1/qemu", []Param{{"vmid", "150"}, wrong})
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), wrong.Key) {
			t.Errorf("%v: %v", wrong, err)
		}
	}
}

// startFakepve starts fakepve at a free port and logs in.
func startFakepve(t *testing.T) *Platform {
	t.Helper()
	dir := t.TempDir()
	fingerprint := writeCertificate(t, dir)
	if err := os.WriteFile(filepath.Join(dir, "guests.json"), []byte(`{"guests": []}`), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, fakepvePath, "--host", "127.0.0.1", "--port", "0", "--password", "pw", "--time-scale", "0",
		"--cert", filepath.Join(dir, "cert.pem"), "--key", filepath.Join(dir, "key.pem"), filepath.Join(dir, "guests.json"))
	cmd.Env = append(os.Environ(), "PYTHONUNBUFFERED=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // error of the killed process
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	at := strings.Index(line, "https://")
	if err != nil || at < 0 {
		t.Fatalf("fakepve prints %q, %v", line, err)
	}
	p, err := New(strings.TrimSpace(line[at:])+"/pve1", Options{
		Token: "root@pam!decamp=pw", Fingerprint: fingerprint, Storage: "local-lvm",
		Wait: func(ctx context.Context, _ time.Duration) error { return sleep.For(ctx, 5*time.Millisecond) },
	})
	if err != nil {
		t.Fatal(err)
	}
	p.api.http.Transport = logIn(t, p)
	return p
}

// ticketTransport logs in with a password. fakepve has only tokens that are configured beforehand.
type ticketTransport struct {
	Ticket string `json:"ticket"`
	CSRF   string `json:"CSRFPreventionToken"`
	next   http.RoundTripper
}

func logIn(t *testing.T, p *Platform) *ticketTransport {
	t.Helper()
	own := &ticketTransport{next: p.api.http.Transport}
	form := url.Values{"username": {"root@pam"}, "password": {"pw"}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+p.api.host+"/api2/json/access/ticket", strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := p.api.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text := make([]byte, 4096)
	n, _ := bufio.NewReader(res.Body).Read(text)
	if err := decodeAnswer(text[:n], own); err != nil || own.Ticket == "" {
		t.Fatalf("log in: %s: %v", res.Status, err)
	}
	return own
}

func (k *ticketTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Del("Authorization")
	r.AddCookie(&http.Cookie{Name: "PVEAuthCookie", Value: k.Ticket})
	r.Header.Set("CSRFPreventionToken", k.CSRF)
	return k.next.RoundTrip(r)
}

// writeCertificate creates a certificate for fakepve and returns its fingerprint.
func writeCertificate(t *testing.T, dir string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "referee"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		"cert.pem": {Type: "CERTIFICATE", Bytes: der}, "key.pem": {Type: "PRIVATE KEY", Bytes: secret},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	sum := sha256.Sum256(der)
	return fmt.Sprint(hex.EncodeToString(sum[:]))
}
