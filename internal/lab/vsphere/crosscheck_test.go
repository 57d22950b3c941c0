package vsphere

import (
	"bytes"
	"crypto/sha1"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/decamp/decamp/internal/lab/executable"
)

// These tests use independent clients: curl, and VMware's govc built from the pinned module.

// requireProgram skips the test if a program is not installed.
func requireProgram(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("needs %s: %v", program, err)
	}
}

// runProgram returns the output of a program, and an error if it failed.
func runProgram(t *testing.T, env []string, name string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// buildGovc builds govc once for all tests of a run.
var buildGovc = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "govc-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "govc")
	if out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", path, "github.com/decamp/decamp/test/govc").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build govc: %w\n%s", err, out)
	}
	return os.ReadFile(path)
})

// newGovc returns a function that runs govc against the lab, in a separate session.
func newGovc(t *testing.T, l *Lab, password string) func(args ...string) (string, error) {
	t.Helper()
	if testing.Short() {
		t.Skip("builds govc")
	}
	requireProgram(t, "go")
	program, err := buildGovc()
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	path := filepath.Join(home, "govc")
	executable.Write(t, path, string(program))
	env := []string{
		"GOVC_URL=" + l.URL(), "GOVC_USERNAME=" + l.User(), "GOVC_PASSWORD=" + password, "GOVC_INSECURE=1", "GOVMOMI_HOME=" + home, "GOVC_PERSIST_SESSION=true",
	}
	return func(args ...string) (string, error) { return runProgram(t, env, path, args...) }
}

func TestGovcAgainstESXi(t *testing.T) {
	on := web01()
	on.Name, on.PoweredOn = "two words", true
	l := startLab(t, Config{VMs: []VM{web01(), on}})
	g := newGovc(t, l, l.Password())
	for _, tc := range []struct {
		args []string
		want []string
	}{
		{[]string{"about"}, []string{"VMware ESXi", "8.0.3", "HostAgent"}},
		{[]string{"session.ls"}, []string{"root"}},
		{[]string{"find", "-type", "m"}, []string{"/ha-datacenter/vm/web01", "/ha-datacenter/vm/two words"}},
		{[]string{"vm.info", "web01"}, []string{"Name:           web01", "poweredOff"}},
		{[]string{"vm.info", "two words"}, []string{"poweredOn"}},
		{[]string{"device.info", "-vm", "web01", "disk-*"}, []string{"Hard disk 1", "[datastore1] web01/web01.vmdk"}},
		{[]string{"device.ls", "-vm", "web01"}, []string{"ParaVirtualSCSIController", "ethernet-0"}},
		{[]string{"datastore.info", "datastore1"}, []string{"VMFS"}},
		{[]string{"vm.power", "-on", "web01"}, []string{"OK"}},
		{[]string{"vm.power", "-off", "web01"}, []string{"OK"}},
		{[]string{"snapshot.create", "-vm", "web01", "s1"}, nil},
		{[]string{"snapshot.tree", "-vm", "web01"}, []string{"s1"}},
		{[]string{"snapshot.remove", "-vm", "web01", "*"}, nil},
		{[]string{"vm.power", "-s", "two words"}, []string{"OK"}},
		{[]string{"session.logout"}, nil},
	} {
		out, err := g(tc.args...)
		if err != nil {
			t.Errorf("govc %s: %v\n%s", tc.args, err, out)
		}
		for _, want := range tc.want {
			if !strings.Contains(out, want) {
				t.Errorf("govc %s: no %q in\n%s", tc.args, want, out)
			}
		}
	}
	// The browser API shows a disk as one file and hides its data.
	out, err := g("datastore.ls", "-ds", "datastore1", "web01")
	if err != nil || !strings.Contains(out, "web01.vmdk") || strings.Contains(out, "-flat") {
		t.Errorf("datastore.ls: %v\n%s", err, out)
	}
}

func TestGovcDownloadsByteForByte(t *testing.T) {
	for _, cfg := range []Config{{}, {VCenter: true}, {VCenter: true, HostListeners: true}} {
		cfg.VMs = []VM{web01()}
		l := startLab(t, cfg)
		target := filepath.Join(t.TempDir(), "disk")
		out, err := newGovc(t, l, l.Password())("datastore.download", "-ds", "datastore1", flat, target)
		if err != nil {
			t.Fatalf("govc: %v\n%s", err, out)
		}
		got, err := os.ReadFile(target)
		if err != nil || !bytes.Equal(got, diskBytes(t, l)) {
			t.Errorf("vcenter %v: %d bytes differ from the disk: %v", cfg.VCenter, len(got), err)
		}
	}
}

func TestGovcWrongPassword(t *testing.T) {
	l := startLab(t, Config{VMs: []VM{web01()}})
	if out, err := newGovc(t, l, "wrong")("session.login"); err == nil || !strings.Contains(out, "incorrect") && !strings.Contains(out, "Login failure") {
		t.Errorf("govc: %v\n%s", err, out)
	}
}

func TestGovcAgainstVCenter(t *testing.T) {
	l := startLab(t, Config{VCenter: true, VMs: []VM{web01()}})
	g := newGovc(t, l, l.Password())
	for args, want := range map[string]string{
		"about":          "VMware vCenter Server",
		"find / -type h": "/Lab/DC1/host/esx1.lab/esx1.lab",
		"find / -type s": "/Lab/DC1/datastore/datastore2",
		"vm.info web01":  "esx1.lab",
		"datastore.info": "datastore1",
		"ls /Lab/DC1/vm": "web01",
	} {
		if out, err := g(strings.Fields(args)...); err != nil || !strings.Contains(out, want) {
			t.Errorf("govc %s: %v, no %q in\n%s", args, err, want, out)
		}
	}
}

// runCurl runs curl, which accepts only the lab's certificate.
func runCurl(t *testing.T, l *Lab, args ...string) (string, error) {
	t.Helper()
	requireProgram(t, "curl")
	pin := filepath.Join(t.TempDir(), "cert.pem")
	if err := os.WriteFile(pin, l.CertificatePEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	return runProgram(t, nil, "curl", append([]string{"-sS", "--cacert", pin}, args...)...)
}

func TestCurl(t *testing.T) {
	on := web01()
	on.Name, on.PoweredOn = "on", true
	l := startLab(t, Config{VMs: []VM{web01(), on}})
	dir := t.TempDir()
	jar, body := filepath.Join(dir, "jar"), filepath.Join(dir, "body")
	user := []string{"-u", l.User() + ":" + l.Password()}
	code := []string{"-o", body, "-w", "%{http_code}"}
	want := diskBytes(t, l)
	for _, tc := range []struct {
		what string
		args []string
		code string
		body []byte
	}{
		{"listing", append(user, folderURL(l, "web01")), "200", nil},
		{"login into a jar", append(user, "-c", jar, "-r", "0-1023", folderURL(l, flat)), "206", want[:1024]},
		{"cookie alone", []string{"-b", jar, "-r", "1000-2999999", folderURL(l, flat)}, "206", want[1000:3000000]},
		{"whole disk", []string{"-b", jar, folderURL(l, flat)}, "200", want},
		{"last bytes", []string{"-b", jar, "-r", "-777", folderURL(l, flat)}, "206", want[len(want)-777:]},
		{"resume", []string{"-b", jar, "-r", "8388000-", folderURL(l, flat)}, "206", want[8388000:]},
		{"head", append(user, "-I", folderURL(l, flat)), "200", nil},
		{"no login", []string{folderURL(l, flat)}, "401", nil},
		{"wrong password", []string{"-u", "root:wrong", folderURL(l, flat)}, "401", nil},
		{"missing", append(user, folderURL(l, "web01/gone.vmdk")), "404", nil},
		{"past the end", append(user, "-r", "8388608-", folderURL(l, flat)), "416", nil},
		{"locked", append(user, folderURL(l, "on/on-flat.vmdk")), "500", nil},
	} {
		out, err := runCurl(t, l, append(code, tc.args...)...)
		if err != nil || out != tc.code {
			t.Errorf("%s: %s, %v; want %s", tc.what, out, err, tc.code)
		}
		if got, _ := os.ReadFile(body); tc.body != nil && !bytes.Equal(got, tc.body) {
			t.Errorf("%s: %d bytes (%x), want %d", tc.what, len(got), sha1.Sum(got), len(tc.body))
		}
	}
	if _, err := l.Faults().Add(Fault{Kind: FaultStatus, Count: 1}); err != nil {
		t.Fatal(err)
	}
	// curl retries after a 503.
	out, err := runCurl(t, l, append(append(code, user...), "--retry", "2", "--retry-delay", "1", "-r", "0-9", folderURL(l, flat))...)
	if err != nil || !strings.HasSuffix(out, "206") || l.Stats().Status[503] != 1 {
		t.Errorf("busy once: %s, %v, %v", out, err, l.Stats().Status)
	}
}

func TestCurlDetectsBrokenBodies(t *testing.T) {
	for kind, code := range map[FaultKind]string{FaultShort: "18", FaultReset: "56"} { // partial file; failure in receiving
		l := startLab(t, Config{VMs: []VM{web01()}, Faults: []Fault{{Kind: kind, At: 5000}}})
		out, err := runCurl(t, l, "-u", l.User()+":"+l.Password(), "-o", os.DevNull, folderURL(l, flat))
		if err == nil || !strings.Contains(out, "("+code+")") {
			t.Errorf("%s: %v\n%s", kind, err, out)
		}
	}
}

// The control API can be used with curl.
func TestControlAPIWithCurl(t *testing.T) {
	l := startLab(t, Config{VMs: []VM{web01()}})
	requireProgram(t, "curl")
	out, err := runProgram(t, nil, "curl", "-sS", "-d", `{"kind":"status","status":503,"count":1}`, l.ControlURL()+"/faults")
	if err != nil || strings.TrimSpace(out) != `{"id":1}` {
		t.Errorf("%s %v", out, err)
	}
	out, err = runCurl(t, l, "-u", url.UserPassword(l.User(), l.Password()).String(), "-o", os.DevNull, "-w", "%{http_code}", folderURL(l, flat))
	if err != nil || out != "503" {
		t.Errorf("%s %v", out, err)
	}
}
