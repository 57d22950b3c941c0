package esx_test

import (
	"bytes"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/lab"
)

func TestConditionOfAHost(t *testing.T) {
	for _, vcenter := range []bool{false, true} {
		s := startLab(t, lab.Config{VCenter: vcenter, Host: lab.HostState{Power: "static", Lockdown: "lockdownStrict", Maintenance: true}, VMs: []lab.VM{
			{Name: "on", PoweredOn: true, Disks: []lab.Disk{{Capacity: 1 << 20}}},
		}}).dial(t)
		got, err := s.Condition(t.Context(), oneHost(t, s))
		if want := (inventory.Condition{Power: "static", Lockdown: "lockdownStrict"}); err != nil || got != want {
			t.Errorf("vCenter %v: %+v, %v", vcenter, got, err)
		}
		if hosts, err := s.Hosts(t.Context()); err != nil || !hosts[0].MaintenanceMode {
			t.Errorf("vCenter %v: hosts %+v, %v", vcenter, hosts, err)
		}
	}
}

// The limit of sessions is a setting since 7.0.
func TestSettingsOfAHost(t *testing.T) {
	const sessions, lock = "Config.HostAgent.vmacore.soap.maxSessionCount", "Security.AccountLockFailures"
	for version, want := range map[string]map[string]int64{"8.0.3": {sessions: 500, lock: 3}, "6.7.0": {lock: 3}} {
		s := startLab(t, lab.Config{Version: version, Host: lab.HostState{Settings: map[string]int64{lock: 3}}}).dial(t)
		got, err := s.Settings(t.Context(), oneHost(t, s), sessions, lock, "No.SuchSetting")
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("%s: %v, %v; want %v", version, got, err, want)
		}
	}
}

func TestClockOfAHost(t *testing.T) {
	b := startLab(t, lab.Config{VCenter: true, Host: lab.HostState{Skew: lab.Duration(90 * time.Second)}})
	s := b.dial(t)
	got, err := s.HostTime(t.Context(), oneHost(t, s))
	if want := b.clock.Now().Add(90 * time.Second); err != nil || !got.Equal(want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
}

func TestMissingHost(t *testing.T) {
	s := startLab(t, lab.Config{}).dial(t)
	for what, call := range map[string]func() error{
		"condition": func() error { _, err := s.Condition(t.Context(), "host-999"); return err },
		"settings":  func() error { _, err := s.Settings(t.Context(), "host-999", "x"); return err },
		"clock":     func() error { _, err := s.HostTime(t.Context(), "host-999"); return err },
	} {
		if err := call(); !fault.Is(err, fault.NotFound) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestSessionsAreCounted(t *testing.T) {
	b := startLab(t, lab.Config{})
	first := b.dial(t)
	before, err := first.Sessions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b.dial(t)
	if after, err := first.Sessions(t.Context()); err != nil || after != before+1 {
		t.Errorf("%d sessions, then %d, %v", before, after, err)
	}
}

// Lacking returns the privileges whose absence makes calls fail.
func TestMissingPrivilegesAreReported(t *testing.T) {
	const snapshot, tracking = "VirtualMachine.State.CreateSnapshot", "VirtualMachine.Config.ChangeTracking"
	for _, vcenter := range []bool{false, true} {
		b := startLab(t, lab.Config{VCenter: vcenter, Lacks: []string{snapshot}, VMs: []lab.VM{
			{Name: "a", Disks: []lab.Disk{{Capacity: 1 << 20}}}, {Name: "b", Disks: []lab.Disk{{Capacity: 1 << 20}}},
		}})
		s := b.dial(t)
		a, err := s.VM(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		lacking, err := s.Lacking(t.Context(), inventory.OnVM, []inventory.MoRef{a.Ref}, []string{tracking, snapshot})
		if err != nil || len(lacking) != 1 || len(lacking[snapshot]) != 1 || lacking[snapshot][0] != a.Ref {
			t.Errorf("vCenter %v: %v, %v", vcenter, lacking, err)
		}
		if _, err := s.CreateSnapshot(t.Context(), a.Ref, esx.SnapshotSpec{Name: "x"}); !fault.Is(err, fault.Denied) {
			t.Errorf("vCenter %v: snapshot: %v", vcenter, err)
		}
	}
}

func TestVolumesOfRunningGuests(t *testing.T) {
	volume := lab.Volume{Path: "/boot", Capacity: 1 << 30, Free: 5 << 20}
	vm := func(name string, on bool) lab.VM {
		return lab.VM{Name: name, PoweredOn: on, Disks: []lab.Disk{{Capacity: 1 << 20}}, Guest: lab.Guest{Volumes: []lab.Volume{volume}}}
	}
	s := startLab(t, lab.Config{VMs: []lab.VM{vm("off", false), vm("on", true)}}).dial(t)
	vms, err := s.VMs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Volumes(t.Context(), []inventory.MoRef{vms[0].Ref, vms[1].Ref})
	if err != nil || len(got[vms[0].Ref]) != 0 || len(got[vms[1].Ref]) != 1 || got[vms[1].Ref][0] != (inventory.Volume{Path: "/boot", Capacity: 1 << 30, Free: 5 << 20}) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestStateOfDatastores(t *testing.T) {
	s := startLab(t, lab.Config{Datastores: []lab.Datastore{
		{Name: "full", Capacity: 1 << 40, Full: 1<<40 - 1<<30}, {Name: "gone", Lost: true}, {Name: "resting", Maintenance: true},
	}}).dial(t)
	stores, err := s.Datastores(t.Context())
	if err != nil || len(stores) != 3 {
		t.Fatalf("%v, %v", stores, err)
	}
	for i, want := range []inventory.Datastore{{Free: 1 << 30}, {Free: 2 << 40, Inaccessible: true}, {Free: 2 << 40, Maintenance: true}} {
		if d := stores[i]; d.Free != want.Free || d.Inaccessible != want.Inaccessible || d.Maintenance != want.Maintenance {
			t.Errorf("%+v", d)
		}
	}
}

func TestMountsOfAHost(t *testing.T) {
	for _, vcenter := range []bool{false, true} {
		s := startLab(t, lab.Config{VCenter: vcenter, Datastores: []lab.Datastore{{Name: "vmfs"}, {Name: "nas 2", Type: "NFS"}, {Name: "nas 1", Type: "NFS"}}}).dial(t)
		got, err := s.Mounts(t.Context(), oneHost(t, s))
		want := []inventory.Mount{
			{Datastore: "nas 1", Server: "192.0.2.10", Path: "/export/nas 1"}, {Datastore: "nas 2", Server: "192.0.2.10", Path: "/export/nas 2"},
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("vCenter %v: %+v, %v", vcenter, got, err)
		}
	}
}

// Hosts before 6.0 have no lockdown modes and refuse a query for one.
func TestConditionOfAnOldHost(t *testing.T) {
	r := newESX(t)
	s := r.dial(t)
	host := oneHost(t, s)
	r.set(func(r *simServer) {
		r.answer = func(c call, w http.ResponseWriter) bool {
			return bytes.Contains(c.body, []byte("config.lockdownMode")) && soapFault(w, "InvalidProperty", "<name>config.lockdownMode</name>")
		}
	})
	if c, err := s.Condition(t.Context(), host); err != nil || c != (inventory.Condition{Power: "dynamic"}) {
		t.Errorf("%+v, %v", c, err)
	}
}
