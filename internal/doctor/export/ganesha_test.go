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

// insideEnv tells the test binary that it runs where it has a network of its own.
const insideEnv = "EXPORT_TEST_INSIDE"

// patience is for servers that start on a busy machine.
const patience = time.Minute

// inside runs the test again in network and mount namespaces of its own, where ports 111 and 2049
// are free and a port mapper runs. It returns true there, and false where the test began and is
// already over.
func inside(t *testing.T) bool {
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
		t.Skip("no namespaces of one's own here: needs root")
	}
	const script = `ip link set lo up && mount -t tmpfs tmpfs /run && mkdir -p /run/rpcbind && rpcbind -w -f & rpcbind=$!
until [ -S /run/rpcbind.sock ] || ! kill -0 $rpcbind; do sleep 0.02; done
"$@"; status=$?; kill $rpcbind; wait; exit $status`
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
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

// startGanesha runs a real nfs-ganesha until the test ends, and returns once it is registered.
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
		_ = cmd.Process.Kill() // it may have ended
		<-exited
	})
	o := Options{}.withDefaults()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if _, err := o.listExports(t.Context()); err == nil && o.isListening(t.Context(), nfsPort) {
			return
		}
		select {
		case err := <-exited:
			exited <- err
			text, _ := os.ReadFile(log) // shown if it is there
			t.Skipf("nfs-ganesha does not run here: %v\n%s", err, text)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatal("nfs-ganesha does not register and listen")
		}
	}
}

// ganeshaConf exports a folder; more goes into NFS_CORE_PARAM's file beside it.
func ganeshaConf(folder, more string) string {
	return fmt.Sprintf(`NFS_CORE_PARAM { Protocols = 3; Enable_NLM = false; Enable_RQUOTA = false; mount_path_pseudo = false; }
EXPORT { Export_Id = 1; Path = %s; Pseudo = /x; Access_Type = RW; Squash = No_Root_Squash; SecType = sys; Protocols = 3; FSAL { Name = VFS; } }
%s`, folder, more)
}

// A real server, and a configuration that was edited since it read it.
func TestRealGanesha(t *testing.T) {
	if !inside(t) {
		return
	}
	folder, added := t.TempDir(), t.TempDir()
	conf := ganeshaConf(folder, "")
	startGanesha(t, conf)
	look := func(conf string) []doctor.Finding {
		root := fstest.MapFS{
			"etc/ganesha/ganesha.conf": {Data: []byte(conf)},
			"proc/7/comm":              {Data: []byte("ganesha.nfsd\n")},
		}
		return doctor.Examine(t.Context(), Checks(Options{Root: root, Hosts: []Host{{"esx1", netip.MustParseAddr("127.0.0.1")}}, Probe: time.Second}), doctor.Options{})
	}
	found := look(conf)
	t.Logf("as it is:\n%s", told(found))
	for _, code := range []string{"nfs-reload", "nfs-server", "nfs-portmap", "nfs-version", "nfs-client", "nfs-root", "nfs-access"} {
		if s := statusOf(found, code); s != "ok" {
			t.Errorf("%s: %s", code, s)
		}
	}
	if s := statusOf(found, "nfs-write"); s != "ok" && s != "warning" {
		t.Errorf("nfs-write: %s", s)
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("the probe left %v, %v", left, err)
	}
	edited := ganeshaConf(folder, fmt.Sprintf("EXPORT { Export_Id = 2; Path = %s; Pseudo = /y; Access_Type = RW; Protocols = 3; FSAL { Name = VFS; } }", added))
	got := told(look(edited))
	if want := fmt.Sprintf("failure        nfs-reload: export *:%s: /etc/ganesha/ganesha.conf:3 exports it, but the running server does not: the server was not reloaded", added); !strings.HasPrefix(got, want) {
		t.Errorf("edited:\n%s\nwant first %s", got, want)
	}
}

// What nfs-ganesha does not tell, clocks may: it was edited since it was started.
func TestGaneshaThatWasEditedSince(t *testing.T) {
	const boot, ticks = 1_700_000_000, 360_000 // an hour after
	started := time.Unix(boot+3600, 0)
	for edited, want := range map[time.Time]doctor.Status{started.Add(-time.Minute): doctor.OK, started.Add(time.Minute): doctor.Advice} {
		e := &examiner{}
		see := fileReader{fstest.MapFS{
			"etc/ganesha/ganesha.conf": {Data: []byte("%include more"), ModTime: started.Add(-time.Hour)},
			"etc/ganesha/more":         {Data: []byte("EXPORT { Path = /a; Access_Type = RW; }"), ModTime: edited},
			"proc/9/comm":              {Data: []byte("ganesha.nfsd\n")},
			"proc/9/stat":              {Data: fmt.Appendf(nil, "9 (ganesha.nfsd) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 %d 0 0", ticks)},
			"proc/stat":                {Data: fmt.Appendf(nil, "cpu 1 2\nbtime %d\nprocesses 3\n", boot)},
		}}
		s := Options{Portmap: mapper(t)}.readGanesha(t.Context(), see)
		s.Live, s.LiveFrom = []Export{{Path: "/a"}}, "its list"
		if found := e.checkReloaded(t.Context(), s); len(found) != 1 || found[0].Status != want {
			t.Errorf("started %v, edited %v: %+v", s.started, edited, found)
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
