package shell_test

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/esx/shell"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/lab/nfstest"
)

// vmName is one that a shell makes something of.
const vmName = "it's $HOME; 50% füchse"

var (
	from   = volumePath(inventory.Path{Datastore: "datastore1", File: vmName + "/" + vmName + ".vmdk"})
	export = esx.NAS{Server: "127.0.0.1", Path: nfstest.Export, Name: "to land on"}
)

// landing is a host with a free licence, one VM, and an NFS server to copy to.
type landing struct {
	*testing.T
	lab   *lab.Lab
	nfs   *nfstest.Server
	shell *shell.Shell
}

func startLanding(t *testing.T, cfg lab.Config) *landing {
	t.Helper()
	s, err := nfstest.Start()
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	cfg.NFS.Portmap, cfg.ReadOnlyLicence = s.Addr(), true
	cfg.VMs = []lab.VM{{Name: vmName, Disks: []lab.Disk{{Capacity: 8 << 20, Fill: 60, Seed: 7}}}}
	l := &landing{T: t, nfs: s, lab: startLab(t, cfg)}
	l.shell = dial(t, fromLab(l.lab))
	name, mounted, err := l.shell.MountNAS(t.Context(), export)
	must(t, err)
	if name != export.Name || !mounted {
		t.Fatalf("mounted as %q, %v", name, mounted)
	}
	return l
}

func to(file string) string {
	return volumePath(inventory.Path{Datastore: export.Name, File: file})
}

// landed compares a copy with the source.
func (l *landing) landed(flat string) {
	l.Helper()
	got, err := l.nfs.Read(flat)
	must(l.T, err)
	if !bytes.Equal(got, l.source()) {
		l.Errorf("%s: %d bytes that are not the source's", flat, len(got))
	}
}

func (l *landing) source() []byte {
	l.Helper()
	disk, err := l.lab.Disk(vmName, 0)
	must(l.T, err)
	data := make([]byte, disk.Size)
	if _, err := disk.ReadAt(data, 0); err != nil && err != io.EOF {
		l.Fatal(err)
	}
	return data
}

func TestDatastoreIsMountedAndForgotten(t *testing.T) {
	l := startLanding(t, lab.Config{})
	if name, mounted, err := l.shell.MountNAS(t.Context(), export); err != nil || mounted || name != export.Name {
		t.Errorf("again: %q, %v, %v", name, mounted, err)
	}
	other := export
	other.Name = "another name"
	if name, mounted, err := l.shell.MountNAS(t.Context(), other); err != nil || mounted || name != export.Name {
		t.Errorf("by another name: %q, %v, %v", name, mounted, err)
	}
	other = export
	other.Path = "/other"
	if _, _, err := l.shell.MountNAS(t.Context(), other); !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
		t.Errorf("the name is taken: %v", err)
	}
	other.Name = "new"
	if _, _, err := l.shell.MountNAS(t.Context(), other); !fault.Is(err, fault.Unreachable) || fault.HintOf(err) == "" {
		t.Errorf("a path that is not exported: %v", err)
	}
	must(t, l.shell.UnmountNAS(t.Context(), other)) // is not there
	other.Name = export.Name
	must(t, l.shell.UnmountNAS(t.Context(), other)) // is somebody else's
	if n := len(l.lab.Mounts()); n != 1 {
		t.Errorf("%d mounts", n)
	}
	for range 2 {
		must(t, l.shell.UnmountNAS(t.Context(), export))
	}
	if left := l.lab.Mounts(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestDiskIsCloned(t *testing.T) {
	l := startLanding(t, lab.Config{})
	last := -1
	must(t, l.shell.CloneDisk(t.Context(), shell.Clone{Name: "clone", From: from, To: to("it's a $copy.vmdk"), Progress: func(percent int) {
		if percent < last || percent > 100 {
			t.Errorf("%d%% after %d%%", percent, last)
		}
		last = percent
	}}))
	if last != 100 {
		t.Errorf("the last heard of it was %d%%", last)
	}
	l.landed("it's a $copy-flat.vmdk")
}

func TestCloneThatFails(t *testing.T) {
	l := startLanding(t, lab.Config{})
	l.nfs.Write("there.vmdk", []byte("x"))
	err := l.shell.CloneDisk(t.Context(), shell.Clone{Name: "clone", From: from, To: to("there.vmdk")})
	if err == nil || !strings.Contains(err.Error(), "The file already exists (39)") || fault.HintOf(err) == "" {
		t.Errorf("%v", err)
	}
	l.lab.Faults().Add(lab.Fault{Kind: lab.FaultCloneFail, At: 4 << 20})
	if err = l.shell.CloneDisk(t.Context(), shell.Clone{Name: "clone", From: from, To: to("b.vmdk")}); err == nil || !strings.Contains(err.Error(), "Failed to clone disk") {
		t.Errorf("%v", err)
	}
	if err = l.shell.CloneDisk(t.Context(), shell.Clone{Name: "clone", From: "relative.vmdk", To: to("b.vmdk")}); err == nil {
		t.Error("a relative path was taken")
	}
}

func TestCloneThatIsKilledMayBeTriedAgain(t *testing.T) {
	cfg := lab.Config{Faults: []lab.Fault{{Kind: lab.FaultCloneStall, At: 4 << 20}}}
	cfg.SSH.MaxClones = 1
	l := startLanding(t, cfg)
	first := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		first <- l.shell.CloneDisk(ctx, shell.Clone{Name: "first", From: from, To: to("a.vmdk")})
	}()
	eventually(t, "the first copy", func() bool { m := l.lab.Mounts(); return m[0].OpenFiles == 1 })
	err := l.shell.CloneDisk(t.Context(), shell.Clone{Name: "second", From: from, To: to("b.vmdk")})
	if !fault.Is(err, fault.Transient) || !strings.Contains(fault.HintOf(err), "hostd-tmp") {
		t.Errorf("%v", err)
	}
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	eventually(t, "the first copy's end", func() bool { m := l.lab.Mounts(); return m[0].OpenFiles == 0 })
	l.lab.Faults().Clear()
	var landed string
	eventually(t, "room for another copy", func() bool { // the host counts the first until its process is gone
		landed += "c"
		err := l.shell.CloneDisk(t.Context(), shell.Clone{Name: "second", From: from, To: to(landed + ".vmdk")})
		if err != nil && !fault.Is(err, fault.Transient) {
			t.Fatal(err)
		}
		return err == nil
	})
	l.landed(landed + "-flat.vmdk")
}

// A copy of an earlier run to another name ends before this one begins.
func TestCloneOfAnEarlierRunMakesWay(t *testing.T) {
	l := startLanding(t, lab.Config{Faults: []lab.Fault{{Kind: lab.FaultCloneStall, At: 4 << 20, Path: "old"}}})
	old := dial(t, fromLab(l.lab))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- old.CloneDisk(ctx, shell.Clone{Name: "clone", From: from, To: to("old.vmdk")}) }()
	eventually(t, "the old copy", func() bool { m := l.lab.Mounts(); return m[0].OpenFiles == 1 })
	must(t, l.shell.CloneDisk(t.Context(), shell.Clone{Name: "clone", From: from, To: to("new.vmdk")}))
	l.landed("new-flat.vmdk")
	if err := <-ended; err == nil {
		t.Error("the old copy succeeded")
	}
	if _, err := l.nfs.Read("old.vmdk"); err == nil {
		t.Error("the old copy has a descriptor")
	}
}

func TestSumsOfFlatFiles(t *testing.T) {
	flat := strings.TrimSuffix(from, ".vmdk") + "-flat.vmdk"
	for _, has := range []bool{false, true} {
		l := startLanding(t, lab.Config{SSH: lab.SSH{SHA256Sum: has}})
		want := sha256.Sum256(l.source())
		sum, err := l.shell.Sum(t.Context(), "sum", flat, 8<<20)
		must(t, err)
		if sum != (shell.Sum{Algorithm: "sha256", Hex: hex.EncodeToString(want[:])}) {
			t.Errorf("%+v, want %x", sum, want)
		}
		if _, err := l.shell.Sum(t.Context(), "sum", flat, 9<<20); !fault.Is(err, fault.Unsupported) || fault.HintOf(err) == "" {
			t.Errorf("of another size: %v", err)
		}
		if _, err := l.shell.Sum(t.Context(), "sum", "/nothing", 0); !fault.Is(err, fault.NotFound) {
			t.Errorf("of nothing: %v", err)
		}
		must(t, l.lab.SetPower(vmName, true))
		if _, err := l.shell.Sum(t.Context(), "sum", flat, 8<<20); !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
			t.Errorf("of a running VM: %v", err)
		}
	}
	for name, sh := range shells(t) {
		t.Run(name, func(t *testing.T) {
			s := dial(t, startReal(t, sh).config())
			sum, err := s.Sum(t.Context(), "sum", "/dev/null", 0)
			must(t, err)
			none, old := sha256.Sum256(nil), md5.Sum(nil)
			if sum.Hex != hex.EncodeToString(none[:]) && sum.Hex != hex.EncodeToString(old[:]) {
				t.Errorf("%+v", sum)
			}
		})
	}
}

// volumePath is VolumePath of a path that is valid.
func volumePath(p inventory.Path) string {
	at, err := shell.VolumePath(p)
	if err != nil {
		panic(err)
	}
	return at
}

func TestVolumePathStaysOnItsDatastore(t *testing.T) {
	for _, p := range []inventory.Path{
		{}, {Datastore: "ds"}, {Datastore: "..", File: "x.vmdk"}, {Datastore: "a/b", File: "x.vmdk"}, {Datastore: "ds", File: "../../../etc/shadow"},
		{Datastore: "ds", File: "/etc/shadow"}, {Datastore: "ds", File: "vm/./x.vmdk"}, {Datastore: "ds", File: "vm/x\n.vmdk"}, {Datastore: "ds", File: "vm/x\x00.vmdk"},
	} {
		if at, err := shell.VolumePath(p); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q leads to %q, %v", p, at, err)
		}
	}
}
