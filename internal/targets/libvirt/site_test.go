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
	platform *Platform
	pool     string // folder of the pool; empty for a volume group
	group    string // name of the volume group
	client   *rpc.Client
	hook     targettest.CallHook
}

var poolCount atomic.Int64

// newSite creates a pool in a folder. If remote is set, images must be uploaded.
func newSite(t *testing.T, d *daemon, remote bool) *site {
	t.Helper()
	folder, err := os.MkdirTemp("", "pool") // the name of t.TempDir may require quotes in virsh
	if err != nil {
		t.Fatal(err)
	}
	s := &site{daemon: d, pool: folder, client: d.newClient(t)}
	name := fmt.Sprintf("pool%d", poolCount.Add(1))
	d.virsh(t, "pool-create-as", name, "dir", "--target", s.pool)
	s.platform = s.newPlatform(t, name)
	if remote {
		s.platform.at.transport, s.platform.at.host = "tcp", "remote"
		s.platform.dial = func(ctx context.Context, a address) (net.Conn, error) {
			conn, err := dialUnix(ctx, a)
			return &hookedConn{Conn: conn, hook: &s.hook}, err
		}
	}
	t.Cleanup(func() { s.cleanUp(t, name) })
	return s
}

// newPlatform returns a Platform at a pool of the site's libvirtd.
func (s *site) newPlatform(t *testing.T, pool string) *Platform {
	t.Helper()
	p, err := New("qemu:///system?socket="+s.socket()+"&pool="+pool, Options{})
	if err != nil {
		t.Fatal(err)
	}
	p.dial = func(ctx context.Context, a address) (net.Conn, error) {
		conn, err := dial(ctx, a)
		return &hookedConn{Conn: conn, hook: &s.hook}, err
	}
	return p
}

// cleanUp removes all domains and the site's pool from libvirt.
func (s *site) cleanUp(t *testing.T, pool string) {
	s.client.Close()
	c := s.daemon.newClient(t)
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

// site returns the Site for the conformance suite.
func (s *site) site() targettest.Site {
	return targettest.Site{Platform: s.platform, VMs: s.storedVMs, Objects: s.listObjects, Occupy: s.occupy, SetCallHook: s.hook.SetHook, Reads: s.hook.Reads}
}

func newHarness(d *daemon, remote bool) targettest.Harness {
	newPlatform := func(url func(t *testing.T) string) func(t *testing.T) platform.Platform {
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
		Denied: newPlatform(func(t *testing.T) string {
			s := newSSH(t)
			return s.url(d, s.otherKey)
		}),
		Unreachable: newPlatform(func(t *testing.T) string { return "qemu:///system?socket=" + filepath.Join(t.TempDir(), "none") }),
	}
}

// domains returns all domains with their descriptions, sorted by name.
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

func (s *site) storedVMs(t *testing.T) []targettest.StoredVM {
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
				one.Disks = append(one.Disks, s.readDisk(t, disk))
			}
		}
		all = append(all, one)
	}
	return all
}

// secureBoot reports whether libvirt must choose firmware with Secure Boot at the start.
func secureBoot(o *libvirtxml.DomainOS) bool {
	if o.FirmwareInfo == nil {
		return false
	}
	return slices.ContainsFunc(o.FirmwareInfo.Features, func(f libvirtxml.DomainOSFirmwareFeature) bool {
		return f.Name == "secure-boot" && f.Enabled == "yes"
	})
}

// readDisk returns the data that the guest finds on a disk. qemu-img reads images that are not raw.
func (s *site) readDisk(t *testing.T, disk libvirtxml.DomainDisk) []byte {
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

// listObjects lists the domains and the files of the pool with their checksums.
func (s *site) listObjects(t *testing.T) []string {
	t.Helper()
	var all []string
	domains, texts := s.domains(t)
	for i, d := range domains {
		all = append(all, fmt.Sprintf("domain %q %d %x", d.Name, d.ID, sha256.Sum256([]byte(texts[i]))))
	}
	if s.pool == "" {
		return append(all, s.describeVolumes(t)...)
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

// occupy defines a foreign domain with the name that vm will get, and a volume with a similar name.
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
