package boot

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/mount"
	"github.com/decamp/decamp/internal/transport/https"
	tinyguest "github.com/decamp/decamp/test/guest"
)

// A VM boots from its disk on the emulated ESXi host. QEMU reads the disk through the mount of decamp, and its writes go
// to a temporary file. The host sends only a part of the disk.
func TestDomainOnMountedHost(t *testing.T) {
	requireTool(t, program)
	if f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0); err != nil || os.Geteuid() != 0 {
		t.Skipf("needs root and /dev/fuse: %v", err)
	} else {
		f.Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	l := startLab(t, lab.VM{Name: "web01", ChangeTracking: true, Disks: []lab.Disk{{File: tinyguest.Image(t, tinyguest.BIOS)}}})
	dir := mountLab(ctx, t, l)
	flat := filepath.Join(dir, "ha-datacenter", "datastore1", "web01", "web01-flat.vmdk")
	m, err := Domain(ctx, writeDomain(t, "bios-pvscsi.xml", flat), Options{Log: filepath.Join(t.TempDir(), "console")})
	if err != nil {
		t.Fatal(err)
	}
	if m.Firmware != "bios" || m.Driver != "vmw_pvscsi" {
		t.Errorf("the guest reports %+v", m)
	}
	s := l.Stats()
	t.Logf("the boot read %d MiB of %d MiB in %d requests", s.BodyBytes>>20, tinyguest.Size>>20, s.Requests)
	if s.BodyBytes > tinyguest.Size/2 {
		t.Errorf("the boot fetched %d bytes of a disk of %d", s.BodyBytes, int64(tinyguest.Size))
	}
}

func startLab(t *testing.T, vm lab.VM) *lab.Lab {
	t.Helper()
	l, err := lab.Start(context.Background(), lab.Config{VMs: []lab.VM{vm}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// mountLab mounts the lab until the test ends, and returns the mount point.
func mountLab(ctx context.Context, t *testing.T, l *lab.Lab) string {
	t.Helper()
	host, err := esx.Dial(ctx, esx.Config{
		URL:         &url.URL{Scheme: "esxi", User: url.User(l.User()), Host: l.Addr()},
		Password:    func(context.Context) (esx.Secret, error) { return esx.Secret(l.Password()), nil },
		Fingerprint: l.Fingerprint(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { host.Close() })
	dir := t.TempDir()
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }) // usually it is unmounted
	pull := https.New(host, https.Options{})
	t.Cleanup(func() { pull.Close() })
	m, err := mount.New(ctx, mount.NewRemote(host, pull, nil), dir, mount.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return dir
}
