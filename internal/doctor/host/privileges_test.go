package host_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/doctor/host"
	"github.com/decamp/decamp/internal/lab"
)

// The published script creates a role with exactly the privileges that the checks require, with the real govc.
func TestPublishedPrivilegesEqualRequiredOnes(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	const script = "../../../packaging/privileges/vsphere.sh"
	bin := t.TempDir()
	if out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", filepath.Join(bin, "govc"), "github.com/decamp/decamp/test/govc").CombinedOutput(); err != nil {
		t.Fatalf("build govc: %v\n%s", err, out)
	}
	l, err := lab.Start(t.Context(), lab.Config{VCenter: true, VMs: []lab.VM{newVM("a", 1<<20)}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	run := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "GOVC_URL="+l.URL(), "GOVC_USERNAME="+l.User(),
			"GOVC_PASSWORD="+l.Password(), "GOVC_INSECURE=1", "GOVC_PERSIST_SESSION=false")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %q: %v\n%s", name, args, err, out)
		}
		return string(out)
	}
	for _, tt := range []struct {
		uses string
		use  host.Use
	}{
		{"https", host.Use{Transport: "https"}},
		{"nfc", host.Use{Transport: "nfc"}},
		{"landing", host.Use{Transport: "landing"}},
		{"https power-off", host.Use{Transport: "https", PowerOff: true}},
		{"https warm", host.Use{Transport: "https", Warm: true}},
		{"nfc warm", host.Use{Transport: "nfc", Warm: true}},
		{"landing warm-landing", host.Use{Transport: "landing", Warm: true}},
		{"landing enable-ssh", host.Use{Transport: "landing", StartSSH: true}},
	} {
		run("sh", append([]string{script, "decamp@vsphere.local"}, strings.Fields(tt.uses)...)...)
		var got, want []string
		for _, p := range strings.Fields(run(filepath.Join(bin, "govc"), "role.ls", "decamp")) {
			if !strings.HasPrefix(p, "System.") { // privileges of every role
				got = append(got, p)
			}
		}
		for _, f := range findingsOf(examine(t, lab.Config{VCenter: true, VMs: []lab.VM{newVM("a", 1<<20)}}, tt.use), "host-privilege") {
			want = append(want, f.On)
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: got privileges %q of the role, want %q", tt.uses, got, want)
		}
	}
	if perms := run(filepath.Join(bin, "govc"), "permissions.ls", "/"); !strings.Contains(perms, "decamp@vsphere.local") {
		t.Errorf("the account has no permissions:\n%s", perms)
	}
}
