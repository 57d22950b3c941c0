package nfsclient

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// ganesha is nfs-ganesha, an independent NFS server for tests of the client.
type ganesha struct {
	dir    string // exported directory
	conf   string
	cmd    *exec.Cmd
	exited chan error
}

// insideEnv is set in the test binary that runs in new namespaces.
const insideEnv = "NFSCLIENT_INSIDE"

// runInNamespaces runs the test again in new network and mount namespaces, where ports 111
// and 2049 are free and /run is empty. It returns true in the new process, and false in the
// first process after the run.
func runInNamespaces(t *testing.T) bool {
	t.Helper()
	if os.Getenv(insideEnv) != "" {
		return true
	}
	for _, tool := range []string{"ganesha.nfsd", "rpcbind", "unshare", "ip", "mount"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed (packages nfs-ganesha, nfs-ganesha-vfs, rpcbind, iproute2)", tool)
		}
	}
	if exec.Command("unshare", "--net", "--mount", "true").Run() != nil {
		t.Skip("cannot create namespaces: needs root")
	}
	const script = `ip link set lo up && mount -t tmpfs tmpfs /run && mkdir -p /run/rpcbind && rpcbind -w -f & rpcbind=$!
until [ -S /run/rpcbind.sock ] || ! kill -0 $rpcbind; do sleep 0.02; done
"$@"; status=$?; kill $rpcbind; wait; exit $status`
	cmd := exec.Command("unshare", "--net", "--mount", "sh", "-c", script, "sh", os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	out, err := cmd.CombinedOutput()
	switch {
	case err != nil:
		t.Errorf("%v\n%s", err, out)
	case bytes.Contains(out, []byte("--- SKIP")):
		t.Skipf("%s", out)
	}
	return false
}

// startGanesha runs nfs-ganesha, which registers with the portmapper on port 111.
func startGanesha(t *testing.T) *ganesha {
	t.Helper()
	work := t.TempDir()
	g := &ganesha{dir: filepath.Join(work, "export"), conf: filepath.Join(work, "conf")}
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	conf := fmt.Sprintf(`
NFS_CORE_PARAM { Protocols = 3; Enable_NLM = false; Enable_RQUOTA = false; mount_path_pseudo = false; }
EXPORT { Export_Id = 1; Path = %s; Pseudo = /x; Access_Type = RW; Squash = No_Root_Squash; SecType = sys; Protocols = 3; FSAL { Name = VFS; } }
`, g.dir)
	if err := os.WriteFile(g.conf, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	g.start(t)
	t.Cleanup(func() { g.kill(t) })
	return g
}

func (g *ganesha) start(t *testing.T) {
	t.Helper()
	log := filepath.Join(filepath.Dir(g.conf), "log")
	g.cmd = exec.Command("ganesha.nfsd", "-F", "-f", g.conf, "-L", log, "-p", filepath.Join(filepath.Dir(g.conf), "pid"))
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	g.exited = make(chan error, 1)
	go func(cmd *exec.Cmd, exited chan<- error) { exited <- cmd.Wait() }(g.cmd, g.exited)
	for deadline := time.Now().Add(testTimeout); ; time.Sleep(20 * time.Millisecond) {
		select {
		case err := <-g.exited:
			g.exited <- err
			text, _ := os.ReadFile(log) // empty if the file does not exist
			t.Skipf("nfs-ganesha does not run here: %v\n%s", err, text)
		default:
		}
		if g.registered(t) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("nfs-ganesha does not register and listen")
		}
	}
}

// registered reports whether the portmapper knows both programs and their ports accept
// connections. After a restart, the portmapper may still have the ports of the killed server.
func (g *ganesha) registered(t *testing.T) bool {
	cfg := g.config().withDefaults()
	for prog, vers := range map[uint32]uint32{progMount: versMount, progNFS: versNFS} {
		addr, err := cfg.getPort(t.Context(), prog, vers)
		if err != nil {
			return false
		}
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return false
		}
		c.Close()
	}
	return true
}

func (g *ganesha) kill(t *testing.T) {
	t.Helper()
	_ = g.cmd.Process.Kill() // the process may have ended
	<-g.exited
}

func (g *ganesha) config() Config {
	return Config{Host: "127.0.0.1", Path: g.dir, Machine: "esx1", Times: Times{
		Reconnect: 10 * time.Millisecond, Mount: testTimeout, Silence: testTimeout, LockTimeout: testTimeout,
	}}
}

func TestGanesha(t *testing.T) {
	if !runInNamespaces(t) {
		return
	}
	g := startGanesha(t)
	d := mustMount(t, g.config())
	ctx := t.Context()
	if err := d.MkdirAll(ctx, "web01"); err != nil {
		t.Fatal(err)
	}
	f := mustCreate(t, d, "web01/web01-flat.vmdk")
	if names := listNames(t, g.dir+"/web01"); len(names) != 2 || names[0] != lockName(f.FileID()) {
		t.Errorf("files while a file is open: %v", names)
	}
	if err := f.Truncate(ctx, 64<<30); err != nil {
		t.Fatal(err)
	}
	data := randomBytes(3<<20 + 77)
	if err := writeAll(t, f, data); err != nil {
		t.Fatal(err)
	}
	back := make([]byte, len(data))
	if _, err := f.ReadAt(ctx, back, 0); err != nil || !bytes.Equal(back, data) {
		t.Errorf("read back: %v, or the content differs", err)
	}
	if _, err := f.ReadAt(ctx, back, 64<<30); err != io.EOF {
		t.Errorf("read at the end: %v", err)
	}
	closeFile(t, f)
	if err := d.Rename(ctx, "web01/web01-flat.vmdk", "web01/x"); err != nil {
		t.Error(err)
	}
	if entries, err := d.ReadDir(ctx, "web01"); err != nil || len(entries) != 1 || entries[0].Attr.Size != 64<<30 {
		t.Errorf("listing: %+v, %v", entries, err)
	}
	if err := errors.Join(d.Remove(ctx, "web01/x"), d.Remove(ctx, "web01")); err != nil {
		t.Error(err)
	}
	if _, err := d.Stat(ctx, "web01"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after remove: %v", err)
	}
	if space, err := d.Space(ctx); err != nil || space.Avail == 0 {
		t.Errorf("space: %+v, %v", space, err)
	}
	if err := d.Unmount(ctx); err != nil {
		t.Error(err)
	}
}

func TestGaneshaRestarts(t *testing.T) {
	if !runInNamespaces(t) {
		return
	}
	g := startGanesha(t)
	for _, unstableWrites := range []bool{false, true} {
		ev := newEventLog()
		cfg := g.config()
		cfg.Unstable, cfg.OnEvent = unstableWrites, ev.add
		d := mustMount(t, cfg)
		name := fmt.Sprintf("x-%v", unstableWrites)
		f := mustCreate(t, d, name)
		data := randomBytes(8 << 20)
		w := f.NewWriter(t.Context(), 0)
		for off := 0; off < len(data); off += ioSize {
			if off == len(data)/2 {
				g.kill(t)
				g.start(t)
			}
			if err := w.WriteAt(data[off:off+ioSize], int64(off)); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		ev.waitFor(t, ConnBack, 0)
		closeFile(t, f)
		if got, err := os.ReadFile(filepath.Join(g.dir, name)); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes arrived, %v, or the content differs", len(got), err)
		}
		if err := d.Unmount(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func listNames(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	slices.Sort(names)
	return names
}
