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

// vmName is a name with special characters of shells.
const vmName = "it's $HOME; 50% füchse"

var (
	sourcePath = volumePath(inventory.Path{Datastore: "datastore1", File: vmName + "/" + vmName + ".vmdk"})
	export     = esx.NAS{Server: "127.0.0.1", Path: nfstest.Export, Name: "to land on"}
)

// cloneTest is a host with a free licence and one VM, and an NFS server to copy to.
type cloneTest struct {
	*testing.T
	lab   *lab.Lab
	nfs   *nfstest.Server
	shell *shell.Shell
}

func startCloneTest(t *testing.T, cfg lab.Config) *cloneTest {
	t.Helper()
	s, err := nfstest.Start()
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	cfg.NFS.Portmap, cfg.ReadOnlyLicence = s.Addr(), true
	cfg.VMs = []lab.VM{{Name: vmName, Disks: []lab.Disk{{Capacity: 8 << 20, Fill: 60, Seed: 7}}}}
	l := &cloneTest{T: t, nfs: s, lab: startLab(t, cfg)}
	l.shell = dial(t, fromLab(l.lab))
	name, mounted, err := l.shell.MountNAS(t.Context(), export)
	must(t, err)
	if name != export.Name || !mounted {
		t.Fatalf("mounted as %q, mounted %v", name, mounted)
	}
	return l
}

func targetPath(file string) string {
	return volumePath(inventory.Path{Datastore: export.Name, File: file})
}

// checkCopy compares a copy with the source.
func (l *cloneTest) checkCopy(flat string) {
	l.Helper()
	got, err := l.nfs.Read(flat)
	must(l.T, err)
	if !bytes.Equal(got, l.sourceData()) {
		l.Errorf("%s: %d bytes that differ from the source", flat, len(got))
	}
}

func (l *cloneTest) sourceData() []byte {
	l.Helper()
	disk, err := l.lab.Disk(vmName, 0)
	must(l.T, err)
	data := make([]byte, disk.Size)
	if _, err := disk.ReadAt(data, 0); err != nil && err != io.EOF {
		l.Fatal(err)
	}
	return data
}

func TestDatastoreIsMountedAndUnmounted(t *testing.T) {
	l := startCloneTest(t, lab.Config{})
	if name, mounted, err := l.shell.MountNAS(t.Context(), export); err != nil || mounted || name != export.Name {
		t.Errorf("mounted again: %q, %v, %v", name, mounted, err)
	}
	other := export
	other.Name = "another name"
	if name, mounted, err := l.shell.MountNAS(t.Context(), other); err != nil || mounted || name != export.Name {
		t.Errorf("mounted with another name: %q, %v, %v", name, mounted, err)
	}
	other = export
	other.Path = "/other"
	if _, _, err := l.shell.MountNAS(t.Context(), other); !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
		t.Errorf("mounted with the name of another datastore: %v", err)
	}
	other.Name = "new"
	if _, _, err := l.shell.MountNAS(t.Context(), other); !fault.Is(err, fault.Unreachable) || fault.HintOf(err) == "" {
		t.Errorf("a path that is not exported: %v", err)
	}
	must(t, l.shell.UnmountNAS(t.Context(), other)) // not mounted
	other.Name = export.Name
	must(t, l.shell.UnmountNAS(t.Context(), other)) // same name, other path
	if n := len(l.lab.Mounts()); n != 1 {
		t.Errorf("%d mounts", n)
	}
	for range 2 {
		must(t, l.shell.UnmountNAS(t.Context(), export))
	}
	if left := l.lab.Mounts(); len(left) > 0 {
		t.Errorf("mounts after the unmount: %v", left)
	}
}

func TestDiskIsCloned(t *testing.T) {
	l := startCloneTest(t, lab.Config{})
	last := -1
	must(t, l.shell.CloneDisk(t.Context(), shell.Clone{Name: "clone", From: sourcePath, To: targetPath("it's a $copy.vmdk"), Progress: func(percent int) {
		if percent < last || percent > 100 {
			t.Errorf("%d%% after %d%%", percent, last)
		}
		last = percent
	}}))
	if last != 100 {
		t.Errorf("the last progress was %d%%, want 100%%", last)
	}
	l.checkCopy("it's a $copy-flat.vmdk")
}

func TestFailedClones(t *testing.T) {
	l := startCloneTest(t, lab.Config{})
	l.nfs.Write("there.vmdk", []byte("x"))
	err := l.shell.CloneDisk(t.Context(), shell.Clone{Name: "clone", From: sourcePath, To: targetPath("there.vmdk")})
	if err == nil || !strings.Contains(err.Error(), "The file already exists (39)") || fault.HintOf(err) == "" {
		t.Errorf("%v", err)
	}
	l.lab.Faults().Add(lab.Fault{Kind: lab.FaultCloneFail, At: 4 << 20})
	if err = l.shell.CloneDisk(t.Context(), shell.Clone{Name: "clone", From: sourcePath, To: targetPath("b.vmdk")}); err == nil || !strings.Contains(err.Error(), "Failed to clone disk") {
		t.Errorf("%v", err)
	}
	if err = l.shell.CloneDisk(t.Context(), shell.Clone{Name: "clone", From: "relative.vmdk", To: targetPath("b.vmdk")}); err == nil {
		t.Error("a relative path was accepted")
	}
}

func TestKilledCloneCanBeRetried(t *testing.T) {
	cfg := lab.Config{Faults: []lab.Fault{{Kind: lab.FaultCloneStall, At: 4 << 20}}}
	cfg.SSH.MaxClones = 1
	l := startCloneTest(t, cfg)
	first := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		first <- l.shell.CloneDisk(ctx, shell.Clone{Name: "first", From: sourcePath, To: targetPath("a.vmdk")})
	}()
	eventually(t, "the first copy", func() bool { m := l.lab.Mounts(); return m[0].OpenFiles == 1 })
	err := l.shell.CloneDisk(t.Context(), shell.Clone{Name: "second", From: sourcePath, To: targetPath("b.vmdk")})
	if !fault.Is(err, fault.Transient) || !strings.Contains(fault.HintOf(err), "hostd-tmp") {
		t.Errorf("%v", err)
	}
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	eventually(t, "the first copy's end", func() bool { m := l.lab.Mounts(); return m[0].OpenFiles == 0 })
	l.lab.Faults().Clear()
	var name string
	eventually(t, "room for another copy", func() bool { // the host counts the first until its process is gone
		name += "c"
		err := l.shell.CloneDisk(t.Context(), shell.Clone{Name: "second", From: sourcePath, To: targetPath(name + ".vmdk")})
		if err != nil && !fault.Is(err, fault.Transient) {
			t.Fatal(err)
		}
		return err == nil
	})
	l.checkCopy(name + "-flat.vmdk")
}

// A running copy with the same job name but another target is ended before the new copy starts.
func TestCloneEndsCopyOfEarlierRun(t *testing.T) {
	l := startCloneTest(t, lab.Config{Faults: []lab.Fault{{Kind: lab.FaultCloneStall, At: 4 << 20, Path: "old"}}})
	old := dial(t, fromLab(l.lab))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- old.CloneDisk(ctx, shell.Clone{Name: "clone", From: sourcePath, To: targetPath("old.vmdk")})
	}()
	eventually(t, "the old copy", func() bool { m := l.lab.Mounts(); return m[0].OpenFiles == 1 })
	must(t, l.shell.CloneDisk(t.Context(), shell.Clone{Name: "clone", From: sourcePath, To: targetPath("new.vmdk")}))
	l.checkCopy("new-flat.vmdk")
	if err := <-ended; err == nil {
		t.Error("the old copy succeeded")
	}
	if _, err := l.nfs.Read("old.vmdk"); err == nil {
		t.Error("the old copy has a descriptor")
	}
}

func TestSumsOfFlatFiles(t *testing.T) {
	flat := strings.TrimSuffix(sourcePath, ".vmdk") + "-flat.vmdk"
	for _, has := range []bool{false, true} {
		l := startCloneTest(t, lab.Config{SSH: lab.SSH{SHA256Sum: has}})
		want := sha256.Sum256(l.sourceData())
		sum, err := l.shell.Sum(t.Context(), "sum", flat, 8<<20)
		must(t, err)
		if sum != (shell.Sum{Algorithm: "sha256", Hex: hex.EncodeToString(want[:])}) {
			t.Errorf("%+v, want %x", sum, want)
		}
		if _, err := l.shell.Sum(t.Context(), "sum", flat, 9<<20); !fault.Is(err, fault.Unsupported) || fault.HintOf(err) == "" {
			t.Errorf("a file of another size: %v", err)
		}
		if _, err := l.shell.Sum(t.Context(), "sum", "/nothing", 0); !fault.Is(err, fault.NotFound) {
			t.Errorf("a missing file: %v", err)
		}
		must(t, l.lab.SetPower(vmName, true))
		if _, err := l.shell.Sum(t.Context(), "sum", flat, 8<<20); !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
			t.Errorf("the disk of a running VM: %v", err)
		}
	}
	for name, sh := range testShells(t) {
		t.Run(name, func(t *testing.T) {
			s := dial(t, startRealHost(t, sh).config())
			sum, err := s.Sum(t.Context(), "sum", "/dev/null", 0)
			must(t, err)
			none, old := sha256.Sum256(nil), md5.Sum(nil)
			if sum.Hex != hex.EncodeToString(none[:]) && sum.Hex != hex.EncodeToString(old[:]) {
				t.Errorf("%+v", sum)
			}
		})
	}
}

// volumePath returns VolumePath of a valid path. It panics if the path is invalid.
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
			t.Errorf("%q: got %q, %v", p, at, err)
		}
	}
}
