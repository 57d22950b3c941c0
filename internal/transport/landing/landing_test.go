package landing_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/cleanup"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/image"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/lab/loopback"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/nfs"
	"github.com/decamp/decamp/internal/transport"
	"github.com/decamp/decamp/internal/transport/landing"
)

// rig is an emulated host with one VM, and a landing for it.
type rig struct {
	*testing.T
	lab     *lab.Lab
	session *esx.Session
	vm      *inventory.VM
	state   string
	dir     string // of the landing
	ports   nfs.Ports
	told    log
}

func newRig(t *testing.T, disks ...lab.Disk) *rig {
	t.Helper()
	return newRigOf(t, lab.Config{VMs: []lab.VM{{Name: "web 01", Disks: disks}}})
}

// newRigOf is a rig whose lab is as it says, but for where the port mapper is.
func newRigOf(t *testing.T, cfg lab.Config) *rig {
	t.Helper()
	r := &rig{T: t, state: t.TempDir()}
	r.dir = filepath.Join(r.state, "landing")
	r.ports = nfs.Ports{NFS: loopback.Reserve(t), Portmap: loopback.Reserve(t)} // the same after a restart: hosts do not ask again
	if cfg.NFS.Portmap == "" {
		cfg.NFS.Portmap = r.ports.Portmap
	}
	var err error
	r.lab, err = lab.Start(context.Background(), cfg)
	r.must(err)
	t.Cleanup(func() { r.check(r.lab.Close()) })
	scheme := "esxi"
	if cfg.VCenter {
		scheme = "vcenter"
	}
	r.session, err = esx.Dial(t.Context(), esx.Config{
		URL:         &url.URL{Scheme: scheme, User: url.User(r.lab.User()), Host: r.lab.Addr()},
		Password:    func(context.Context) (esx.Secret, error) { return esx.Secret(r.lab.Password()), nil },
		Fingerprint: r.lab.Fingerprint(), After: soon,
	})
	r.must(err)
	t.Cleanup(func() { r.session.Close() })
	r.vm, err = r.session.VM(t.Context(), "web 01")
	r.must(err)
	return r
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatalf("%v (remedy: %s)", err, fault.HintOf(err))
	}
}

func (r *rig) check(err error) {
	r.Helper()
	if err != nil {
		r.Error(err)
	}
}

// soon makes the looks at a task, and the attempts to unmount, follow each other quickly.
func soon(d time.Duration) <-chan time.Time { return time.After(d / 40) }

// log keeps what is logged.
type log struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (r *rig) leftovers() *cleanup.Store { return cleanup.NewStore(r.state) }

func (r *rig) options() landing.Options {
	return landing.Options{
		Dir: r.dir, Ports: r.ports, Memory: 64 << 20, Leftovers: r.leftovers(), Server: r.lab.Addr(),
		After: soon, Log: slog.New(slog.NewTextHandler(&r.told, nil)),
	}
}

func (r *rig) landing() *landing.Transport {
	t := landing.New(r.session, r.options())
	r.Cleanup(func() { r.check(t.Close()) })
	return t
}

// land moves a disk of the VM into an image, and returns the image and its report.
func (r *rig) land(t *landing.Transport, n int, format image.Format) (image.File, error) {
	f, job := jobOf(filepath.Join(r.TempDir(), "disk."+string(format)), &r.vm.Disks[n], format)
	return f, r.fill(t, transport.Disk{VM: r.vm, Disk: &r.vm.Disks[n]}, job)
}

// landAt moves the first disk into the raw image at path, which may have been begun.
func (r *rig) landAt(t *landing.Transport, path string) image.File {
	r.Helper()
	f, job := jobOf(path, &r.vm.Disks[0], image.Raw)
	r.must(r.fill(t, transport.Disk{VM: r.vm, Disk: &r.vm.Disks[0]}, job))
	return f
}

func (r *rig) fill(t *landing.Transport, d transport.Disk, job image.Job) error {
	_, _, err := job.Fill(r.Context(), func(ctx context.Context, c *image.Copying) error {
		_, err := t.Transfer(ctx, transport.Job{Disk: d, Target: c.Target, Manifest: c.Log, ReadBack: job.Opener.ReadUnfinished})
		return err
	})
	if err != nil {
		return err
	}
	_, err = job.Verify(r.Context(), manifest.VerifyOptions{})
	return err
}

// same compares an image with what the lab says the disk holds.
func (r *rig) same(f image.File, n int) {
	r.Helper()
	want, err := r.lab.Disk("web 01", n)
	r.must(err)
	src, err := f.Read(r.Context())
	r.must(err)
	defer src.Close()
	const step = 1 << 20
	a, b := make([]byte, step), make([]byte, step)
	for off := int64(0); off < f.Size; off += step {
		m := min(step, f.Size-off)
		r.must(src.ReadAt(r.Context(), a[:m], off))
		if _, err := want.ReadAt(b[:m], off); err != nil && !errors.Is(err, io.EOF) {
			r.Fatal(err)
		}
		if string(a[:m]) != string(b[:m]) {
			r.Fatalf("the image differs within the MiB at %d", off)
		}
	}
}

func TestDiskLandsAsItIs(t *testing.T) {
	for _, format := range []image.Format{image.Raw, image.QCOW2} {
		t.Run(string(format), func(t *testing.T) {
			r := newRig(t, lab.Disk{Capacity: 40<<20 + 3*disk.SectorSize, Fill: 40, Seed: 3}, lab.Disk{Capacity: 16 << 20, Fill: 100, Seed: 4})
			tr := r.landing()
			for n := range r.vm.Disks {
				f, err := r.land(tr, n, format)
				r.must(err)
				r.same(f, n)
			}
		})
	}
}

func TestDatastoreIsGoneInTheEnd(t *testing.T) {
	r := newRig(t, lab.Disk{Capacity: 4 << 20, Fill: 50, Seed: 5})
	tr := r.landing()
	_, err := r.land(tr, 0, image.Raw)
	r.must(err)
	if !r.mounted() {
		t.Error("the host has no datastore of ours")
	}
	r.must(tr.Close())
	if r.mounted() {
		t.Error("the datastore is left behind")
	}
	if list, err := os.ReadDir(r.dir); err != nil || len(list) > 0 {
		t.Errorf("the landing holds %v, %v", list, err)
	}
}

// mounted reports whether the host has a datastore of ours.
func (r *rig) mounted() bool {
	list, err := r.session.Datastores(r.Context())
	r.must(err)
	for _, ds := range list {
		if strings.HasPrefix(ds.Name, "decamp-") {
			return true
		}
	}
	return false
}
