package export

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/decamp/decamp/internal/doctor"
)

// insideEnv is set if the test binary runs in its own namespaces.
const insideEnv = "EXPORT_TEST_INSIDE"

// testTimeout is long enough for servers that start on a busy machine.
const testTimeout = time.Minute

// runInNamespaces runs the test again in new network and mount namespaces, where ports 111 and 2049
// are free and a port mapper runs. It returns true in the namespaces. Outside of them, it returns false after the
// test ended.
func runInNamespaces(t *testing.T) bool {
	t.Helper()
	if testing.Short() {
		t.Skip("starts nfs-ganesha")
	}
	if os.Getenv(insideEnv) != "" {
		return true
	}
	for _, tool := range []string{"ganesha.nfsd", "rpcbind", "unshare", "ip", "mount"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed (packages nfs-ganesha, nfs-ganesha-vfs, rpcbind, iproute2)", tool)
		}
	}
	if exec.Command("unshare", "--net", "--mount", "true").Run() != nil {
		t.Skip("cannot create namespaces: requires root")
	}
	const script = `ip link set lo up && mount -t tmpfs tmpfs /run && mkdir -p /run/rpcbind && rpcbind -w -f & rpcbind=$!
until [ -S /run/rpcbind.sock ] || ! kill -0 $rpcbind; do sleep 0.02; done
"$@"; status=$?; kill $rpcbind; wait; exit $status`
	ctx, cancel := context.WithTimeout(t.Context(), 2*testTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "unshare", "--net", "--mount", "sh", "-c", script, "sh", os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	out, err := cmd.CombinedOutput()
	switch {
	case err != nil:
		t.Errorf("%v\n%s", err, out)
	case bytes.Contains(out, []byte("--- SKIP")):
		t.Skipf("%s", out)
	}
	t.Logf("%s", out)
	return false
}

// startGanesha starts a real nfs-ganesha, which runs until the test ends. It returns when the server is registered.
func startGanesha(t *testing.T, conf string) {
	t.Helper()
	work := t.TempDir()
	file, log := filepath.Join(work, "conf"), filepath.Join(work, "log")
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("ganesha.nfsd", "-F", "-f", file, "-L", log, "-p", filepath.Join(work, "pid"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // the process may have ended
		<-exited
	})
	o := Options{}.withDefaults()
	for deadline := time.Now().Add(testTimeout); ; time.Sleep(20 * time.Millisecond) {
		if _, err := o.listExports(t.Context()); err == nil && o.isListening(t.Context(), nfsPort) {
			return
		}
		select {
		case err := <-exited:
			exited <- err
			text, _ := os.ReadFile(log) // empty if nfs-ganesha wrote no log
			t.Skipf("nfs-ganesha does not run here: %v\n%s", err, text)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatal("nfs-ganesha did not register and listen in time")
		}
	}
}

// ganeshaConf returns a configuration that exports a folder, followed by more.
func ganeshaConf(folder, more string) string {
	return fmt.Sprintf(`NFS_CORE_PARAM { Protocols = 3; Enable_NLM = false; Enable_RQUOTA = false; mount_path_pseudo = false; }
EXPORT { Export_Id = 1; Path = %s; Pseudo = /x; Access_Type = RW; Squash = No_Root_Squash; SecType = sys; Protocols = 3; FSAL { Name = VFS; } }
%s`, folder, more)
}

// The checks find that the configuration changed after a real server read it.
func TestRealGanesha(t *testing.T) {
	if !runInNamespaces(t) {
		return
	}
	folder, added := t.TempDir(), t.TempDir()
	conf := ganeshaConf(folder, "")
	startGanesha(t, conf)
	examine := func(conf string) []doctor.Finding {
		root := fstest.MapFS{
			"etc/ganesha/ganesha.conf": {Data: []byte(conf)},
			"proc/7/comm":              {Data: []byte("ganesha.nfsd\n")},
		}
		return doctor.Examine(t.Context(), Checks(Options{Root: root, Hosts: []Host{{"esx1", netip.MustParseAddr("127.0.0.1")}}, Probe: time.Second}), doctor.Options{})
	}
	found := examine(conf)
	t.Logf("before the edit:\n%s", formatFindings(found))
	for _, code := range []string{"nfs-reload", "nfs-server", "nfs-portmap", "nfs-version", "nfs-client", "nfs-root", "nfs-access"} {
		if s := statusOf(found, code); s != "ok" {
			t.Errorf("%s: got status %s, want ok", code, s)
		}
	}
	if s := statusOf(found, "nfs-write"); s != "ok" && s != "warning" {
		t.Errorf("nfs-write: got status %s, want ok or warning", s)
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("the probe left %v, %v", left, err)
	}
	edited := ganeshaConf(folder, fmt.Sprintf("EXPORT { Export_Id = 2; Path = %s; Pseudo = /y; Access_Type = RW; Protocols = 3; FSAL { Name = VFS; } }", added))
	got := formatFindings(examine(edited))
	if want := fmt.Sprintf("failure        nfs-reload: export *:%s: /etc/ganesha/ganesha.conf:3 exports it, but the running server does not: the server was not reloaded", added); !strings.HasPrefix(got, want) {
		t.Errorf("after the edit: got\n%s\nwant first %s", got, want)
	}
}

// If the configuration changed after the start of nfs-ganesha, the checks recommend a reload.
func TestGaneshaConfigurationChangedAfterStart(t *testing.T) {
	const boot, ticks = 1_700_000_000, 360_000 // ticks from the boot to the start: one hour
	started := time.Unix(boot+3600, 0)
	for edited, want := range map[time.Time]doctor.Status{started.Add(-time.Minute): doctor.OK, started.Add(time.Minute): doctor.Advice} {
		e := &examiner{}
		reader := fileReader{fstest.MapFS{
			"etc/ganesha/ganesha.conf": {Data: []byte("%include more"), ModTime: started.Add(-time.Hour)},
			"etc/ganesha/more":         {Data: []byte("EXPORT { Path = /a; Access_Type = RW; }"), ModTime: edited},
			"proc/9/comm":              {Data: []byte("ganesha.nfsd\n")},
			"proc/9/stat":              {Data: fmt.Appendf(nil, "9 (ganesha.nfsd) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 %d 0 0", ticks)},
			"proc/stat":                {Data: fmt.Appendf(nil, "cpu 1 2\nbtime %d\nprocesses 3\n", boot)},
		}}
		s := Options{Portmap: startPortmapper(t)}.readGanesha(t.Context(), reader)
		s.Live, s.LiveFrom = []Export{{Path: "/a"}}, "its list"
		if found := e.checkReloaded(t.Context(), s); len(found) != 1 || found[0].Status != want {
			t.Errorf("started %v, edited %v: got findings %+v", s.started, edited, found)
		}
	}
}

func statusOf(found []doctor.Finding, code string) string {
	for _, f := range found {
		if f.Code == code {
			return f.Status.String()
		}
	}
	return "nothing"
}
