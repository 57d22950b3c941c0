package nfs

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/decamp/decamp/internal/lab/nfsclient"
	decamp "github.com/decamp/decamp/test/program"
)

// buildOnce builds decamp once for all tests and returns the path of the program.
func buildOnce(t *testing.T) string {
	t.Helper()
	path, err := buildDecamp()
	must(t, err)
	return path
}

var buildDecamp = sync.OnceValues(func() (string, error) {
	path := filepath.Join(scratch, "decamp")
	return path, decamp.Build(path)
})

// landServer is a decamp land that a test can kill and start again with the same address and folder.
type landServer struct {
	*testing.T
	Address string
	portmap string // port of the port mapper
	dir     string
	args    []string // further flags
	cmd     *exec.Cmd
}

// newLand starts a decamp land that serves an empty folder until the test ends.
func newLand(t *testing.T) *landServer {
	t.Helper()
	return newLandAt(t, testAddress(t), portmapPort)
}

func newLandAt(t *testing.T, address, portmap string) *landServer {
	t.Helper()
	return newLandIn(t, t.TempDir(), address, portmap)
}

func newLandIn(t *testing.T, dir, address, portmap string) *landServer {
	t.Helper()
	l := &landServer{T: t, Address: address, portmap: portmap, dir: dir}
	buildOnce(t)
	l.start()
	t.Cleanup(l.kill)
	return l
}

// start starts the server and waits until it listens. Any goroutine may call it.
func (l *landServer) start() {
	program, err := buildDecamp()
	if err != nil {
		l.Error(err)
		return
	}
	l.cmd = exec.Command(program, "land", "--export", l.dir, "--allow", "127.0.0.1", "--advertise", l.Address, "--json",
		"--listen", l.Address+":"+nfsPort, "--portmap", l.Address+":"+l.portmap)
	l.cmd.Args = append(l.cmd.Args, l.args...)
	l.cmd.Stderr = os.Stderr
	out, err := l.cmd.StdoutPipe()
	if err == nil {
		err = l.cmd.Start()
	}
	if err == nil {
		_, err = bufio.NewReader(out).ReadString('\n') // printed when the server is ready
	}
	if err != nil {
		l.Errorf("start decamp land: %v", err)
	}
}

func (l *landServer) kill() {
	_ = l.cmd.Process.Kill()
	_ = l.cmd.Wait() // always an error after a kill
}

// mount mounts the export with the times of fastTimes.
func (l *landServer) mount(cfg nfsclient.Config) *nfsclient.Datastore {
	l.Helper()
	cfg.Host, cfg.Path, cfg.PortmapAddr, cfg.Times = l.Address, l.dir, l.Address+":"+l.portmap, fastTimes()
	ds, err := nfsclient.Mount(l.Context(), cfg)
	must(l.T, err)
	l.Cleanup(ds.Abandon)
	return ds
}

// Number of kills of decamp land without and with -tags slow.
const (
	quickLandKills = 8
	longLandKills  = 300
)

// decamp land is killed and started again with the same address and folder while a host writes. The host
// sends unanswered requests again. File handles and the page cache survive. At least one copy completes,
// and each file whose copy completes is correct.
func TestKilledLandResumes(t *testing.T) {
	wentOn := 0
	runSeeds(t, killCount(t, quickLandKills, longLandKills), func(t *testing.T, seed uint64) int {
		p := newProgram(seed)
		rnd := newRand(seed, forDeath)
		l := newLand(t)
		ds := l.mount(newHost(p, seed).cfg)
		f, err := ds.Create(t.Context(), "web01-flat.vmdk")
		must(t, err)
		var deaths []int
		for range 1 + rnd.IntN(4) {
			deaths = append(deaths, rnd.IntN(p.stepCount()))
		}
		step := -1
		err = p.play(t.Context(), f, func() {
			step++
			if slices.Contains(deaths, step) {
				l.kill()
				l.start()
			}
		})
		if err = errors.Join(err, f.Close(t.Context())); err != nil {
			t.Logf("the copy failed: %v", err)
			return len(deaths)
		}
		wentOn++
		got, err := os.ReadFile(filepath.Join(l.dir, "web01-flat.vmdk"))
		must(t, err)
		wantBytes(t, got, p.expectedDisk())
		return len(deaths)
	})
	if wentOn == 0 {
		t.Error("every copy failed, want at least one that completes")
	}
}

// The files that root of an ESXi host creates belong to user nobody, or to root with --no-root-squash.
func TestHostRootIsSquashed(t *testing.T) {
	requireRoot(t)
	for name, c := range map[string]struct {
		args  []string
		owner uint32
	}{
		"by default":       {nil, 65534},
		"--no-root-squash": {[]string{"--no-root-squash"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			l := &landServer{T: t, Address: testAddress(t), portmap: portmapPort, dir: t.TempDir(), args: c.args}
			buildOnce(t)
			l.start()
			t.Cleanup(l.kill)
			ds := l.mount(nfsclient.Config{})
			must(t, ds.MkdirAll(t.Context(), "web01"))
			f, err := ds.Create(t.Context(), "web01/web01-flat.vmdk")
			must(t, err)
			must(t, f.Truncate(t.Context(), 1<<20))
			must(t, f.WriteAt(t.Context(), []byte("a disk"), 4096))
			must(t, f.Close(t.Context()))
			must(t, ds.Rename(t.Context(), "web01/web01-flat.vmdk", "web01/web02-flat.vmdk"))
			for _, name := range []string{"web01", "web01/web02-flat.vmdk"} {
				info, err := os.Stat(filepath.Join(l.dir, name))
				must(t, err)
				if st := info.Sys().(*syscall.Stat_t); st.Uid != c.owner || st.Gid != c.owner {
					t.Errorf("%s belongs to %d:%d, want %d", name, st.Uid, st.Gid, c.owner)
				}
			}
			got := make([]byte, 6)
			_, err = ds.ReadAt(t.Context(), "web01/web02-flat.vmdk", got, 4096)
			must(t, err)
			if string(got) != "a disk" {
				t.Errorf("the host reads %q, want %q", got, "a disk")
			}
			must(t, ds.Remove(t.Context(), "web01/web02-flat.vmdk"))
			if left, err := os.ReadDir(filepath.Join(l.dir, "web01")); err != nil || len(left) > 0 {
				t.Errorf("the folder has %v (error %v), want no files", left, err)
			}
		})
	}
}
