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
	dir     string // folder of the landing
	ports   nfs.Ports
	log     logBuffer
}

func newRig(t *testing.T, disks ...lab.Disk) *rig {
	t.Helper()
	return newRigOf(t, lab.Config{VMs: []lab.VM{{Name: "web 01", Disks: disks}}})
}

// newRigOf starts a rig whose lab has the configuration cfg. It sets the port mapper if cfg does not.
func newRigOf(t *testing.T, cfg lab.Config) *rig {
	t.Helper()
	r := &rig{T: t, state: t.TempDir()}
	r.dir = filepath.Join(r.state, "landing")
	// The ports stay the same after a restart, because hosts do not query them again.
	r.ports = nfs.Ports{NFS: loopback.Reserve(t), Portmap: loopback.Reserve(t)}
	if cfg.NFS.Portmap == "" {
		cfg.NFS.Portmap = r.ports.Portmap
	}
	var err error
	r.lab, err = lab.Start(context.Background(), cfg)
	r.must(err)
	t.Cleanup(func() { r.checkError(r.lab.Close()) })
	scheme := "esxi"
	if cfg.VCenter {
		scheme = "vcenter"
	}
	r.session, err = esx.Dial(t.Context(), esx.Config{
		URL:         &url.URL{Scheme: scheme, User: url.User(r.lab.User()), Host: r.lab.Addr()},
		Password:    func(context.Context) (esx.Secret, error) { return esx.Secret(r.lab.Password()), nil },
		Fingerprint: r.lab.Fingerprint(), After: fastAfter,
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
		r.Fatalf("%v (hint: %s)", err, fault.HintOf(err))
	}
}

func (r *rig) checkError(err error) {
	r.Helper()
	if err != nil {
		r.Error(err)
	}
}

// fastAfter is a clock that makes waits 40 times shorter, for task checks and unmount attempts.
func fastAfter(d time.Duration) <-chan time.Time { return time.After(d / 40) }

// logBuffer keeps the log.
type logBuffer struct {
	mu   sync.Mutex
	text strings.Builder
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

func (r *rig) leftovers() *cleanup.Store { return cleanup.NewStore(r.state) }

func (r *rig) landingOptions() landing.Options {
	return landing.Options{
		Dir: r.dir, Ports: r.ports, Memory: 64 << 20, Leftovers: r.leftovers(), Server: r.lab.Addr(),
		After: fastAfter, Log: slog.New(slog.NewTextHandler(&r.log, nil)),
	}
}

func (r *rig) newLanding() *landing.Transport {
	t := landing.New(r.session, r.landingOptions())
	r.Cleanup(func() { r.checkError(t.Close()) })
	return t
}

// landDisk lands a disk of the VM in an image, verifies it, and returns the image.
func (r *rig) landDisk(t *landing.Transport, n int, format image.Format) (image.File, error) {
	f, job := newImageJob(filepath.Join(r.TempDir(), "disk."+string(format)), &r.vm.Disks[n], format)
	return f, r.fillImage(t, transport.Disk{VM: r.vm, Disk: &r.vm.Disks[n]}, job)
}

// landAt lands the first disk in the raw image at path, which may be incomplete.
func (r *rig) landAt(t *landing.Transport, path string) image.File {
	r.Helper()
	f, job := newImageJob(path, &r.vm.Disks[0], image.Raw)
	r.must(r.fillImage(t, transport.Disk{VM: r.vm, Disk: &r.vm.Disks[0]}, job))
	return f
}

func (r *rig) fillImage(t *landing.Transport, d transport.Disk, job image.Job) error {
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

// requireSameContent compares an image with the content of disk n of the lab.
func (r *rig) requireSameContent(f image.File, n int) {
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

func TestLandedDiskHasSameContent(t *testing.T) {
	for _, format := range []image.Format{image.Raw, image.QCOW2} {
		t.Run(string(format), func(t *testing.T) {
			r := newRig(t, lab.Disk{Capacity: 40<<20 + 3*disk.SectorSize, Fill: 40, Seed: 3}, lab.Disk{Capacity: 16 << 20, Fill: 100, Seed: 4})
			tr := r.newLanding()
			for n := range r.vm.Disks {
				f, err := r.landDisk(tr, n, format)
				r.must(err)
				r.requireSameContent(f, n)
			}
		})
	}
}

func TestCloseRemovesDatastore(t *testing.T) {
	r := newRig(t, lab.Disk{Capacity: 4 << 20, Fill: 50, Seed: 5})
	tr := r.newLanding()
	_, err := r.landDisk(tr, 0, image.Raw)
	r.must(err)
	if !r.hasDatastore() {
		t.Error("the datastore is not mounted on the host")
	}
	r.must(tr.Close())
	if r.hasDatastore() {
		t.Error("the datastore is still mounted after Close")
	}
	if list, err := os.ReadDir(r.dir); err != nil || len(list) > 0 {
		t.Errorf("the folder of the landing has %v, %v, want no files", list, err)
	}
}

// hasDatastore reports whether a datastore of decamp is mounted on the host.
func (r *rig) hasDatastore() bool {
	list, err := r.session.Datastores(r.Context())
	r.must(err)
	for _, ds := range list {
		if strings.HasPrefix(ds.Name, "decamp-") {
			return true
		}
	}
	return false
}
