package preflight

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/blockcopy"
	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/transport"
)

const gib = 1 << 30

// fakeSource is a vCenter with two hosts.
type fakeSource struct {
	vms []inventory.VM
	ssh map[inventory.MoRef]bool
	err error

	free bool
}

func (s *fakeSource) FreeLicence(context.Context) bool { return s.free }

func (s *fakeSource) Hosts(context.Context) ([]inventory.Host, error) {
	return []inventory.Host{{Ref: "host-1", Name: "esx1", Connected: true}, {Ref: "host-2", Name: "esx2", Connected: true}, {Ref: "host-3", Name: "esx3"},
		{Ref: "host-6", Name: "esx6", Connected: true, Version: "6.7.0"}, {Ref: "host-8", Name: "esx8", Connected: true, Version: "8.0.3"}}, s.err
}

func (s *fakeSource) Datastores(context.Context) ([]inventory.Datastore, error) {
	return []inventory.Datastore{{Name: "ssd"}, {Name: "vmfs", Type: "VMFS"}, {Name: "nas", Type: "NFS"}}, nil
}

func (s *fakeSource) VMs(context.Context) ([]inventory.VM, error) { return s.vms, nil }

func (s *fakeSource) SSHRuns(_ context.Context, host inventory.MoRef) (bool, error) {
	if host == "host-2" {
		return false, errors.New("it does not say")
	}
	return s.ssh[host], nil
}

// fakeTarget is a target with some free space. Its result depends on the name of the VM.
type fakeTarget struct {
	folder string
	device uint64
	free   int64
}

func (p *fakeTarget) Plan(_ context.Context, vm *inventory.VM) ([]targets.Image, error) {
	switch vm.Name {
	case "refused":
		return nil, fault.New(fault.Conflict, "it exists already").WithHint("move it away")
	case "large":
		return nil, fault.New(fault.Full, "it alone does not fit")
	}
	return nil, nil
}

func (p *fakeTarget) Folder(vm *inventory.VM) string {
	return p.folder + "/" + strings.ReplaceAll(vm.Name, " ", "_")
}
func (p *fakeTarget) Holds(vm *inventory.VM) bool { return vm.Name == "moved" }
func (p *fakeTarget) Need(vm *inventory.VM) (least, most int64) {
	return vm.Used, vm.Provisioned
}
func (p *fakeTarget) Room() (int64, uint64, error) { return p.free, p.device, nil }

// fakeTransport can copy the disks of all VMs, except those with special names.
type fakeTransport struct {
	name    string
	fixture *fixture
}

func (t *fakeTransport) Name() string { return t.name }
func (t *fakeTransport) Probe(_ context.Context, d transport.Disk) (transport.Offer, error) {
	t.fixture.mu.Lock()
	t.fixture.probed = append(t.fixture.probed, t.name+" "+d.VM.Name)
	t.fixture.mu.Unlock()
	switch d.VM.Name {
	case "odd":
		return transport.Offer{Reason: "it is odd"}, nil
	case "mute":
		return transport.Offer{}, fault.New(fault.Unreachable, "no answer").WithHint("open port 902")
	}
	return transport.Offer{Usable: true}, nil
}
func (t *fakeTransport) Transfer(context.Context, transport.Job) (blockcopy.Result, error) {
	panic("a check must not transfer a disk")
}
func (t *fakeTransport) Close() error { return nil }

// migratableVM returns a powered-off VM without obstacles.
func migratableVM(ref, name, host string) inventory.VM {
	return inventory.VM{
		Ref: inventory.MoRef(ref), Name: name, Host: inventory.MoRef(host), Power: inventory.PoweredOff, HardwareVersion: 19, VMX: inventory.Path{Datastore: "ssd"},
		Disks: []inventory.Disk{{Key: 2000, Backing: inventory.Flat, Layers: 1}}, Used: gib, Provisioned: 4 * gib,
	}
}

// fixture has fake dependencies of Check, and records the calls of Probe.
type fixture struct {
	Dependencies
	source *fakeSource
	mu     sync.Mutex // protects probed
	probed []string   // transport and VM of each Probe
}

func newFixture(vms ...inventory.VM) *fixture {
	r := &fixture{source: &fakeSource{vms: vms}}
	r.Dependencies = Dependencies{
		Source: r.source,
		Names:  func(vms []inventory.VM) planfile.Finder { return esx.NewIndex(vms) },
		OpenTarget: func(_ context.Context, to planfile.Destination, _ planfile.Options) (Target, error) {
			switch to.Folder() {
			case "/missing":
				return nil, fault.New(fault.NotFound, "target %s does not exist", to).WithHint("make it")
			case "/small":
				return &fakeTarget{"/small", 2, 2 * gib}, nil
			case "/small/too":
				return &fakeTarget{"/small/too", 2, 2 * gib}, nil
			}
			return &fakeTarget{to.Folder(), 1, 100 * gib}, nil
		},
		Transport: func(_ context.Context, o planfile.Options) (transport.Transport, error) {
			if o.NFC.Network == "vmk9" {
				return nil, fault.New(fault.Invalid, "no such thing").WithHint("another")
			}
			return &fakeTransport{string(o.Transport), r}, nil
		},
		Reach: func(_ context.Context, h inventory.Host) error {
			if h.Name == "esx2" {
				return fault.New(fault.Unreachable, "esx2 does not answer").WithHint("look for a firewall")
			}
			return nil
		},
		Now: func() time.Time { return time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC) },
	}
	return r
}

const head = "version: 1\nname: p\nsource: {url: vcenter://a@h}\n"

func parsePlan(t *testing.T, text string) *planfile.File {
	t.Helper()
	f, found := planfile.Parse([]byte(head + text))
	if len(found) > 0 {
		t.Fatal(found)
	}
	return f
}

func (r *fixture) checkPlan(t *testing.T, text string) Report {
	t.Helper()
	slices.SortFunc(r.source.vms, func(a, b inventory.VM) int { return strings.Compare(a.Name, b.Name) })
	report, err := Check(t.Context(), parsePlan(t, text), r.Dependencies)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func TestPlanWithoutFindings(t *testing.T) {
	r := newFixture(migratableVM("vm-1", "a", "host-1"), migratableVM("vm-2", "b", "host-1"), migratableVM("vm-3", "c", "host-2"))
	report := r.checkPlan(t, "defaults: {to: [dir:/x]}\nselect: name ~ *\nvms: [{vm: c, transport: nfc}]")
	if len(report.Findings) > 0 || report.VMs != 3 || report.Disks != 3 || report.Bytes != 12*gib {
		t.Errorf("report %+v", report)
	}
	if len(report.FileSystems) != 1 || report.FileSystems[0].Least != 3*gib || report.FileSystems[0].Most != 12*gib || report.FileSystems[0].VMs != 3 {
		t.Errorf("file systems %+v", report.FileSystems)
	}
	slices.Sort(r.probed)
	if !slices.Equal(r.probed, []string{"https a", "nfc c"}) { // one VM for each host and transport
		t.Errorf("probed %q", r.probed)
	}
}

func TestFindings(t *testing.T) {
	with := func(change func(*inventory.VM)) inventory.VM {
		v := migratableVM("vm-1", "a", "host-1")
		change(&v)
		return v
	}
	blocks := func(code string) func(*inventory.VM) {
		return func(v *inventory.VM) {
			v.Warnings = append(v.Warnings, inventory.Warning{Code: code, Text: "it is " + code, Remedy: "do something", Blocks: true})
		}
	}
	on := func(v *inventory.VM) { v.Power = inventory.PoweredOn }
	const to = "defaults: {to: [dir:/x]}\nvms: [{vm: vm-1}]"
	const warm = "defaults: {to: [dir:/x], mode: warm, transport: nfc}\nvms: [{vm: vm-1}]"
	runs := func(host, datastore string) []inventory.VM {
		return []inventory.VM{with(func(v *inventory.VM) { on(v); v.Host, v.Disks[0].Base.Datastore = inventory.MoRef(host), datastore })}
	}
	two := []inventory.VM{migratableVM("vm-1", "a b", "host-1"), migratableVM("vm-2", "a_b", "host-1")}
	for _, c := range []struct {
		name string
		vms  []inventory.VM
		text string
		want []string // code, "!" if the finding blocks, and kind
	}{
		{"missing", nil, to, []string{"vm! not-found"}},
		{"running", []inventory.VM{with(on)}, to, []string{"running! conflict"}},
		{"running, shutdown permitted", []inventory.VM{with(on)}, "defaults: {to: [dir:/x], powerOff: guest}\nvms: [{vm: vm-1}]", nil},
		{"suspended, guest shutdown", []inventory.VM{with(func(v *inventory.VM) { v.Power = inventory.Suspended })}, "defaults: {to: [dir:/x], powerOff: guest}\nvms: [{vm: vm-1}]", []string{"suspended! conflict"}},
		{"suspended, forced", []inventory.VM{with(func(v *inventory.VM) { v.Power = inventory.Suspended })}, "defaults: {to: [dir:/x], powerOff: force}\nvms: [{vm: vm-1}]", nil},
		{"warm", []inventory.VM{with(on)}, warm, nil},
		{"warm over https", []inventory.VM{with(on)}, strings.Replace(warm, "nfc", "https", 1), []string{"warm-https "}},
		{"warm over https, host locks files", runs("host-8", "vmfs"), strings.Replace(warm, "nfc", "https", 1), []string{"warm-https! unsupported"}},
		{"warm over https, older host", runs("host-6", "vmfs"), strings.Replace(warm, "nfc", "https", 1), []string{"warm-https "}},
		{"warm over https, unknown locks", runs("host-8", "nas"), strings.Replace(warm, "nfc", "https", 1), []string{"warm-https "}},
		{"warm over nfc, host locks files", runs("host-8", "vmfs"), warm, nil},
		{"cold over https, shutdown first", runs("host-8", "vmfs"), "defaults: {to: [dir:/x], powerOff: guest, transport: https}\nvms: [{vm: vm-1}]", nil},
		{"warm over https, powered off", []inventory.VM{migratableVM("vm-1", "a", "host-8")}, strings.Replace(warm, "nfc", "https", 1), nil},
		{"warm, suspended, forced", []inventory.VM{with(func(v *inventory.VM) { v.Power = inventory.Suspended })}, strings.Replace(warm, "mode", "powerOff: force, mode", 1), []string{"suspended! conflict"}},
		{"warm, independent", []inventory.VM{with(func(v *inventory.VM) { v.Disks[0].Mode = "independent_persistent" })}, warm, []string{"no-snapshot! unsupported"}},
		{"cold, independent", []inventory.VM{with(func(v *inventory.VM) { v.Disks[0].Mode = "independent_persistent" })}, to, nil},
		{"warm, passthrough", []inventory.VM{with(func(v *inventory.VM) { v.Warnings = []inventory.Warning{{Code: "passthrough"}} })}, warm, []string{"no-snapshot! unsupported"}},
		{"warm, old hardware", []inventory.VM{with(func(v *inventory.VM) { v.HardwareVersion = 4 })}, warm, []string{"no-cbt "}},
		{"warm, cutover in the past", []inventory.VM{with(on)}, strings.Replace(warm, "mode", "warm: {cutover: 2026-11-30T00:00Z}, mode", 1), []string{"cutover-passed "}},
		{"unsupported disk", []inventory.VM{with(blocks("vvol"))}, to, []string{"vvol! unsupported"}},
		{"two findings", []inventory.VM{with(func(v *inventory.VM) { on(v); blocks("vvol")(v) })}, to, []string{"vvol! unsupported", "running! conflict"}},
		{"host disconnected", []inventory.VM{with(func(v *inventory.VM) { v.Host = "host-3" })}, to, []string{"host-down! unreachable"}},
		{"missing folder, reported once", two, "defaults: {to: [dir:/missing]}\nselect: name ~ *", []string{"target! not-found"}},
		{"name in use", []inventory.VM{with(func(v *inventory.VM) { v.Name = "refused" })}, to, []string{"target! conflict"}},
		{"two VMs with one folder", two, "defaults: {to: [dir:/x]}\nselect: name ~ *", []string{"name! conflict"}},
		{"already migrated", []inventory.VM{with(func(v *inventory.VM) { v.Name = "moved" })}, to, []string{"already "}},
		{"no space for all, in two folders of one file system", []inventory.VM{migratableVM("vm-1", "a", "host-1"), migratableVM("vm-2", "b", "host-1"), migratableVM("vm-3", "c", "host-1")},
			"defaults: {to: [dir:/small]}\nselect: name ~ *\nvms: [{vm: c, to: [dir:/small/too]}]", []string{"space! full"}},
		{"no space for one VM, reported once", []inventory.VM{with(func(v *inventory.VM) { v.Name, v.Used = "large", 3*gib })}, strings.Replace(to, "/x", "/small", 1), []string{"space! full"}},
		{"space may be insufficient", []inventory.VM{migratableVM("vm-1", "a", "host-1")}, strings.Replace(to, "/x", "/small", 1), []string{"space "}},
		{"unsupported by the transport", []inventory.VM{with(func(v *inventory.VM) { v.Name = "odd" })}, to, []string{"transport! unsupported"}},
		{"transport unreachable", []inventory.VM{with(func(v *inventory.VM) { v.Name = "mute" })}, to, []string{"transport! unreachable"}},
		{"invalid transport, reported once", two, "defaults: {nfc: {network: vmk9}, to: [dir:/a]}\nselect: name ~ *\nvms: [{vm: vm-2, to: [dir:/b]}]", []string{"transport! invalid"}},
		{"SSH off on one host, unknown on the other", []inventory.VM{migratableVM("vm-1", "a", "host-1"), migratableVM("vm-2", "b", "host-2")},
			"defaults: {to: [dir:/x], sourceHash: true}\nselect: name ~ *", []string{"ssh-off! denied"}},
		{"unknown names in maps", []inventory.VM{with(func(v *inventory.VM) { v.NICs = []inventory.NIC{{Network: "n1"}} })},
			to + "\nmaps: {networks: {n2: br0}, datastores: {hdd: dir:/x}}", []string{"map ", "map ", "map "}},
	} {
		t.Run(c.name, func(t *testing.T) {
			report := newFixture(c.vms...).checkPlan(t, c.text)
			var got []string
			for _, f := range report.Findings {
				code := f.Code
				if f.Blocks {
					code += "!"
				}
				got = append(got, code+" "+f.Kind)
				if f.Text == "" || f.Remedy == "" || f.Line == 0 {
					t.Errorf("finding without text, remedy or line: %+v", f)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("found %q, want %q: %v", got, c.want, report.Findings)
			}
		})
	}
}

// ForceOff permits a power-off at the cutover of a warm migration. It does not permit a warm migration of a suspended
// VM.
func TestPermitOfAWarmVM(t *testing.T) {
	p := PermitOf(planfile.Options{Mode: planfile.WarmMode, PowerOff: planfile.ForceOff})
	if !p.PowerOff || !p.Force || !p.Warm {
		t.Errorf("permit %+v", p)
	}
	suspended := migratableVM("vm-1", "a", "host-1")
	suspended.Power = inventory.Suspended
	if found := Obstacles(&suspended, nil, p); len(found) != 1 || found[0].Code != "suspended" {
		t.Errorf("obstacles of a warm migration: %v", found)
	}
	if found := Obstacles(&suspended, nil, PermitOf(planfile.Options{Mode: planfile.Cold, PowerOff: planfile.ForceOff})); len(found) != 0 {
		t.Errorf("obstacles of a cold migration: %v", found)
	}
}

// The transport landing requires SSH on a host with the free licence.
func TestLandingWithFreeLicenceNeedsSSH(t *testing.T) {
	r := newFixture(migratableVM("vm-1", "a", "host-1"))
	r.source.free = true
	report := r.checkPlan(t, "defaults: {to: [dir:/x], transport: landing}\nvms: [{vm: a}]")
	if len(report.Findings) != 1 || report.Findings[0].Code != "ssh-off" {
		t.Errorf("found %v", report.Findings)
	}
}

// With the free licence, snapshots, power-off and copies require SSH, and change tracking is unavailable.
func TestFreeLicence(t *testing.T) {
	running := migratableVM("vm-1", "a", "host-1")
	running.Power = inventory.PoweredOn
	off := migratableVM("vm-2", "b", "host-1")
	for text, want := range map[string]string{
		"vms: [{vm: a, mode: warm, transport: nfc}]":                "no-cbt",
		"vms: [{vm: a, powerOff: guest}]":                           "",
		"vms: [{vm: b, powerOff: guest}]":                           "",
		"vms: [{vm: b, transport: landing, landing: {copy: api}}]":  "licence",
		"vms: [{vm: b, transport: landing, landing: {memory: 1M}}]": "",
		"vms: [{vm: b}, {vm: a, powerOff: force}]":                  "",
	} {
		if got := codesWithAFreeLicence(t, text, true, running, off); got != want {
			t.Errorf("%s: found %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"vms: [{vm: a, mode: warm, transport: nfc}]": "no-cbt ssh-off",
		"vms: [{vm: a, powerOff: guest}]":            "ssh-off",
		"vms: [{vm: b, powerOff: guest}]":            "",
		"vms: [{vm: b, mode: warm, transport: nfc}]": "no-cbt ssh-off",
	} {
		if got := codesWithAFreeLicence(t, text, false, running, off); got != want {
			t.Errorf("%s, without SSH: found %q, want %q", text, got, want)
		}
	}
}

// The copy of a disk without a data file requires SSH with any licence, unless the API must copy.
func TestLandingOfARawDeviceNeedsSSH(t *testing.T) {
	raw := migratableVM("vm-1", "a", "host-1")
	raw.Disks[0].Backing = inventory.RDM
	for _, c := range []struct {
		copy string
		vm   inventory.VM
		want bool
	}{{"auto", raw, true}, {"ssh", raw, true}, {"api", raw, false}, {"auto", migratableVM("vm-2", "b", "host-1"), false}} {
		r := newFixture(c.vm)
		r.source.ssh = map[inventory.MoRef]bool{"host-1": false}
		text := "defaults: {to: [dir:/x]}\nvms: [{vm: " + c.vm.Name + ", transport: landing, landing: {copy: " + c.copy + "}}]"
		found := slices.ContainsFunc(r.checkPlan(t, text).Findings, func(f planfile.Finding) bool { return f.Code == "ssh-off" })
		if found != c.want {
			t.Errorf("%s: SSH is required: %v, want %v", text, found, c.want)
		}
	}
}

// codesWithAFreeLicence returns the codes of the findings for a host with the free licence.
func codesWithAFreeLicence(t *testing.T, text string, ssh bool, vms ...inventory.VM) string {
	t.Helper()
	r := newFixture(vms...)
	r.source.free, r.source.ssh = true, map[inventory.MoRef]bool{"host-1": ssh}
	var codes []string
	for _, f := range r.checkPlan(t, "defaults: {to: [dir:/x]}\n"+text).Findings {
		codes = append(codes, f.Code)
		if f.Code == "ssh-off" && strings.Contains(f.Remedy, "enable") {
			t.Errorf("%s: the remedy is a call that the API refuses: %s", text, f.Remedy)
		}
	}
	slices.Sort(codes)
	return strings.Join(codes, " ")
}

func TestDirectPlansReachEachHost(t *testing.T) {
	r := newFixture(migratableVM("vm-1", "a", "host-1"), migratableVM("vm-2", "b", "host-2"), migratableVM("vm-3", "c", "host-2"))
	f, found := planfile.Parse([]byte(strings.Replace(head, "{url", "{direct: true, url", 1) + "defaults: {to: [dir:/x]}\nselect: name ~ *"))
	if len(found) > 0 {
		t.Fatal(found)
	}
	report, err := Check(t.Context(), f, r.Dependencies)
	if err != nil || len(report.Findings) != 1 || report.Findings[0].Code != "host-unreachable" {
		t.Errorf("found %v, %v", report.Findings, err)
	}
}

func TestFailedListIsAnError(t *testing.T) {
	r := newFixture()
	r.source.err = fault.New(fault.Denied, "no")
	if _, err := Check(t.Context(), parsePlan(t, "defaults: {to: [dir:/x]}\nselect: cbt"), r.Dependencies); !fault.Is(err, fault.Denied) {
		t.Errorf("error %v", err)
	}
}

func TestManyVMs(t *testing.T) {
	var vms []inventory.VM
	var text strings.Builder
	text.WriteString("defaults: {to: [dir:/x]}\nvms:\n")
	for i := range 2000 {
		name := fmt.Sprintf("vm%04d", i)
		v := migratableVM(fmt.Sprint("vm-", i), name, "host-1")
		v.Used = 1 << 20
		v.Provisioned = 1 << 20
		vms = append(vms, v)
		fmt.Fprintf(&text, "  - vm: %s\n", name)
	}
	if report := newFixture(vms...).checkPlan(t, text.String()); report.VMs != 2000 || len(report.Findings) > 0 {
		t.Errorf("%d VMs, found %v", report.VMs, report.Findings)
	}
}

func TestLocal(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "here"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"CREDENTIALS_DIRECTORY": folder}
	for _, c := range []struct {
		name, source, rest string
		env                map[string]string
		want               string // code and kind
	}{
		{"relative path", "credentials: {file: here}", "", nil, ""},
		{"absolute path", "credentials: {file: " + folder + "/here}", "", nil, ""},
		{"missing file", "credentials: {file: gone}", "", nil, "credentials not-found"},
		{"systemd credential", "credentials: {name: here}", "", env, ""},
		{"missing systemd credential", "credentials: {name: gone}", "", env, "credentials not-found"},
		{"not under systemd", "credentials: {name: here}", "", nil, "credentials invalid"},
		{"missing SSH credentials", "ssh: {credentials: {file: gone}}", "", nil, "credentials not-found"},
		{"missing SSH key", "ssh: {key: gone}", "", nil, "credentials not-found"},
		{"missing hook", "direct: false", "hooks: {pre: {command: [/nonexistent/hook]}, post: {command: [/nonexistent/hook, x]}}", nil, "hook not-found"},
		{"existing hook", "direct: false", "hooks: {pre: {command: [/bin/sh, -c, exit]}}", nil, ""},
	} {
		f, found := planfile.Parse([]byte("version: 1\nname: p\nsource: {url: vcenter://a@h, " + c.source + "}\nselect: cbt\ndefaults: {to: [dir:/x]}\n" + c.rest))
		if len(found) > 0 {
			t.Fatal(c.name, found)
		}
		got := ""
		for _, f := range Local(f, folder, func(name string) string { return c.env[name] }) {
			got += f.Code + " " + f.Kind
		}
		if got != c.want {
			t.Errorf("%s: found %q, want %q", c.name, got, c.want)
		}
	}
}
