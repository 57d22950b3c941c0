package libvirt

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"libvirt.org/go/libvirtxml"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets/dir"
	"github.com/decamp/decamp/internal/targets/libvirt/rpc"
	"github.com/decamp/decamp/internal/targets/platform"
	"github.com/decamp/decamp/internal/targets/targettest"
)

// A site is a pool of a real libvirtd.
type site struct {
	*daemon
	place  *Platform
	pool   string // its folder; empty where it is a volume group
	group  string // the volume group
	client *rpc.Client
	tap    targettest.CallHook
}

var pools atomic.Int64

// newSite makes a pool in a folder. A place that is remote has to upload.
func newSite(t *testing.T, d *daemon, remote bool) *site {
	t.Helper()
	folder, err := os.MkdirTemp("", "pool") // a test's own may have a name that virsh does not quote
	if err != nil {
		t.Fatal(err)
	}
	s := &site{daemon: d, pool: folder, client: d.client(t)}
	name := fmt.Sprintf("pool%d", pools.Add(1))
	d.virsh(t, "pool-create-as", name, "dir", "--target", s.pool)
	s.place = s.placeOf(t, name)
	if remote {
		s.place.at.transport, s.place.at.host = "tcp", "remote"
		s.place.dial = func(ctx context.Context, a address) (net.Conn, error) {
			conn, err := dialUnix(ctx, a)
			return &tapped{Conn: conn, tap: &s.tap}, err
		}
	}
	t.Cleanup(func() { s.clear(t, name) })
	return s
}

// placeOf is the place at a pool of the site's libvirt.
func (s *site) placeOf(t *testing.T, pool string) *Platform {
	t.Helper()
	place, err := New("qemu:///system?socket="+s.socket()+"&pool="+pool, Options{})
	if err != nil {
		t.Fatal(err)
	}
	place.dial = func(ctx context.Context, a address) (net.Conn, error) {
		conn, err := dial(ctx, a)
		return &tapped{Conn: conn, tap: &s.tap}, err
	}
	return place
}

// clear has libvirt forget the site's pool and every domain.
func (s *site) clear(t *testing.T, pool string) {
	s.client.Close()
	c := s.daemon.client(t)
	defer c.Close()
	ctx := context.WithoutCancel(t.Context())
	domains, err := c.Domains(ctx)
	if err != nil {
		t.Error(err)
	}
	for _, d := range domains {
		if err := c.Undefine(ctx, d); err != nil {
			t.Errorf("undefine %s: %v", d.Name, err)
		}
	}
	s.virsh(t, "pool-destroy", pool)
	if s.pool == "" {
		return
	}
	if err := os.RemoveAll(s.pool); err != nil {
		t.Error(err)
	}
}

// site is what the suite sees of it.
func (s *site) site() targettest.Site {
	return targettest.Site{Platform: s.place, VMs: s.seen, Objects: s.things, Occupy: s.occupy, SetCallHook: s.tap.SetHook, Reads: s.tap.Reads}
}

func harness(d *daemon, remote bool) targettest.Harness {
	at := func(url func(t *testing.T) string) func(t *testing.T) platform.Platform {
		return func(t *testing.T) platform.Platform {
			p, err := New(url(t), Options{})
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
	}
	return targettest.Harness{
		New: func(t *testing.T) targettest.Site {
			return newSite(t, d, remote).site()
		},
		Denied: at(func(t *testing.T) string {
			s := newSSH(t)
			return s.url(d, s.otherKey)
		}),
		Unreachable: at(func(t *testing.T) string { return "qemu:///system?socket=" + filepath.Join(t.TempDir(), "none") }),
	}
}

// domains describes all of them.
func (s *site) domains(t *testing.T) (all []rpc.Domain, texts []string) {
	t.Helper()
	all, err := s.client.Domains(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(all, func(a, b rpc.Domain) int { return strings.Compare(a.Name, b.Name) })
	for _, d := range all {
		text, err := s.client.DomainXML(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, text)
	}
	return all, texts
}

func (s *site) seen(t *testing.T) []targettest.StoredVM {
	t.Helper()
	domains, texts := s.domains(t)
	auto := s.virsh(t, "list", "--all", "--autostart", "--name")
	var all []targettest.StoredVM
	for i, d := range domains {
		var x libvirtxml.Domain
		if err := x.Unmarshal(texts[i]); err != nil {
			t.Fatal(err)
		}
		one := targettest.StoredVM{
			ID: d.UUID.String(), Name: d.Name, UUID: x.UUID, Running: d.ID != -1 || strings.Contains(auto, d.Name),
			CPUs: int(x.VCPU.Value), MemoryMiB: int64(x.Memory.Value) >> 10,
			EFI: x.OS.Firmware == "efi", SecureBoot: secureBoot(x.OS), TPM: len(x.Devices.TPMs) > 0,
			Metadata: x.Description + " " + x.Metadata.XML,
		}
		for _, card := range x.Devices.Interfaces {
			one.MACs = append(one.MACs, card.MAC.Address)
		}
		for _, disk := range x.Devices.Disks {
			if disk.Device == "disk" {
				one.Disks = append(one.Disks, s.read(t, disk))
			}
		}
		all = append(all, one)
	}
	return all
}

// secureBoot reports whether libvirt is to choose firmware with secure boot, which it does at the start.
func secureBoot(o *libvirtxml.DomainOS) bool {
	if o.FirmwareInfo == nil {
		return false
	}
	return slices.ContainsFunc(o.FirmwareInfo.Features, func(f libvirtxml.DomainOSFirmwareFeature) bool {
		return f.Name == "secure-boot" && f.Enabled == "yes"
	})
}

// read returns what the guest would find on a disk. QEMU's own tool reads images that are not raw.
func (s *site) read(t *testing.T, disk libvirtxml.DomainDisk) []byte {
	t.Helper()
	if s.pool == "" {
		return s.readDevice(t, disk)
	}
	if filepath.Dir(disk.Source.File.File) != s.pool {
		t.Errorf("disk %s is not in the pool", disk.Source.File.File)
	}
	if disk.Driver.Type == "raw" {
		p, err := os.ReadFile(disk.Source.File.File)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	out := filepath.Join(t.TempDir(), "disk.raw")
	cmd := exec.CommandContext(t.Context(), "qemu-img", "convert", "-f", disk.Driver.Type, "-O", "raw", disk.Source.File.File, out)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("qemu-img: %v: %s", err, text)
	}
	p, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// things are domains, as libvirt has them, and files of the pool, as they are.
func (s *site) things(t *testing.T) []string {
	t.Helper()
	var all []string
	domains, texts := s.domains(t)
	for i, d := range domains {
		all = append(all, fmt.Sprintf("domain %q %d %x", d.Name, d.ID, sha256.Sum256([]byte(texts[i]))))
	}
	if s.pool == "" {
		return append(all, s.deviceThings(t)...)
	}
	err := fs.WalkDir(os.DirFS(s.pool), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		p, err := os.ReadFile(filepath.Join(s.pool, path))
		all = append(all, fmt.Sprintf("file %q %x", path, sha256.Sum256(p)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// occupy has somebody define a domain of the name vm will get, and with a volume like one of its own.
func (s *site) occupy(t *testing.T, vm *inventory.VM) {
	t.Helper()
	x := libvirtxml.Domain{
		Type: "qemu", Name: dir.DomainName(vm.Name), Memory: &libvirtxml.DomainMemory{Value: 64, Unit: "MiB"},
		OS: &libvirtxml.DomainOS{Type: &libvirtxml.DomainOSType{Type: "hvm"}},
	}
	text, err := x.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.client.DefineDomain(t.Context(), text); err != nil {
		t.Fatal(err)
	}
	if s.pool == "" {
		s.virsh(t, "vol-create-as", s.group, dir.SafeName(vm.Name)+"-disk0.raw", "4M")
		return
	}
	if err := os.WriteFile(filepath.Join(s.pool, dir.SafeName(vm.Name)+"-disk0.raw"), []byte("theirs"), 0o644); err != nil {
		t.Fatal(err)
	}
}
