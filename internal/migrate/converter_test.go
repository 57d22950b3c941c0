package migrate

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/convert"
	"github.com/decamp/decamp/internal/convert/virtv2v"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/guest/linux"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/targets"
)

func TestConversionGetsTheGuestAgentOption(t *testing.T) {
	t.Parallel()
	for _, want := range []bool{true, false} {
		r := unitRun(journal.Plan{GuestAgent: want}, Facts{VM: &inventory.VM{}}, Environment{}, Permit{}, Options{})
		if got := newConverter(r).newOptions().GuestAgent; got != want {
			t.Errorf("guest agent in the options of the conversion: %v, want %v", got, want)
		}
	}
}

func TestHibernatedGuestIsNotConverted(t *testing.T) {
	t.Parallel()
	err := checkConvertible([]guest.Report{{}, {Warnings: []guest.Warning{{Code: "hibernated", Text: "swap"}}}})
	if !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
		t.Errorf("%v", err)
	}
}

// A guest that was not examined is moved unchanged and not converted. Its incomplete report causes no boot
// warning.
func TestUnexaminedGuestIsNotConverted(t *testing.T) {
	t.Parallel()
	reports := []guest.Report{{}, {Warnings: []guest.Warning{{Code: guest.NotExamined, Text: "not examined: more than 1024 MiB would be read"}}}}
	err := checkConvertible(reports)
	if !fault.Is(err, fault.Unsupported) || fault.HintOf(err) == "" || !strings.Contains(err.Error(), "not examined: more than 1024 MiB") {
		t.Errorf("%v", err)
	}
	for _, firmware := range []inventory.Firmware{inventory.EFI, inventory.BIOS} {
		if w := BootWarnings(firmware, reports); len(w) > 0 || len(BootWarnings(firmware, reports[:1])) != 1 {
			t.Errorf("%s: %v", firmware, w)
		}
	}
}

// Network cards that the kernel numbers may swap their names if their models differ. A warning lists them.
func TestRecountedCardsCauseWarning(t *testing.T) {
	t.Parallel()
	counted := []guest.Report{{}, {Linux: &linux.Guest{NICs: []linux.NIC{{Name: "eth0", By: linux.ByAny}, {Name: "eth1", By: linux.ByMAC}, {Name: "eth0", By: linux.ByAny}, {Name: "lan", By: linux.ByName}}}}}
	one, two := inventory.NIC{Model: "vmxnet3"}, inventory.NIC{Model: "e1000"}
	r := unitRun(journal.Plan{}, Facts{VM: &inventory.VM{NICs: []inventory.NIC{one, two}}, Guest: counted}, Environment{}, Permit{}, Options{})
	if err := newConverter(r).keepConverted(t.Context(), convert.Result{}, nil, targets.Virtio); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(r.Record.Facts.Warnings, func(w inventory.Warning) bool {
		return w.Code == "nic-unpaired" && strings.Contains(w.Text, "eth0") && w.Remedy != ""
	}) {
		t.Errorf("warnings %+v", r.Record.Facts.Warnings)
	}
}

// Without an engine in the plan both engines are permitted, but virt-v2v only if a system was found on the disks.
func TestPermittedEngines(t *testing.T) {
	t.Parallel()
	runV2V := func(context.Context, virtv2v.Job) (virtv2v.Report, error) { return virtv2v.Report{}, nil }
	system := []guest.Report{{}, {OS: guest.OS{ID: guest.WindowsID}}}
	for _, c := range []struct {
		engine       journal.Engine
		env          Environment
		guest        []guest.Report
		appends, v2v bool
	}{
		{"", Environment{V2V: runV2V}, system, true, true},
		{"", Environment{V2V: runV2V}, nil, true, false},
		{"", Environment{}, system, true, false},
		{journal.LinuxAppend, Environment{V2V: runV2V}, system, true, false},
		{journal.VirtV2V, Environment{}, nil, false, true},
	} {
		r := unitRun(journal.Plan{Engine: c.engine}, Facts{Guest: c.guest}, c.env, Permit{}, Options{})
		if appends, v2v := newConverter(r).permittedEngines(); appends != c.appends || v2v != c.v2v {
			t.Errorf("%q: %v, %v", c.engine, appends, v2v)
		}
	}
	err := bothRefuse(fault.New(fault.Unsupported, "its root is on XFS").WithHint("compat"), fault.New(fault.Full, "virt-v2v: no room").WithHint("df"))
	if !fault.Is(err, fault.Full) || err.Error() != "linux-append: its root is on XFS; virt-v2v: no room" || fault.HintOf(err) != "df" {
		t.Errorf("%v (%s)", err, fault.HintOf(err))
	}
}

// Each encrypted volume needs a key. An encrypted volume may contain a system that detect could not see. BitLocker
// means a Windows with unknown details.
func TestLockedVolumesAreNamedForVirtV2V(t *testing.T) {
	t.Parallel()
	reports := []guest.Report{
		{Partitions: []guest.Partition{{Number: 1, FileSystem: guest.FAT}, {Number: 3, FileSystem: guest.BitLocker}}},
		{Partitions: []guest.Partition{{Number: 2, FileSystem: guest.LUKS, FSUUID: "8f1d2b9c-0000-4000-8000-000000000001"}}},
		{Volumes: []guest.Volume{{Group: "vg0", Name: "data", FileSystem: guest.LUKS, FSUUID: "8f1d2b9c-0000-4000-8000-000000000002"}}},
		{WholeDisk: guest.LUKS, WholeUUID: "8f1d2b9c-0000-4000-8000-000000000003"},
	}
	var ids []string
	for _, l := range lockedIn(reports) {
		ids = append(ids, l.ID())
	}
	if want := []string{"/dev/sda3", "8f1d2b9c-0000-4000-8000-000000000001", "8f1d2b9c-0000-4000-8000-000000000002", "8f1d2b9c-0000-4000-8000-000000000003"}; !slices.Equal(ids, want) {
		t.Errorf("locked %q, want %q", ids, want)
	}
	for keys, missing := range map[string]string{
		"":                        "/dev/sda3",
		"/dev/sda3=a":             "/dev/sdb2",
		"/dev/sda3=a /dev/sdb2=b": "/dev/vg0/data",
		"/dev/sda3=a /dev/sdb2=b 8F1D2B9C-0000-4000-8000-000000000002=c":            "/dev/sdd",
		"/dev/sda3=a /dev/sdb2=b 8F1D2B9C-0000-4000-8000-000000000002=c /dev/sdd=d": "",
		"all.key": "",
	} {
		var given []virtv2v.Key
		for _, k := range strings.Fields(keys) {
			given = append(given, virtv2v.ParseKey(k))
		}
		err := TakenByV2V(reports, given)
		if (err == nil) != (missing == "") || err != nil && (!strings.Contains(err.Error(), missing) || !strings.Contains(fault.HintOf(err), "--key-file")) {
			t.Errorf("%q: %v (%s)", keys, err, fault.HintOf(err))
		}
		env := Environment{Keys: given, V2V: func(context.Context, virtv2v.Job) (virtv2v.Report, error) { return virtv2v.Report{}, nil }}
		r := unitRun(journal.Plan{}, Facts{Guest: reports}, env, Permit{}, Options{})
		if _, v2v := newConverter(r).permittedEngines(); v2v != (len(given) > 0) {
			t.Errorf("%q: virt-v2v is an engine: %v", keys, v2v)
		}
	}
	if w := WindowsOf(reports); w == nil || *w != (virtv2v.Windows{}) {
		t.Errorf("Windows of a BitLocker disk: %v, want no details", w)
	}
	if w := WindowsOf(reports[1:]); w != nil {
		t.Errorf("Windows without a BitLocker disk: %v, want nil", w)
	}
}
