package mount_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/mount"
	"github.com/decamp/decamp/internal/transport/https"
)

const testTimeout = 10 * time.Minute // limit of a whole test

// rig is a mounted emulated host.
type rig struct {
	*testing.T
	ctx   context.Context
	lab   *lab.Lab
	mount *mount.Mount
	pool  *https.Transport
	dir   string
	log   *logBuffer
}

// rigOptions configure a rig.
type rigOptions struct {
	lab   lab.Config
	mount mount.Options
	https https.Options
}

// newRig mounts a lab. The mount is removed at the end of the test, even after a failure.
func newRig(t *testing.T, o rigOptions) *rig {
	t.Helper()
	requireFUSE(t)
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	t.Cleanup(cancel)
	r := &rig{T: t, ctx: ctx, dir: filepath.Join(t.TempDir(), "mnt"), log: &logBuffer{}}
	if err := os.Mkdir(r.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(r.dir, unix.MNT_DETACH) }) // fails if it is unmounted already
	r.lab = startLab(t, o.lab)
	s := logIn(t, r.lab, o.lab.VCenter)
	log := slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	o.https.Log, o.mount.Log = log, log
	r.pool = https.New(s, o.https)
	t.Cleanup(func() { r.pool.Close() })
	var err error
	if r.mount, err = mount.New(ctx, mount.NewRemote(s, r.pool, log), r.dir, o.mount); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.mount.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(r.log.String())
		}
	})
	return r
}

func startLab(t *testing.T, cfg lab.Config) *lab.Lab {
	t.Helper()
	l, err := lab.Start(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func logIn(t *testing.T, l *lab.Lab, vcenter bool) *esx.Session {
	t.Helper()
	scheme := "esxi"
	if vcenter {
		scheme = "vcenter"
	}
	s, err := esx.Dial(t.Context(), esx.Config{
		URL:         &url.URL{Scheme: scheme, User: url.User(l.User()), Host: l.Addr()},
		Password:    func(context.Context) (esx.Secret, error) { return esx.Secret(l.Password()), nil },
		Fingerprint: l.Fingerprint(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// requireFUSE skips the test if FUSE cannot be used.
func requireFUSE(t *testing.T) {
	t.Helper()
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("needs /dev/fuse: %v", err)
	}
	f.Close()
	if os.Geteuid() != 0 {
		requireTool(t, "fusermount3")
	}
}

// requireTool skips the test if a program is not installed.
func requireTool(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("needs %s: %v", program, err)
	}
}

// mustRunTool runs a program, which must succeed, and returns its output.
func (r *rig) mustRunTool(name string, args ...string) string {
	r.Helper()
	out, err := r.runTool(name, args...)
	if err != nil {
		r.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return out
}

func (r *rig) runTool(name string, args ...string) (string, error) {
	out, err := exec.CommandContext(r.ctx, name, args...).CombinedOutput()
	return string(out), err
}

// filePath returns the path of a file of the only datastore.
func (r *rig) filePath(name string) string {
	return filepath.Join(r.dir, "ha-datacenter", "datastore1", name)
}

// newImage creates an image of size bytes with data and holes, whose content depends on the seed.
func newImage(t *testing.T, size int64, seed uint64) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "disk.raw")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	const run = 1 << 20
	b := make([]byte, run)
	for off := int64(0); off < size; off += run {
		seed = seed*6364136223846793005 + 1442695040888963407
		if seed>>62 == 0 {
			continue // a hole
		}
		for i := range b {
			b[i] = byte(int64(i)>>9) ^ byte(seed>>(i&7*8)) ^ byte(i)
		}
		if _, err := f.WriteAt(b[:min(run, size-off)], off); err != nil {
			t.Fatal(err)
		}
	}
	return name
}

// newDiskRig mounts a lab with one VM, web 01, whose disk has the content of the image raw.
func newDiskRig(t *testing.T, raw string, o rigOptions) *rig {
	t.Helper()
	o.lab.VMs = []lab.VM{{Name: "web 01", ChangeTracking: true, Disks: []lab.Disk{{File: raw}}}}
	return newRig(t, o)
}

func (r *rig) flatPath() string { return r.filePath("web 01/web 01-flat.vmdk") }

// requireSameContent fails unless two files have the same content.
func (r *rig) requireSameContent(a, b string) {
	r.Helper()
	r.mustRunTool("cmp", a, b)
}

// logBuffer keeps the log for tests.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
