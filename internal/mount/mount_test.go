package mount_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/lab"
)

func TestTree(t *testing.T) {
	r := newRig(t, rigOptions{lab: lab.Config{
		Datastores: []lab.Datastore{{Name: "datastore1"}, {Name: "nas 50% 1", Type: "NFS"}},
		VMs: []lab.VM{
			{Name: "web 01", Disks: []lab.Disk{{Capacity: 1 << 20, Fill: 50}}},
			{Name: "Žižkov & söhne", Datastore: "nas 50% 1", Disks: []lab.Disk{{Capacity: 1 << 20}}},
		},
	}})
	var got []string
	err := filepath.WalkDir(r.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && path != r.dir {
			got = append(got, strings.TrimPrefix(path, r.dir+"/"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"ha-datacenter", "ha-datacenter/datastore1", "ha-datacenter/nas 50% 1",
		"ha-datacenter/datastore1/web 01/web 01.vmdk", "ha-datacenter/datastore1/web 01/web 01-flat.vmdk",
		"ha-datacenter/datastore1/web 01/web 01.vmx", "ha-datacenter/nas 50% 1/Žižkov & söhne/Žižkov & söhne-flat.vmdk",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is missing in %q", want, got)
		}
	}
}

func TestDescriptorAndFlatFile(t *testing.T) {
	r := newRig(t, rigOptions{lab: lab.Config{VMs: []lab.VM{{Name: "vm", Disks: []lab.Disk{{Capacity: 5 << 20, Fill: 50}}}}}})
	text, err := os.ReadFile(r.filePath("vm/vm.vmdk"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(text), "# Disk DescriptorFile") || !strings.Contains(string(text), "vm-flat.vmdk") {
		t.Errorf("the descriptor contains %q", text)
	}
	st, err := os.Stat(r.filePath("vm/vm-flat.vmdk"))
	if err != nil {
		t.Fatal(err)
	}
	if st.Size() != 5<<20 || st.Mode() != 0o444 {
		t.Errorf("the flat file has %d bytes and mode %v, want 5 MiB and 0444", st.Size(), st.Mode())
	}
}

func TestMountIsReadOnly(t *testing.T) {
	r := newRig(t, rigOptions{lab: lab.Config{VMs: []lab.VM{{Name: "vm", Disks: []lab.Disk{{Capacity: 1 << 20}}}}}})
	if f, err := os.OpenFile(r.filePath("vm/vm.vmdk"), os.O_RDWR, 0); err == nil {
		f.Close()
		t.Error("a descriptor was opened for writing, want an error")
	}
	if err := os.WriteFile(r.filePath("vm/new"), nil, 0o644); err == nil {
		t.Error("a file was created, want an error")
	}
	if err := os.Remove(r.filePath("vm/vm.vmdk")); err == nil {
		t.Error("a file was removed, want an error")
	}
}

func TestReadersGetSameBytes(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	requireTool(t, "qemu-img")
	raw := newImage(t, 40<<20+512*3, 7)
	r := newDiskRig(t, raw, rigOptions{})
	out := filepath.Join(t.TempDir(), "out")
	t.Run("cmp", func(t *testing.T) { r.requireSameContent(raw, r.flatPath()) })
	for name, args := range map[string][]string{
		"dd bs=4M":         {"dd", "if=" + r.flatPath(), "of=" + out, "bs=4M", "status=none"},
		"dd bs=4k":         {"dd", "if=" + r.flatPath(), "of=" + out, "bs=4k", "status=none"},
		"dd bs=3000001":    {"dd", "if=" + r.flatPath(), "of=" + out, "bs=3000001", "status=none"},
		"dd direct":        {"dd", "if=" + r.flatPath(), "of=" + out, "bs=1M", "iflag=direct", "status=none"},
		"cp":               {"cp", r.flatPath(), out},
		"qemu-img":         {"qemu-img", "convert", "-f", "raw", "-O", "raw", r.flatPath(), out},
		"qemu-img -m 16":   {"qemu-img", "convert", "-m", "16", "-W", "-f", "raw", "-O", "raw", r.flatPath(), out},
		"qemu-img of vmdk": {"qemu-img", "convert", "-f", "vmdk", "-O", "raw", r.filePath("web 01/web 01.vmdk"), out},
	} {
		t.Run(name, func(t *testing.T) {
			if msg, err := r.runTool(args[0], args[1:]...); err != nil {
				t.Fatalf("%v: %s", err, msg)
			}
			if msg, err := r.runTool("cmp", raw, out); err != nil {
				t.Fatalf("%v: %s", err, msg)
			}
			if err := os.Remove(out); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestVCenterWithUnusualNames(t *testing.T) {
	raw := newImage(t, 3<<20, 9)
	r := newRig(t, rigOptions{lab: lab.Config{
		VCenter:     true,
		Datacenters: []lab.Datacenter{{Name: "DC / 1", Folder: "Europa & co", Hosts: []string{"esx1.lab"}}, {Name: "DC2", Hosts: []string{"esx2.lab"}}},
		Datastores:  []lab.Datastore{{Name: "50% + nas", Datacenter: "DC / 1"}, {Name: "other", Datacenter: "DC2"}},
		VMs:         []lab.VM{{Name: "web 01", Datacenter: "DC / 1", ChangeTracking: true, Disks: []lab.Disk{{File: raw}}}},
	}})
	found, err := filepath.Glob(filepath.Join(r.dir, "*", "50% + nas", "web 01", "web 01-flat.vmdk"))
	if err != nil || len(found) != 1 {
		entries, _ := filepath.Glob(filepath.Join(r.dir, "*", "*"))
		t.Fatalf("found %q (error %v) in %q, want one file", found, err, entries)
	}
	r.requireSameContent(raw, found[0])
}

// The unmount succeeds although a process in another mount namespace, such as a service, still has the mount.
func TestUnmountWithOtherMountNamespace(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	r := newRig(t, rigOptions{lab: lab.Config{VMs: []lab.VM{{Name: "web01", Disks: []lab.Disk{{Capacity: 1 << 20}}}}}})
	startService(t)
	if err := r.mount.Close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(r.dir); err != nil || len(left) > 0 {
		t.Errorf("the mount point contains %v (error %v), want no files", left, err)
	}
}

// The mount ends after umount although another mount namespace still has it, but not before the last file is closed. Its
// end does not unmount another file system at the same folder.
func TestExternalUnmountWithOtherMountNamespace(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	r := newRig(t, rigOptions{lab: lab.Config{VMs: []lab.VM{{Name: "web01", Disks: []lab.Disk{{Capacity: 1 << 20}}}}}})
	startService(t)
	files, err := filepath.Glob(filepath.Join(r.dir, "*", "*", "web01", "web01-flat.vmdk"))
	if err != nil || len(files) != 1 {
		t.Fatalf("found %q (error %v), want one file", files, err)
	}
	f, err := os.Open(files[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if msg, err := r.runTool("umount", "-l", r.dir); err != nil {
		t.Fatalf("%v: %s", err, msg)
	}
	select {
	case <-r.mount.Done():
		t.Fatal("the mount ended although a file is open")
	case <-time.After(2500 * time.Millisecond): // two checks of the table of mounts
	}
	if _, err := f.Read(make([]byte, 1)); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	select {
	case <-r.mount.Done():
	case <-r.ctx.Done():
		t.Fatal("the mount did not end")
	}
	if msg, err := r.runTool("mount", "-t", "tmpfs", "other", r.dir); err != nil {
		t.Fatalf("%v: %s", err, msg)
	}
	if err := r.mount.Close(); err != nil {
		t.Error(err)
	}
	if msg, err := r.runTool("umount", r.dir); err != nil {
		t.Errorf("the other file system is not mounted any more: %v: %s", err, msg)
	}
}

// startService starts a process with a private mount namespace. It ends with the test.
func startService(t *testing.T) {
	t.Helper()
	service := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c", "echo; exec sleep 3600")
	out, err := service.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := service.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = service.Process.Kill()
		_ = service.Wait() // always an error after a kill
	})
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
}
