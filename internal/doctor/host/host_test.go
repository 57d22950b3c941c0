package host_test

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/doctor"
	"github.com/decamp/decamp/internal/doctor/host"
	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/lab"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// examine starts a lab, logs in and runs the checks for a use.
func examine(t *testing.T, cfg lab.Config, use host.Use) []doctor.Finding {
	t.Helper()
	cfg.Clock = func() time.Time { return now }
	l, err := lab.Start(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	scheme := "esxi"
	if cfg.VCenter {
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
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return doctor.Examine(t.Context(), host.Checks(newOptions(t, s, l.User(), use)), doctor.Options{})
}

func newOptions(t *testing.T, s *esx.Session, user string, use host.Use) host.Options {
	t.Helper()
	hosts, err := s.Hosts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	stores, err := s.Datastores(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	vms, err := s.VMs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return host.Options{
		Source: s, User: user, VCenter: s.About().VCenter, Hosts: hosts, Datastores: stores, VMs: vms, Use: use,
		Now: func() time.Time { return now },
	}
}

// findingsOf returns the findings of a check.
func findingsOf(found []doctor.Finding, code string) (some []doctor.Finding) {
	for _, f := range found {
		if f.Code == code {
			some = append(some, f)
		}
	}
	return some
}

func newVM(name string, capacity lab.Bytes) lab.VM {
	return lab.VM{Name: name, Disks: []lab.Disk{{Capacity: capacity}, {Capacity: 1 << 20}}}
}

// In each case, the check has only OK findings for the good lab, and one other finding for the bad lab.
func TestChecks(t *testing.T) {
	hostState := func(s lab.HostState) lab.Config { return lab.Config{Host: s} }
	datastore := func(d lab.Datastore) lab.Config {
		d.Name = "datastore1"
		return lab.Config{Datastores: []lab.Datastore{d}, VMs: []lab.VM{newVM("a", 1<<40)}}
	}
	https, nfc := host.Use{Transport: "https"}, host.Use{Transport: "nfc"}
	landing, warm := host.Use{Transport: "landing"}, host.Use{Transport: "nfc", Warm: true}
	for _, c := range []struct {
		code   string
		good   lab.Config
		bad    lab.Config
		use    host.Use
		status doctor.Status
		found  string
		remedy string
	}{
		{"host-maintenance", lab.Config{}, hostState(lab.HostState{Maintenance: true}), https, doctor.Warning, "VMs cannot be powered on", "maintenanceMode set"},
		{"host-maintenance", lab.Config{}, hostState(lab.HostState{Maintenance: true}), nfc, doctor.Failure, "NFC cannot read disks", "maintenanceMode set"},
		{"host-version", lab.Config{}, lab.Config{Version: "6.7.0"}, https, doctor.Advice, "ended on 2022-10-15", "migrate the VMs"},
		{"host-version", lab.Config{Version: "9.0.1"}, lab.Config{Version: "7.0.3"}, https, doctor.Advice, "ended on 2025-10-02", "migrate the VMs"},
		{"host-version", lab.Config{}, lab.Config{Version: "5.5.0"}, https, doctor.Warning, "no reports about migrations from this version", "upgrade"},
		{"host-licence", lab.Config{}, lab.Config{ReadOnlyLicence: true}, landing, doctor.Warning, "requires SSH", "vim-cmd hostsvc/start_ssh"},
		{"host-licence", lab.Config{EvaluationEnds: now.AddDate(0, 0, 15)}, lab.Config{EvaluationEnds: now.AddDate(0, 0, 13)}, https, doctor.Warning, "expires on 2026-01-15", "license --set"},
		{"host-licence", lab.Config{ReadOnlyLicence: true, EvaluationEnds: now}, lab.Config{EvaluationEnds: now.AddDate(0, 0, -1)}, https, doctor.Warning, "expires on 2026-01-01", "license --set"},
		{"host-ssh", lab.Config{SSH: lab.SSH{Enabled: true}}, lab.Config{}, host.Use{Transport: "https", SSH: true}, doctor.Failure, "SSH is off", "--enable-ssh"},
		{"host-ssh", lab.Config{ReadOnlyLicence: true, SSH: lab.SSH{Enabled: true}}, lab.Config{ReadOnlyLicence: true}, host.Use{Transport: "nfc", Warm: true, StartSSH: true}, doctor.Failure, "SSH is off", "console"},
		{"host-lockdown", lab.Config{}, hostState(lab.HostState{Lockdown: "lockdownNormal"}), host.Use{Transport: "https", SSH: true}, doctor.Warning, "exception users", "Exception Users"},
		{"host-lockout", lab.Config{}, hostState(lab.HostState{Settings: map[string]int64{"Security.AccountLockFailures": 3}}), https, doctor.Warning, "after 3 attempts", "AccountLockFailures -i 5"},
		{"host-lockout", hostState(lab.HostState{Settings: map[string]int64{"Security.AccountLockFailures": 0}}), lab.Config{Sessions: lab.Sessions{LockAfter: 2}}, https, doctor.Warning, "after 2 attempts", "--password-file"},
		{"host-sessions", lab.Config{Version: "6.7.0", Sessions: lab.Sessions{Max: 5}}, lab.Config{Sessions: lab.Sessions{Max: 5}}, https, doctor.Warning, "of 5 sessions are in use", "govc session.rm"},
		{"host-nfc-memory", lab.Config{VMs: []lab.VM{newVM("a", 1<<20)}}, lab.Config{Version: "7.0.3", VMs: []lab.VM{newVM("a", 1<<20)}}, host.Use{Transport: "nfc", NFCMemory: 32 << 20}, doctor.Advice, "48 MiB available, 64 MiB required for all disks of one VM (2)", "--nfc-handles 2"},
		{"host-power", hostState(lab.HostState{Power: "static"}), lab.Config{}, https, doctor.Advice, "Balanced", `/Power/CpuPolicy -s "High Performance"`},
		{"host-clock", hostState(lab.HostState{Skew: lab.Duration(50 * time.Second)}), hostState(lab.HostState{Skew: lab.Duration(-70 * time.Second)}), https, doctor.Warning, "1m10s behind this machine's", "esxcli system ntp"},
		{"host-clock", lab.Config{}, hostState(lab.HostState{Skew: lab.Duration(time.Hour)}), https, doctor.Warning, "1h0m0s ahead of this machine's", "timedatectl"},
		{"datastore-access", lab.Config{}, datastore(lab.Datastore{Lost: true}), https, doctor.Failure, "no host can access it", "rescan"},
		{"datastore-maintenance", lab.Config{}, datastore(lab.Datastore{Maintenance: true}), https, doctor.Warning, "maintenance mode", "Exit Maintenance Mode"},
		{"datastore-allocation", lab.Config{}, datastore(lab.Datastore{Type: "NFS"}), https, doctor.Advice, "NFS does not report allocated areas", "--transport landing"},
		{"datastore-space", datastore(lab.Datastore{Full: 1 << 40}), datastore(lab.Datastore{Full: 2<<40 - 50<<30}), warm, doctor.Warning, "50 GiB free", "--interval"},
	} {
		t.Run(c.code+" "+c.found, func(t *testing.T) {
			good := findingsOf(examine(t, c.good, c.use), c.code)
			if len(good) == 0 {
				t.Error("good lab: got no finding")
			}
			for _, f := range good {
				if f.Status != doctor.OK || f.Found == "" || f.On == "" {
					t.Errorf("good lab: got finding %+v", f)
				}
			}
			found := findingsOf(examine(t, c.bad, c.use), c.code)
			if len(found) != 1 {
				t.Fatalf("bad lab: got findings %+v", found)
			}
			f := found[0]
			if f.Status != c.status || !strings.Contains(f.Found, c.found) || !strings.Contains(f.Remedy, c.remedy) || f.Want == "" || f.On == "" {
				t.Errorf("bad lab: got finding %+v", f)
			}
		})
	}
}

// The checks report no problems of features that the migration does not use.
func TestUnusedFeaturesHaveNoFindings(t *testing.T) {
	found := examine(t, lab.Config{
		ReadOnlyLicence: true, Host: lab.HostState{Power: "static", Lockdown: "lockdownNormal"},
		Datastores: []lab.Datastore{{Name: "datastore1", Full: 2 << 40}}, VMs: []lab.VM{newVM("a", 1<<20)},
		Lacks: []string{"VirtualMachine.State.CreateSnapshot", "Host.Config.Storage"},
	}, host.Use{Transport: "https"})
	if worst := doctor.Worst(found); worst != doctor.OK {
		t.Errorf("got finding %+v", found[0])
	}
	if len(findingsOf(found, "host-nfc-memory"))+len(findingsOf(found, "datastore-space")) > 0 {
		t.Errorf("got findings about unused features: %+v", found)
	}
}

func TestPrivilegesOneByOne(t *testing.T) {
	const snapshot, storage = "VirtualMachine.State.CreateSnapshot", "Host.Config.Storage"
	cfg := lab.Config{VCenter: true, Lacks: []string{snapshot, storage}, VMs: []lab.VM{newVM("a", 1<<20), newVM("b", 1<<20)}}
	found := findingsOf(examine(t, cfg, host.Use{Transport: "landing", Warm: true, StartSSH: true}), "host-privilege")
	want := map[string]string{"VM a and 1 more of 2": snapshot, "host esx1.lab and 1 more of 2": storage}
	for _, f := range found {
		privilege, missing := want[f.On]
		delete(want, f.On)
		switch {
		case !missing && (f.Status != doctor.OK || !strings.HasPrefix(f.Want, "privilege to ")):
			t.Errorf("a privilege of the user: got %+v", f)
		case missing && (f.Status != doctor.Failure || f.Found != "user administrator@vsphere.local has no privilege "+privilege || !strings.Contains(f.Remedy, "role.update -a decamp "+privilege) ||
			!strings.Contains(f.Remedy, "-principal administrator@vsphere.local")):
			t.Errorf("a missing privilege: got %+v", f)
		}
	}
	if len(want) > 0 || len(found) != 10 {
		t.Errorf("got %d privileges, want 10; not found: %v", len(found), want)
	}
}

// The checks require only the privileges that the transport uses.
func TestPrivilegesOfEachTransport(t *testing.T) {
	for use, want := range map[host.Use]string{
		{Transport: "https"}:                   "VirtualMachine.Provisioning.DiskRandomRead Datastore.Browse Datastore.FileManagement",
		{Transport: "nfc"}:                     "VirtualMachine.Provisioning.GetVmFiles VirtualMachine.Provisioning.DiskRandomRead",
		{Transport: "landing"}:                 "Host.Config.Storage Datastore.FileManagement",
		{Transport: "https", PowerOff: true}:   "VirtualMachine.Provisioning.DiskRandomRead VirtualMachine.Interact.PowerOff VirtualMachine.Interact.PowerOn Datastore.Browse Datastore.FileManagement",
		{Transport: "landing", StartSSH: true}: "Host.Config.Storage Host.Config.NetService Datastore.FileManagement",
	} {
		var got []string
		for _, f := range findingsOf(examine(t, lab.Config{VMs: []lab.VM{newVM("a", 1<<20)}}, use), "host-privilege") {
			got = append(got, f.On)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%+v: got privileges %q, want %q", use, got, want)
		}
	}
}

// failingSource is a source whose requests fail.
type failingSource struct{ host.Source }

func (failingSource) FreeLicence(context.Context) bool         { return false }
func (failingSource) EvaluationEnds(context.Context) time.Time { return time.Time{} }
func (failingSource) Condition(context.Context, inventory.MoRef) (inventory.Condition, error) {
	return inventory.Condition{}, context.DeadlineExceeded
}
func (failingSource) Settings(context.Context, inventory.MoRef, ...string) (map[string]int64, error) {
	return nil, context.DeadlineExceeded
}
func (failingSource) HostTime(context.Context, inventory.MoRef) (time.Time, error) {
	return time.Time{}, context.DeadlineExceeded
}
func (failingSource) SSHRuns(context.Context, inventory.MoRef) (bool, error) {
	return false, context.DeadlineExceeded
}
func (failingSource) Lacking(context.Context, inventory.Kind, []inventory.MoRef, []string) (map[string][]inventory.MoRef, error) {
	return nil, context.DeadlineExceeded
}

func TestFailedRequestsAreUnknown(t *testing.T) {
	o := host.Options{
		Source: failingSource{}, User: "root", Use: host.Use{Transport: "https", SSH: true},
		Hosts:      []inventory.Host{{Ref: "host-1", Name: "esx1", Version: "8.0.3", Build: "1", Connected: true}},
		Datastores: []inventory.Datastore{{Ref: "ds-1", Name: "d", Type: "VMFS"}},
	}
	unknown := map[string]bool{}
	for _, f := range doctor.Examine(t.Context(), host.Checks(o), doctor.Options{}) {
		if f.Status == doctor.Unknown {
			unknown[f.Code] = f.Remedy != "" && f.Want != ""
		}
	}
	for _, code := range []string{"host-power", "host-lockdown", "host-lockout", "host-sessions", "host-clock", "host-ssh", "host-privilege"} {
		if !unknown[code] {
			t.Errorf("want status unknown with a remedy from %s", code)
		}
	}
}

// The only finding about a disconnected host is that it is disconnected.
func TestDisconnectedHostHasOneFinding(t *testing.T) {
	o := host.Options{Source: failingSource{}, VCenter: true, User: "u", Hosts: []inventory.Host{{Ref: "host-1", Name: "esx 1"}}, Use: host.Use{Transport: "nfc"}}
	found := doctor.Examine(t.Context(), host.Checks(o), doctor.Options{})
	if len(found) != 1 || found[0].Code != "host-connected" || found[0].Status != doctor.Failure || !strings.Contains(found[0].Remedy, "host.reconnect -host 'esx 1'") {
		t.Errorf("got findings %+v", found)
	}
}

// Build 3247720 fixes KB 2136854.
func TestLostChangesOfAnOldBuild(t *testing.T) {
	for build, want := range map[string]doctor.Status{"3247719": doctor.Warning, "3247720": doctor.Advice} {
		o := host.Options{
			Source: failingSource{}, Use: host.Use{Transport: "nfc", Warm: true}, Now: func() time.Time { return now },
			Hosts: []inventory.Host{{Name: "esx1", Version: "6.0.0", Build: build, Connected: true}},
		}
		found := findingsOf(doctor.Examine(t.Context(), host.Checks(o), doctor.Options{}), "host-version")
		if len(found) != 1 || found[0].Status != want {
			t.Errorf("build %s: got findings %+v", build, found)
		}
	}
}
