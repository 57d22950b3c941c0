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

// binary builds decamp, once for all tests.
func binary(t *testing.T) string {
	t.Helper()
	path, err := built()
	must(t, err)
	return path
}

var built = sync.OnceValues(func() (string, error) {
	path := filepath.Join(scratch, "decamp")
	return path, decamp.Build(path)
})

// land is a decamp land that is killed and started again at the same place.
type land struct {
	*testing.T
	Address string
	portmap string // port
	dir     string
	args    []string // further flags
	cmd     *exec.Cmd
}

// newLand serves an empty folder until the test ends.
func newLand(t *testing.T) *land {
	t.Helper()
	return newLandAt(t, address(t), portmapPort)
}

func newLandAt(t *testing.T, address, portmap string) *land {
	t.Helper()
	return newLandIn(t, t.TempDir(), address, portmap)
}

func newLandIn(t *testing.T, dir, address, portmap string) *land {
	t.Helper()
	l := &land{T: t, Address: address, portmap: portmap, dir: dir}
	binary(t)
	l.start()
	t.Cleanup(l.kill)
	return l
}

// start returns when the server listens. It may be called beside the test's own goroutine.
func (l *land) start() {
	program, err := built()
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
		_, err = bufio.NewReader(out).ReadString('\n') // what it says once it is ready
	}
	if err != nil {
		l.Errorf("start decamp land: %v", err)
	}
}

func (l *land) kill() {
	_ = l.cmd.Process.Kill()
	_ = l.cmd.Wait() // killed, it always fails
}

// mount mounts it.
func (l *land) mount(cfg nfsclient.Config) *nfsclient.Datastore {
	l.Helper()
	cfg.Host, cfg.Path, cfg.PortmapAddr, cfg.Times = l.Address, l.dir, l.Address+":"+l.portmap, quick()
	ds, err := nfsclient.Mount(l.Context(), cfg)
	must(l.T, err)
	l.Cleanup(ds.Abandon)
	return ds
}

// How often decamp land is killed where there is little time, and where there is enough.
const (
	quickLandKills = 8
	longLandKills  = 300
)

// decamp land is killed and started again, at the same place, while a host writes, which
// sends again what was not answered. Handles, and what the page cache holds, survive: the
// copy goes on and is right, or the host is told that it is not.
func TestKilledLandGoesOn(t *testing.T) {
	wentOn := 0
	eachSeed(t, kills(t, quickLandKills, longLandKills), func(t *testing.T, seed uint64) int {
		p := newProgram(seed)
		rnd := generator(seed, forDeath)
		l := newLand(t)
		ds := l.mount(newHost(p, seed).cfg)
		f, err := ds.Create(t.Context(), "web01-flat.vmdk")
		must(t, err)
		var deaths []int
		for range 1 + rnd.IntN(4) {
			deaths = append(deaths, rnd.IntN(p.steps()))
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
		wantBytes(t, got, p.model())
		return len(deaths)
	})
	if wentOn == 0 {
		t.Error("no copy went on")
	}
}

// ESXi writes as root. Its root is nobody here, and works all the same; with --no-root-squash it is root.
func TestRootOfAHostIsNobody(t *testing.T) {
	needRoot(t)
	for name, c := range map[string]struct {
		args  []string
		owner uint32
	}{
		"by default":       {nil, 65534},
		"--no-root-squash": {[]string{"--no-root-squash"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			l := &land{T: t, Address: address(t), portmap: portmapPort, dir: t.TempDir(), args: c.args}
			binary(t)
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
				t.Errorf("the host reads %q", got)
			}
			must(t, ds.Remove(t.Context(), "web01/web02-flat.vmdk"))
			if left, err := os.ReadDir(filepath.Join(l.dir, "web01")); err != nil || len(left) > 0 {
				t.Errorf("left: %v, %v", left, err)
			}
		})
	}
}
