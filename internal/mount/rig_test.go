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

const patience = 2 * time.Minute // of a whole test

// rig is an emulated host, mounted.
type rig struct {
	*testing.T
	ctx   context.Context
	lab   *lab.Lab
	mount *mount.Mount
	pool  *https.Transport
	dir   string
	log   *logbook
}

// rigOptions are what a test may want otherwise.
type rigOptions struct {
	lab   lab.Config
	mount mount.Options
	https https.Options
}

// newRig mounts a lab. Nothing it mounts outlives the test, whatever the test does.
func newRig(t *testing.T, o rigOptions) *rig {
	t.Helper()
	needFUSE(t)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	r := &rig{T: t, ctx: ctx, dir: filepath.Join(t.TempDir(), "mnt"), log: &logbook{}}
	if err := os.Mkdir(r.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(r.dir, unix.MNT_DETACH) }) // usually long unmounted
	r.lab = startLab(t, o.lab)
	s := dial(t, r.lab, o.lab.VCenter)
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

func dial(t *testing.T, l *lab.Lab, vcenter bool) *esx.Session {
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

// needFUSE skips where the kernel's FUSE cannot be used.
func needFUSE(t *testing.T) {
	t.Helper()
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("needs /dev/fuse: %v", err)
	}
	f.Close()
	if os.Geteuid() != 0 {
		requires(t, "fusermount3")
	}
}

// requires skips a test whose judge is not installed.
func requires(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("needs %s: %v", program, err)
	}
}

// run runs a program to its end.
func (r *rig) run(name string, args ...string) string {
	r.Helper()
	out, err := r.try(name, args...)
	if err != nil {
		r.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return out
}

func (r *rig) try(name string, args ...string) (string, error) {
	out, err := exec.CommandContext(r.ctx, name, args...).CombinedOutput()
	return string(out), err
}

// path is a file of the mount's only datastore.
func (r *rig) path(name string) string {
	return filepath.Join(r.dir, "ha-datacenter", "datastore1", name)
}

// image writes size bytes as a disk has them: runs of data and holes, cut from a seed.
func image(t *testing.T, size int64, seed uint64) string {
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

// diskRig mounts a lab with one VM, web 01, whose disk is the image.
func diskRig(t *testing.T, raw string, o rigOptions) *rig {
	t.Helper()
	o.lab.VMs = []lab.VM{{Name: "web 01", ChangeTracking: true, Disks: []lab.Disk{{File: raw}}}}
	return newRig(t, o)
}

func (r *rig) flat() string { return r.path("web 01/web 01-flat.vmdk") }

// same fails unless two files have the same bytes.
func (r *rig) same(a, b string) {
	r.Helper()
	r.run("cmp", a, b)
}

// logbook is a log that tests read.
type logbook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
