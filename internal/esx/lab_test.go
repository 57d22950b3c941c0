package esx_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/lab"
)

// testLab is an emulated host, and a client configuration with the same clock.
type testLab struct {
	*lab.Lab
	clock *clock
	cfg   esx.Config
}

func startLab(t testing.TB, cfg lab.Config) *testLab {
	t.Helper()
	b := &testLab{clock: newClock()}
	cfg.Clock = b.clock.Now
	var err error
	if b.Lab, err = lab.Start(context.Background(), cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	scheme := "esxi"
	if cfg.VCenter {
		scheme = "vcenter"
	}
	b.cfg = esx.Config{
		URL:         &url.URL{Scheme: scheme, User: url.User(b.User()), Host: b.Addr()},
		Password:    func(context.Context) (esx.Secret, error) { return esx.Secret(b.Password()), nil },
		Fingerprint: b.Fingerprint(),
		Now:         b.clock.Now,
		After:       b.clock.After,
	}
	return b
}

func (b *testLab) dial(t testing.TB) *esx.Session { return dial(t, b.cfg) }

// readRange reads a range of a file by HTTP, as the transport does, and compares it with want.
func readRange(t *testing.T, s *esx.Session, dc string, p inventory.Path, want []byte) {
	t.Helper()
	uri, err := s.FileURI(dc, p)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: s.TLS().Clone()}}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+s.Addr()+uri, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Cookie", sessionCookie(t, s, ""))
	req.Header.Set("Range", "bytes=4096-8191")
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusPartialContent || res.ProtoMajor != 1 || !bytes.Equal(got, want) {
		t.Errorf("%s: %s %s, %d bytes, equal %v, %v", p, res.Proto, res.Status, len(got), bytes.Equal(got, want), err)
	}
}

func flatFile(p inventory.Path) inventory.Path {
	p.File = strings.TrimSuffix(p.File, ".vmdk") + "-flat.vmdk"
	return p
}

// oddNames returns the elements of names that a VM can have on a real host: UTF-8, no newlines.
func oddNames() []string {
	return slices.DeleteFunc(slices.Clone(names), func(s string) bool {
		return s != strings.ToValidUTF8(s, "") || strings.ContainsAny(s, "\t\n") || strings.TrimSpace(s) != s || strings.Trim(s, ".") == ""
	})
}

// VMs with odd names are listed, and their disks read, on ESXi and through a vCenter. The
// datacenter of the vCenter has an odd name and is in a folder.
func TestOddNamesOnTheLab(t *testing.T) {
	for _, vcenter := range []bool{false, true} {
		cfg := lab.Config{VCenter: vcenter, HTTP2: true, Datastores: []lab.Datastore{{Name: "ds +50% #1"}}}
		if vcenter {
			cfg.Datacenters = []lab.Datacenter{{Name: "DC +1 50%", Folder: "Füchse & Co", Hosts: []string{"esx1"}}}
		}
		for i, name := range oddNames() {
			cfg.VMs = append(cfg.VMs, lab.VM{Name: name, Disks: []lab.Disk{{Capacity: 1 << 20, Fill: 90, Seed: uint64(i)}}})
		}
		b := startLab(t, cfg)
		s := b.dial(t)
		vms, err := s.VMs(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range oddNames() {
			v, err := findVM(vms, name)
			if err != nil || v.Name != name || len(v.Disks) != 1 {
				t.Errorf("%q: %+v, %v", name, v, err)
				continue
			}
			text, err := s.ReadFile(t.Context(), v.Datacenter, v.Disks[0].Path, 1<<16)
			if err != nil || !bytes.Contains(text, []byte("createType")) {
				t.Errorf("%q: descriptor %.80q, %v", name, text, err)
				continue
			}
			readRange(t, s, v.Datacenter, flatFile(v.Disks[0].Path), diskContent(t, b, name)[4096:8192])
		}
	}
}

func diskContent(t *testing.T, b *testLab, vm string) []byte {
	t.Helper()
	d, err := b.Disk(vm, 0)
	if err != nil {
		t.Fatal(err)
	}
	all := make([]byte, d.Size)
	if _, err := d.ReadAt(all, 0); err != nil && err != io.EOF {
		t.Fatal(err)
	}
	return all
}

func TestInventoryOfTheLab(t *testing.T) {
	b := startLab(t, lab.Config{
		VCenter:     true,
		Datacenters: []lab.Datacenter{{Name: "DC/1", Folder: "EU", Hosts: []string{"esx1", "esx2"}}},
		Datastores:  []lab.Datastore{{Name: "vmfs1"}, {Name: "nfs1", Type: "NFS"}, {Name: "vsan1", Type: "vsan"}},
		VMs: []lab.VM{
			{Name: "web/01", Host: "esx2", Firmware: "efi", SecureBoot: true, TPM: true, CPUs: 4, CoresPer: 2, MemoryMB: 2048, ChangeTracking: true,
				UUID: "564d0000-1111-2222-3333-444455556666", Annotation: "note", GuestID: "debian12_64Guest",
				Disks: []lab.Disk{{Capacity: 64 << 20, Fill: 50}, {Capacity: 1 << 20, Controller: "nvme", Mode: "independent_persistent", Thick: true}},
				NICs:  []lab.NIC{{MAC: "00:50:56:AA:BB:CC", Model: "e1000e", AddressType: "manual"}, {Disconnected: true}}},
			{Name: "on", PoweredOn: true, Disks: []lab.Disk{{Capacity: 1 << 20}}},
			{Name: "snap", Snapshots: []string{"a", "b"}, Disks: []lab.Disk{{Capacity: 1 << 20}}},
			{Name: "rdm", Disks: []lab.Disk{{Capacity: 1 << 20, RDM: "physicalMode"}}},
			{Name: "vsan", Datastore: "vsan1", Disks: []lab.Disk{{Capacity: 1 << 20}}},
			{Name: "locked", KeyID: "key", Disks: []lab.Disk{{Capacity: 1 << 20, Sharing: "sharingMultiWriter", Controller: "buslogic"}}},
			{Name: "vCLS-1", ExtraConfig: map[string]string{"HDCS.agent": "true"}},
		},
	})
	s := b.dial(t)
	vms, err := s.VMs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	codes := map[string]string{}
	for _, v := range vms {
		var list []string
		for _, w := range v.Warnings {
			list = append(list, w.Code)
		}
		slices.Sort(list)
		codes[v.Name] = strings.Join(list, " ")
	}
	for name, want := range map[string]string{
		"web/01": "independent secure-boot vtpm", "on": "running", "snap": "snapshots", "rdm": "rdm-physical", "vsan": "vsan",
		"locked": "buslogic encrypted shared-disk", "vCLS-1": "no-disks system-vm",
	} {
		if codes[name] != want {
			t.Errorf("%s: warnings %q, want %q", name, codes[name], want)
		}
	}
	v, err := findVM(vms, "web/01")
	if err != nil {
		t.Fatal(err)
	}
	if v.UUID != "564d0000-1111-2222-3333-444455556666" || v.HostName != "esx2" || v.Datacenter != "EU/DC%2f1" || v.Firmware != inventory.EFI ||
		v.CPUs != 4 || v.CoresPerSocket != 2 || v.MemoryMiB != 2048 || !v.ChangeTracking || v.Annotation != "note" || v.Power != inventory.PoweredOff {
		t.Errorf("VM %+v", v)
	}
	used, err := b.Disk("web/01", 0)
	if err != nil {
		t.Fatal(err)
	}
	if d := v.Disks; len(d) != 2 || d[0].Capacity != 64<<20 || d[0].Used < used.Allocated || d[0].Used > used.Allocated+4096 || !d[0].Thin || d[1].Thin || d[0].Base != d[0].Path || d[0].Layers != 1 {
		t.Errorf("disks %+v", d)
	}
	if n := v.NICs; len(n) != 2 || n[0].MAC != "00:50:56:aa:bb:cc" || n[0].Model != "e1000e" || !n[0].StartConnected || n[1].StartConnected {
		t.Errorf("network cards %+v", n)
	}
	hosts, err := s.Hosts(t.Context())
	if err != nil || len(hosts) != 2 || hosts[0].Name != "esx1" || hosts[0].Version == "" || !hosts[0].Connected {
		t.Errorf("hosts %+v, %v", hosts, err)
	}
	stores, err := s.Datastores(t.Context())
	if err != nil || len(stores) != 3 || stores[0].Type != "NFS" || stores[1].Datacenter != "EU/DC%2f1" || len(stores[1].Hosts) != 2 || stores[1].Free <= 0 {
		t.Errorf("datastores %+v, %v", stores, err)
	}
}

func findVM(vms []inventory.VM, name string) (*inventory.VM, error) {
	for i := range vms {
		if vms[i].Name == name {
			return &vms[i], nil
		}
	}
	return nil, fault.New(fault.NotFound, "no VM %s", name)
}

// The number of calls does not grow with the number of VMs.
func TestInventoryTakesThreeCalls(t *testing.T) {
	calls := func(vms int) int64 {
		var cfg lab.Config
		for i := range vms {
			cfg.VMs = append(cfg.VMs, lab.VM{Name: "vm" + string(rune('a'+i)), Disks: []lab.Disk{{Capacity: 1 << 20}}})
		}
		b := startLab(t, cfg)
		s := b.dial(t)
		b.ResetStats()
		if got, err := s.VMs(t.Context()); err != nil || len(got) != vms {
			t.Fatalf("%d VMs, %v", len(got), err)
		}
		var n int64
		for _, c := range b.Stats().SOAP {
			n += c
		}
		return n
	}
	if few, many := calls(1), calls(20); few != many || few != 3 {
		t.Fatalf("%d calls for 1 VM, %d for 20; want 3", few, many)
	}
}

var oneVM = lab.Config{VMs: []lab.VM{{Name: "web", Disks: []lab.Disk{{Capacity: 1 << 20, Fill: 50}}}}}

// A session without an API call for 30 minutes ends, even if it downloads files. Here the
// machine sleeps, so the keep-alive does not run. The session is renewed once.
func TestIdleSessionOnTheLab(t *testing.T) {
	b := startLab(t, oneVM)
	b.cfg.After = func(time.Duration) <-chan time.Time { return nil }
	s := b.dial(t)
	stale := sessionCookie(t, s, "")
	b.clock.advance(31 * time.Minute)
	var calls sync.WaitGroup
	for range 8 {
		calls.Go(func() {
			if c, err := s.Cookie(t.Context(), stale); err != nil || c == stale {
				t.Errorf("cookie %q after %q, %v", c, stale, err)
			}
			if _, err := s.VMs(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	if n := b.Stats().SOAP["Login"]; n != 2 {
		t.Fatalf("%d logins, want 2", n)
	}
}

func TestKeepAliveOnTheLab(t *testing.T) {
	b := startLab(t, oneVM)
	s := b.dial(t)
	first := sessionCookie(t, s, "")
	<-b.clock.timers
	for range 6 * 24 {
		b.clock.advance(10 * time.Minute)
		<-b.clock.timers
	}
	if c := sessionCookie(t, s, ""); c != first || b.Stats().SOAP["Login"] != 1 {
		t.Fatalf("a day later: cookie %q, want %q; %d logins", c, first, b.Stats().SOAP["Login"])
	}
}

func TestRestartedHostOnTheLab(t *testing.T) {
	b := startLab(t, oneVM)
	s := b.dial(t)
	if err := b.Restart(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.VMs(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Wrong passwords are sent so rarely that the account is not locked.
func TestAccountDoesNotLockOnTheLab(t *testing.T) {
	b := startLab(t, oneVM)
	cfg := b.cfg
	passwords := []esx.Secret{esx.Secret(b.Password()), "wrong", "wrong", "wrong", "wrong", "wrong", "wrong"}
	cfg.Password = func(context.Context) (esx.Secret, error) {
		p := passwords[0]
		passwords = passwords[1:]
		return p, nil
	}
	s := dial(t, cfg)
	b.KillSessions()
	if _, err := s.VMs(t.Context()); err != nil {
		t.Fatalf("with the password that was accepted before: %v", err)
	}
	cfg.Password = func(context.Context) (esx.Secret, error) { return "wrong", nil }
	if _, err := esx.Dial(t.Context(), cfg); !fault.Is(err, fault.Denied) {
		t.Fatal(err)
	}
	b.dial(t) // the account is not locked
}

// After the session ended, the server reports all properties as missing because of the
// missing login. The client then renews the session.
func TestPropertiesAfterTheSessionEnded(t *testing.T) {
	b := startLab(t, oneVM)
	s := b.dial(t)
	vm, err := s.VM(t.Context(), oneVM.VMs[0].Name)
	if err != nil {
		t.Fatal(err)
	}
	b.KillSessions()
	if list, err := s.HostAddresses(t.Context(), vm.Host); err != nil || len(list) == 0 {
		t.Errorf("addresses %v: %v", list, err)
	}
}

// A certificate that changes while decamp runs is refused. The error contains both
// fingerprints. Connections with a clone of TLS() refuse it too.
func TestChangedCertificateOnTheLab(t *testing.T) {
	b := startLab(t, oneVM)
	s := b.dial(t)
	before := b.Fingerprint()
	if err := b.ChangeCertificate(); err != nil {
		t.Fatal(err)
	}
	_, err := s.VMs(t.Context())
	if !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), before) || !strings.Contains(err.Error(), b.Fingerprint()) {
		t.Errorf("%v; want %s and %s", err, before, b.Fingerprint())
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: s.TLS().Clone()}}
	if res, err := client.Get("https://" + s.Addr() + "/folder"); err == nil {
		res.Body.Close()
		t.Error("a clone of TLS() accepts the new certificate")
	}
}

// The map contains every nonzero byte, with any number of pages.
func TestAllocatedOnTheLab(t *testing.T) {
	for _, cbt := range []lab.CBT{{}, {EmptyPages: true}, {MaxAreas: 1}, {MaxAreas: 3, EmptyPages: true}} {
		cfg := oneVM
		cfg.CBT = cbt
		cfg.VMs = []lab.VM{{Name: "web", ChangeTracking: true, Disks: []lab.Disk{{Capacity: 16 << 20, Fill: 30, Seed: 7}}}}
		b := startLab(t, cfg)
		s := b.dial(t)
		v, err := s.VM(t.Context(), "web")
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Allocated(t.Context(), v.Ref, "", v.Disks[0].Key, wholeDisk(&v.Disks[0]))
		if err != nil {
			t.Fatal(err)
		}
		want, err := b.Disk("web", 0)
		if err != nil {
			t.Fatal(err)
		}
		var at, used int64
		for _, e := range got {
			if e.Off != at {
				t.Fatalf("%+v: extent %v at %d", cbt, e, at)
			}
			at = e.End()
			if e.Kind == disk.Data {
				used += e.Len
			} else if p := diskContent(t, b, "web")[e.Off:e.End()]; len(bytes.Trim(p, "\x00")) != 0 {
				t.Errorf("%+v: %v is reported as zero but has data", cbt, e.Range)
			}
		}
		if at != 16<<20 || used != want.Allocated {
			t.Errorf("%+v: map ends at %d with %d bytes in use, want %d", cbt, at, used, want.Allocated)
		}
	}
}

func TestDatastoresWithoutAMapOnTheLab(t *testing.T) {
	b := startLab(t, lab.Config{
		Datastores: []lab.Datastore{{Name: "nfs1", Type: "NFS"}, {Name: "vsan1", Type: "vsan"}, {Name: "vmfs1"}},
		VMs: []lab.VM{
			{Name: "nfs", Datastore: "nfs1", ChangeTracking: true, Disks: []lab.Disk{{Capacity: 4 << 20, Fill: 30}}},
			{Name: "vsan", Datastore: "vsan1", ChangeTracking: true, Disks: []lab.Disk{{Capacity: 4 << 20, Fill: 30}}},
			{Name: "off", Datastore: "vmfs1", Disks: []lab.Disk{{Capacity: 4 << 20, Fill: 30}}},
		},
	})
	s := b.dial(t)
	allocated := func(name string) ([]disk.Extent, error) {
		v, err := s.VM(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		return s.Allocated(t.Context(), v.Ref, "", v.Disks[0].Key, wholeDisk(&v.Disks[0]))
	}
	if got, err := allocated("nfs"); err != nil || !slices.Equal(got, []disk.Extent{dataExtent(0, 4<<20)}) {
		t.Errorf("NFS: %v, %v", got, err)
	}
	for _, name := range []string{"vsan", "off"} {
		if got, err := allocated(name); !fault.Is(err, fault.Unsupported) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestPowerOffOnTheLab(t *testing.T) {
	guest := func(name string, g lab.Guest) lab.VM {
		return lab.VM{Name: name, PoweredOn: true, Guest: g, Disks: []lab.Disk{{Capacity: 1 << 20}}}
	}
	b := startLab(t, lab.Config{VMs: []lab.VM{
		guest("obeys", lab.Guest{ShutdownDelay: lab.Duration(30 * time.Second)}),
		guest("deaf", lab.Guest{IgnoresShutdown: true}),
		guest("bare", lab.Guest{NoTools: true}),
	}})
	b.clock.auto = true
	s := b.dial(t)
	for _, c := range []struct {
		vm   string
		o    esx.PowerOffOptions
		want fault.Kind
		off  bool
	}{
		{"obeys", esx.PowerOffOptions{Wait: 20 * time.Second}, fault.Conflict, false},
		{"obeys", esx.PowerOffOptions{Wait: time.Minute}, 0, true},
		{"deaf", esx.PowerOffOptions{Wait: time.Minute}, fault.Conflict, false},
		{"deaf", esx.PowerOffOptions{Wait: time.Minute, Force: true}, 0, true},
		{"bare", esx.PowerOffOptions{Wait: time.Minute}, fault.Conflict, false},
		{"bare", esx.PowerOffOptions{Force: true}, 0, true},
		{"bare", esx.PowerOffOptions{}, 0, true},
	} {
		v, err := s.VM(t.Context(), c.vm)
		if err != nil {
			t.Fatal(err)
		}
		err = s.PowerOff(t.Context(), v.Ref, c.o)
		if (err == nil) != c.off || err != nil && !fault.Is(err, c.want) {
			t.Errorf("%s %+v: %v", c.vm, c.o, err)
		}
		if v, err = s.VM(t.Context(), c.vm); err != nil || (v.Power == inventory.PoweredOff) != c.off {
			t.Errorf("%s %+v: VM is %s, %v", c.vm, c.o, v.Power, err)
		}
	}
}

// FreeLicence returns true only for a host whose licences are all those of the free hypervisor.
func TestFreeLicence(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  lab.Config
		free bool
	}{
		"free":            {lab.Config{ReadOnlyLicence: true}, true},
		"unknown edition": {lab.Config{ReadOnlyLicence: true, LicenceEdition: "esxNew"}, false},
		"evaluation":      {lab.Config{}, false},
		"vCenter":         {lab.Config{VCenter: true}, false},
	} {
		b := startLab(t, c.cfg)
		s := b.dial(t)
		if got := s.FreeLicence(t.Context()); got != c.free {
			t.Errorf("%s: got %v, want %v", name, got, c.free)
		}
	}
}

func TestFreeLicenceOnTheLab(t *testing.T) {
	b := startLab(t, lab.Config{ReadOnlyLicence: true, VMs: []lab.VM{{Name: "web", PoweredOn: true, Disks: []lab.Disk{{Capacity: 1 << 20}}}}})
	s := b.dial(t)
	v, err := s.VM(t.Context(), "web")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.PowerOff(t.Context(), v.Ref, esx.PowerOffOptions{}); !fault.Is(err, fault.Unsupported) || fault.HintOf(err) == "" {
		t.Fatalf("%v; hint %q", err, fault.HintOf(err))
	}
}

func TestLockedFileOnTheLab(t *testing.T) {
	b := startLab(t, lab.Config{VMs: []lab.VM{{Name: "web", PoweredOn: true, Disks: []lab.Disk{{Capacity: 1 << 20}}}}})
	s := b.dial(t)
	v, err := s.VM(t.Context(), "web")
	if err != nil {
		t.Fatal(err)
	}
	if _, err = s.ReadFile(t.Context(), v.Datacenter, flatFile(v.Disks[0].Path), 2<<20); !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
		t.Fatalf("%v; hint %q", err, fault.HintOf(err))
	}
}
