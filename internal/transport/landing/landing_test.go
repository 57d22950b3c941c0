package landing_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/image"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/lab"
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
	dir     string // of the landing
	ports   nfs.Ports
}

func newRig(t *testing.T, disks ...lab.Disk) *rig {
	t.Helper()
	r := &rig{T: t, dir: filepath.Join(t.TempDir(), "landing")}
	r.ports = nfs.Ports{NFS: "127.0.0.1:0", Portmap: freePort(t)}
	var err error
	r.lab, err = lab.Start(context.Background(), lab.Config{
		NFS: lab.NFS{Portmap: r.ports.Portmap},
		VMs: []lab.VM{{Name: "web 01", Disks: disks}},
	})
	r.must(err)
	t.Cleanup(func() { r.check(r.lab.Close()) })
	r.session, err = esx.Dial(t.Context(), esx.Config{
		URL:         &url.URL{Scheme: "esxi", User: url.User(r.lab.User()), Host: r.lab.Addr()},
		Password:    func(context.Context) (esx.Secret, error) { return esx.Secret(r.lab.Password()), nil },
		Fingerprint: r.lab.Fingerprint(),
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

// freePort returns an address that nobody listens on.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (r *rig) landing() *landing.Transport {
	t := landing.New(r.session, landing.Options{Dir: r.dir, Ports: r.ports, Memory: 64 << 20})
	r.Cleanup(func() { r.check(t.Close()) })
	return t
}

// land moves a disk of the VM into an image, and returns the image and its report.
func (r *rig) land(t *landing.Transport, n int, format image.Format) (image.File, error) {
	d := &r.vm.Disks[n]
	f := image.File{Path: filepath.Join(r.TempDir(), "disk."+string(format)), Format: format, Size: d.Capacity}
	job := image.Job{Place: f, Path: f.Path, Manifest: f.Path + ".manifest", Info: manifest.Info{Disk: "disk", Size: d.Capacity, Source: "test"}}
	_, _, err := job.Fill(r.Context(), func(ctx context.Context, c *image.Copying) error {
		_, err := t.Transfer(ctx, transport.Job{
			Disk: transport.Disk{VM: r.vm, Disk: d}, Target: c.Target, Manifest: c.Log, ReadBack: f.ReadUnfinished,
		})
		return err
	})
	if err != nil {
		return f, err
	}
	_, err = job.Verify(r.Context(), manifest.VerifyOptions{})
	return f, err
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
