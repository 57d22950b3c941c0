package vsphere

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/lab/nfsclient"
	"github.com/decamp/decamp/internal/lab/nfstest"
	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// serveNFS runs an NFS server for one test.
func serveNFS(t *testing.T) *nfstest.Server {
	t.Helper()
	s, err := nfstest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// withNFS sets the portmapper of the lab's hosts to that of the server.
func withNFS(cfg Config, s *nfstest.Server) Config {
	cfg.NFS.Portmap = s.Addr()
	return cfg
}

func nasSpec(name string) types.HostNasVolumeSpec {
	return types.HostNasVolumeSpec{RemoteHost: "127.0.0.1", RemotePath: nfstest.Export, LocalPath: name, AccessMode: "readWrite", Type: "NFS"}
}

// datastoreSystems returns the HostDatastoreSystem of each host, and the hosts.
func datastoreSystems(t *testing.T, c *vim25.Client) (all []*object.HostDatastoreSystem, hosts []*object.HostSystem) {
	t.Helper()
	hosts, err := find.NewFinder(c).HostSystemList(t.Context(), "/...")
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range hosts {
		s, err := h.ConfigManager().DatastoreSystem(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	return all, hosts
}

func mountLanding(t *testing.T, c *vim25.Client) *object.Datastore {
	t.Helper()
	s, _ := datastoreSystems(t, c)
	ds, err := s[0].CreateNasDatastore(t.Context(), nasSpec("landing"))
	if err != nil {
		t.Fatal(err)
	}
	return ds
}

func datastoreNames(t *testing.T, c *vim25.Client, host *object.HostSystem) (names []string) {
	t.Helper()
	var h mo.HostSystem
	if err := host.Properties(t.Context(), host.Reference(), []string{"datastore"}, &h); err != nil {
		t.Fatal(err)
	}
	for _, ref := range h.Datastore {
		name, err := object.NewDatastore(c, ref).ObjectName(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func TestNasDatastoreIsMountedAndRemoved(t *testing.T) {
	s := serveNFS(t)
	l := startLab(t, withNFS(Config{}, s))
	c := login(t, l)
	dss, hosts := datastoreSystems(t, c.Client)
	for range 2 { // the second mount requires a complete removal
		ds := mountLanding(t, c.Client)
		if got := datastoreNames(t, c.Client, hosts[0]); !slices.Equal(got, []string{"datastore1", "landing"}) {
			t.Errorf("datastores: %v", got)
		}
		var props mo.Datastore
		if err := ds.Properties(t.Context(), ds.Reference(), []string{"summary", "info"}, &props); err != nil {
			t.Fatal(err)
		}
		info, ok := props.Info.(*types.NasDatastoreInfo)
		if !ok || info.Nas.RemoteHost != "127.0.0.1" || info.Nas.RemotePath != nfstest.Export || props.Summary.Capacity != 1<<40 || props.Summary.Type != "NFS" {
			t.Errorf("%+v %+v", props.Summary, props.Info)
		}
		if m := l.Mounts(); len(m) != 1 || m[0].Datastore != "landing" {
			t.Errorf("mounts: %+v", m)
		}
		if err := dss[0].Remove(t.Context(), ds); err != nil {
			t.Fatal(err)
		}
		if got := datastoreNames(t, c.Client, hosts[0]); !slices.Equal(got, []string{"datastore1"}) || len(l.Mounts()) != 0 {
			t.Errorf("after removal: %v, %v", got, l.Mounts())
		}
		if err := dss[0].Remove(t.Context(), ds); err == nil {
			t.Error("the second removal succeeded")
		}
	}
}

func TestMountFaults(t *testing.T) {
	s := serveNFS(t)
	l := startLab(t, withNFS(Config{}, s))
	c := login(t, l)
	dss, _ := datastoreSystems(t, c.Client)
	mountLanding(t, c.Client)
	with := func(f func(*types.HostNasVolumeSpec)) types.HostNasVolumeSpec {
		spec := nasSpec("second")
		f(&spec)
		return spec
	}
	for name, tc := range map[string]struct {
		spec types.HostNasVolumeSpec
		want types.BaseMethodFault
	}{
		"name taken":      {nasSpec("landing"), &types.DuplicateName{}},
		"name of another": {nasSpec("datastore1"), &types.DuplicateName{}},
		"mounted already": {nasSpec("second"), &types.AlreadyExists{}},
		"no name":         {nasSpec(""), &types.InvalidName{}},
		"no host":         {with(func(s *types.HostNasVolumeSpec) { s.RemoteHost = "" }), &types.InvalidArgument{}},
		"no path":         {with(func(s *types.HostNasVolumeSpec) { s.RemotePath = "" }), &types.InvalidArgument{}},
		"not exported":    {with(func(s *types.HostNasVolumeSpec) { s.RemotePath = "/other" }), &types.InvalidNetworkResource{}},
		"no access":       {with(func(s *types.HostNasVolumeSpec) { s.RemotePath = nfstest.Export + "/denied" }), &types.NoPermissionOnNasVolume{}},
		"NFS 4.1":         {with(func(s *types.HostNasVolumeSpec) { s.Type = "NFS41" }), &types.NotSupported{}},
	} {
		if _, err := dss[0].CreateNasDatastore(t.Context(), tc.spec); !fault.Is(err, tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	spec := with(func(s *types.HostNasVolumeSpec) { s.RemotePath = "/third" })
	if _, err := dss[0].CreateNasDatastore(t.Context(), spec); !fault.Is(err, &types.NetworkInaccessible{}) {
		t.Errorf("no server: %v", err)
	}
}

func TestHostsOfAVCenterShareADatastore(t *testing.T) {
	s := serveNFS(t)
	l := startLab(t, withNFS(Config{VCenter: true}, s))
	c := login(t, l)
	dss, hosts := datastoreSystems(t, c.Client)
	first := mountLanding(t, c.Client)
	second, err := dss[1].CreateNasDatastore(t.Context(), nasSpec("landing"))
	if err != nil || second.Reference() != first.Reference() {
		t.Fatalf("%v, %v: want %v", second, err, first)
	}
	if err := dss[0].Remove(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if a, b := datastoreNames(t, c.Client, hosts[0]), datastoreNames(t, c.Client, hosts[1]); slices.Contains(a, "landing") || !slices.Contains(b, "landing") {
		t.Errorf("after removal from one host: %v, %v", a, b)
	}
	task, err := first.Destroy(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := task.Wait(t.Context()); err != nil || len(l.Mounts()) != 0 {
		t.Errorf("destroy: %v, %v", err, l.Mounts())
	}
}

// mountOnBoth mounts the datastore landing on both hosts of a vCenter.
func mountOnBoth(t *testing.T, c *vim25.Client) *object.Datastore {
	t.Helper()
	ds := mountLanding(t, c)
	dss, _ := datastoreSystems(t, c)
	if _, err := dss[1].CreateNasDatastore(t.Context(), nasSpec("landing")); err != nil {
		t.Fatal(err)
	}
	return ds
}

// destroyDatastore runs Destroy_Task of a datastore and returns its fault.
func destroyDatastore(t *testing.T, ds *object.Datastore) error {
	t.Helper()
	task, err := ds.Destroy(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return task.Wait(t.Context())
}

// A refused removal changes no host. Here one host has an open file, and the other has lost power.
func TestRefusedRemovalChangesNoHost(t *testing.T) {
	l := startLab(t, withNFS(Config{VCenter: true}, serveNFS(t)))
	c := login(t, l)
	ds := mountOnBoth(t, c.Client)
	_, hosts := datastoreSystems(t, c.Client)
	both := l.nasMounts.mountsOf(types.ManagedObjectReference{})
	both[0].client.Abandon()
	l.nasMounts.removeMount(both[0])
	l.nasMounts.loseMount(both[0])
	f, err := both[1].client.Create(t.Context(), "used")
	if err != nil {
		t.Fatal(err)
	}
	if err := destroyDatastore(t, ds); !fault.Is(err, &types.ResourceInUse{}) {
		t.Errorf("with an open file: %v", err)
	}
	for _, h := range hosts {
		if got := datastoreNames(t, c.Client, h); !slices.Contains(got, "landing") {
			t.Errorf("%s has only %v", h.Name(), got)
		}
	}
	if err := l.BootHost(); err != nil || len(l.Mounts()) != 2 {
		t.Errorf("after a boot: %v, %v", err, l.Mounts())
	}
	if err := f.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := destroyDatastore(t, ds); err != nil || len(l.Mounts()) != 0 {
		t.Errorf("afterwards: %v, %v", err, l.Mounts())
	}
}

// A datastore without mounts can be removed, and a boot does not mount it again.
func TestDatastoreWithoutMountsCanBeRemoved(t *testing.T) {
	l := startLab(t, withNFS(Config{VCenter: true}, serveNFS(t)))
	c := login(t, l)
	ds := mountOnBoth(t, c.Client)
	l.PowerCutHost()
	if err := destroyDatastore(t, ds); err != nil {
		t.Error(err)
	}
	if err := l.BootHost(); err != nil || len(l.Mounts()) != 0 {
		t.Errorf("after a boot: %v, %v", err, l.Mounts())
	}
}

// A datastore cannot be removed from the host of its VM, as on a real host.
func TestDatastoreInUseByVMIsNotRemoved(t *testing.T) {
	l := startLab(t, withNFS(Config{VCenter: true}, serveNFS(t)))
	c := login(t, l)
	ds := mountOnBoth(t, c.Client)
	dss, hosts := datastoreSystems(t, c.Client)
	finder := find.NewFinder(c.Client)
	folder, err := finder.DefaultFolder(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pool, err := hosts[1].ResourcePool(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	spec := types.VirtualMachineConfigSpec{Name: "user", Files: &types.VirtualMachineFileInfo{VmPathName: "[landing]"}}
	task, err := folder.CreateVM(t.Context(), spec, pool, hosts[1])
	if err != nil {
		t.Fatal(err)
	}
	if err := task.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := destroyDatastore(t, ds); !fault.Is(err, &types.ResourceInUse{}) || len(l.Mounts()) != 2 {
		t.Errorf("from all hosts: %v, %v", err, l.Mounts())
	}
	if err := dss[0].Remove(t.Context(), ds); err != nil {
		t.Errorf("from the other host: %v", err)
	}
	if err := dss[1].Remove(t.Context(), ds); !fault.Is(err, &types.ResourceInUse{}) || len(l.Mounts()) != 1 {
		t.Errorf("from its host: %v, %v", err, l.Mounts())
	}
}

// The hosts unmount concurrently, so that a server that does not answer delays them only once.
func TestHostsUnmountAtTheSameTime(t *testing.T) {
	s := serveNFS(t)
	cfg := withNFS(Config{VCenter: true}, s)
	cfg.NFS.Times.Mount = time.Hour
	l := startLab(t, cfg)
	ds := mountOnBoth(t, login(t, l).Client)
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	silent, err := net.Listen("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	calls := make(chan net.Conn, 100)
	go acceptPortmapCalls(silent, calls)
	task, err := ds.Destroy(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	limit := time.After(time.Minute)
	for n := range 2 { // both wait for the port of UMNT
		select {
		case c := <-calls:
			defer c.Close()
		case <-limit:
			t.Errorf("%d of 2 hosts unmount", n)
		}
	}
	silent.Close()
	l.jobs.cutJobs() // ends the calls that wait
	if err := task.Wait(t.Context()); err != nil || len(l.Mounts()) != 0 {
		t.Errorf("%v, %v", err, l.Mounts())
	}
}

// acceptPortmapCalls accepts connections and answers no call. It sends connections with a call to the
// portmapper to calls.
func acceptPortmapCalls(l net.Listener, calls chan<- net.Conn) {
	for {
		c, err := l.Accept()
		if err != nil {
			return // the test has ended
		}
		go func() {
			header := make([]byte, 20) // record mark, XID, CALL, RPC version, program
			if _, err := io.ReadFull(c, header); err == nil && binary.BigEndian.Uint32(header[16:]) == 100000 {
				calls <- c
			}
		}()
	}
}

func TestFreeLicenceRefusesMountsAndCopies(t *testing.T) {
	s := serveNFS(t)
	l := startLab(t, withNFS(Config{ReadOnlyLicence: true, VMs: []VM{web01()}}, s))
	c := login(t, l)
	dss, _ := datastoreSystems(t, c.Client)
	if _, err := dss[0].CreateNasDatastore(t.Context(), nasSpec("landing")); !fault.Is(err, &types.RestrictedVersion{}) {
		t.Errorf("mount: %v", err)
	}
	if err := copyDisk(t, c.Client, thinSpec(), nil); !fault.Is(err, &types.RestrictedVersion{}) {
		t.Errorf("copy: %v", err)
	}
	for _, method := range []string{"DestroyDatastore", "RemoveDatastore", "StartService", "UpdateServicePolicy"} {
		if !needsLicence(method) {
			t.Errorf("%s needs no licence", method)
		}
	}
}

const (
	sourceDisk = "[datastore1] web01/web01.vmdk"
	copiedDisk = "[landing] web01.vmdk"
)

func thinSpec() *types.FileBackedVirtualDiskSpec {
	return &types.FileBackedVirtualDiskSpec{VirtualDiskSpec: types.VirtualDiskSpec{DiskType: "thin", AdapterType: "lsiLogic"}}
}

// copyDisk runs CopyVirtualDisk_Task to the datastore landing, and calls seen with the last progress.
func copyDisk(t *testing.T, c *vim25.Client, spec types.BaseVirtualDiskSpec, seen func(int32)) error {
	t.Helper()
	dc, err := find.NewFinder(c).DefaultDatacenter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	task, err := object.NewVirtualDiskManager(c).CopyVirtualDisk(t.Context(), sourceDisk, dc, copiedDisk, dc, spec, true)
	if err != nil {
		return err
	}
	info, err := task.WaitForResult(t.Context(), nil)
	if seen != nil && info != nil {
		seen(info.Progress)
	}
	return err
}

// checkCopied compares the copy with the disk.
func checkCopied(t *testing.T, l *Lab, s *nfstest.Server) {
	t.Helper()
	disk, err := l.Disk("web01", 0)
	if err != nil {
		t.Fatal(err)
	}
	want := make([]byte, disk.Size)
	if _, err := disk.ReadAt(want, 0); err != nil && err != io.EOF {
		t.Fatal(err)
	}
	got, err := s.Read("web01-flat.vmdk")
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("flat: %d bytes, %v, or the content differs", len(got), err)
	}
	text, err := s.Read("web01.vmdk")
	if err != nil || !strings.Contains(string(text), "VMFS \"web01-flat.vmdk\"") || strings.Contains(string(text), "parentFileNameHint") {
		t.Errorf("descriptor: %v\n%s", err, text)
	}
	if names := s.Names(""); len(names) != 2 {
		t.Errorf("files: %v", names)
	}
}

func TestCopyVirtualDisk(t *testing.T) {
	s := serveNFS(t)
	l := startLab(t, withNFS(Config{VMs: []VM{web01()}}, s))
	c := login(t, l)
	mountLanding(t, c.Client)
	if err := copyDisk(t, c.Client, thinSpec(), func(p int32) {
		if p != 100 {
			t.Errorf("progress %d at the end", p)
		}
	}); err != nil {
		t.Fatal(err)
	}
	checkCopied(t, l, s)
	if err := copyDisk(t, c.Client, thinSpec(), nil); !fault.Is(err, &types.FileAlreadyExists{}) {
		t.Errorf("again, with force: %v", err)
	}
}

func TestCopyVirtualDiskWithoutSpecIsThick(t *testing.T) {
	s := serveNFS(t)
	l := startLab(t, withNFS(Config{VMs: []VM{web01()}}, s))
	c := login(t, l)
	mountLanding(t, c.Client)
	if err := copyDisk(t, c.Client, nil, nil); err != nil {
		t.Fatal(err)
	}
	checkCopied(t, l, s)
	if used := s.Used("web01-flat.vmdk"); used != 8<<20 {
		t.Errorf("%d bytes used of 8 MiB", used)
	}
}

func TestVCenterRefusesDestSpec(t *testing.T) {
	s := serveNFS(t)
	l := startLab(t, withNFS(Config{VCenter: true, VMs: []VM{web01()}}, s))
	c := login(t, l)
	mountLanding(t, c.Client)
	if err := copyDisk(t, c.Client, thinSpec(), nil); !fault.Is(err, &types.NotImplemented{}) {
		t.Errorf("with destSpec: %v", err)
	}
	if err := copyDisk(t, c.Client, nil, nil); err != nil {
		t.Error(err)
	}
	checkCopied(t, l, s)
}

func TestCopyToAFullServer(t *testing.T) {
	s := serveNFS(t)
	l := startLab(t, withNFS(Config{VMs: []VM{web01()}}, s))
	c := login(t, l)
	mountLanding(t, c.Client)
	s.SetRoom(1 << 20)
	if err := copyDisk(t, c.Client, thinSpec(), nil); !fault.Is(err, &types.NoDiskSpace{}) {
		t.Error(err)
	}
	if names := s.Names(""); len(names) != 0 {
		t.Errorf("a failed copy left %v", names)
	}
}

func TestDatastoreWithOpenFilesIsNotRemoved(t *testing.T) {
	s := serveNFS(t)
	l := startLab(t, withNFS(Config{VMs: []VM{web01()}, Faults: []Fault{{Kind: FaultCloneStall, At: 1 << 20}}}, s))
	c := login(t, l)
	ds := mountLanding(t, c.Client)
	dss, _ := datastoreSystems(t, c.Client)
	cloned := make(chan error, 1)
	stalled := make(chan struct{})
	var once sync.Once
	go func() {
		cloned <- l.Clone(context.Background(), sourceDisk, copiedDisk, "thin", func(percent int) {
			if percent >= 12 { // 1 MiB of 8
				once.Do(func() { close(stalled) })
			}
		})
	}()
	<-stalled
	if err := dss[0].Remove(t.Context(), ds); !fault.Is(err, &types.ResourceInUse{}) {
		t.Errorf("while a copy runs: %v", err)
	}
	l.Faults().Clear()
	if err := <-cloned; err != nil {
		t.Fatal(err)
	}
	if err := dss[0].Remove(t.Context(), ds); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	checkCopied(t, l, s)
}

func TestCanceledCopyEnds(t *testing.T) {
	s := serveNFS(t)
	l := startLab(t, withNFS(Config{VMs: []VM{web01()}, Faults: []Fault{{Kind: FaultCloneStall, At: 1 << 20}}}, s))
	c := login(t, l)
	mountLanding(t, c.Client)
	dc, err := find.NewFinder(c.Client).DefaultDatacenter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	task, err := object.NewVirtualDiskManager(c.Client).CopyVirtualDisk(t.Context(), sourceDisk, dc, copiedDisk, dc, thinSpec(), false)
	if err != nil {
		t.Fatal(err)
	}
	if err := task.Cancel(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := task.Wait(t.Context()); !fault.Is(err, &types.RequestCanceled{}) {
		t.Error(err)
	}
	waitFor(t, "no file to be open", func() bool { m := l.Mounts(); return len(m) == 1 && m[0].OpenFiles == 0 })
}

// waitFor waits until a condition is true.
func waitFor(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timeout while waiting for %s", what)
		}
	}
}

func TestCloneOrderOfOperations(t *testing.T) {
	s := serveNFS(t)
	cfg := withNFS(Config{VMs: []VM{web01()}}, s)
	cfg.NFS.Times.Heartbeat, cfg.NFS.Times.LockUpdate = time.Hour, time.Hour
	l := startLab(t, cfg)
	mountLanding(t, login(t, l).Client)
	before := len(s.Ops())
	if err := l.Clone(t.Context(), sourceDisk, "/vmfs/volumes/landing/web01.vmdk", "thin", nil); err != nil {
		t.Fatal(err)
	}
	checkCopied(t, l, s)
	var order []string
	for _, op := range s.Ops()[before:] {
		step := op.Proc
		switch {
		case strings.HasPrefix(op.Name, ".lck-"):
			step += " lock"
		case op.Name != "":
			step += " " + op.Name
		}
		if len(order) == 0 || order[len(order)-1] != step {
			order = append(order, step)
		}
	}
	want := strings.Join([]string{
		"LOOKUP web01.vmdk", "CREATE web01-flat.vmdk", "CREATE lock", "SETATTR lock", "WRITE lock", "GETATTR lock",
		"SETATTR web01-flat.vmdk", "WRITE web01-flat.vmdk",
		"CREATE web01.vmdk", "CREATE lock", "SETATTR lock", "WRITE lock", "GETATTR lock", "WRITE web01.vmdk", "REMOVE lock",
		// the lock of the flat file is removed last
	}, "\n")
	if got := strings.Join(order, "\n"); got != want {
		t.Errorf("order:\n%s\nwant:\n%s", got, want)
	}
	disk, err := l.Disk("web01", 0)
	if err != nil {
		t.Fatal(err)
	}
	if used := s.Used("web01-flat.vmdk"); used > disk.Allocated {
		t.Errorf("%d bytes used, but %d bytes allocated in the source", used, disk.Allocated)
	}
}

func TestCloneOfARunningVM(t *testing.T) {
	s := serveNFS(t)
	l := startLab(t, withNFS(Config{VMs: []VM{runningVM(Guest{})}}, s))
	c := login(t, l)
	mountLanding(t, c.Client)
	if err := l.Clone(t.Context(), sourceDisk, copiedDisk, "thin", nil); !errors.Is(err, errInUse) {
		t.Errorf("the active disk: %v", err)
	}
	createSnapshot(t, c.Client, allVMs(t, c.Client)["web01"].Self)
	if err := l.Clone(t.Context(), sourceDisk, copiedDisk, "thin", nil); err != nil {
		t.Errorf("the frozen base: %v", err)
	}
	checkCopied(t, l, s)
}

func TestCloneOfAChainAndOfAnRDM(t *testing.T) {
	s := serveNFS(t)
	chained := web01()
	chained.Snapshots = []string{"a", "b"}
	raw := VM{Name: "raw", Disks: []Disk{{Capacity: 1 << 20, Fill: 100, Seed: 3, RDM: "physicalMode"}}}
	l := startLab(t, withNFS(Config{VMs: []VM{chained, raw}}, s))
	mountLanding(t, login(t, l).Client)
	if err := l.Clone(t.Context(), "[datastore1] web01/web01-000002.vmdk", copiedDisk, "thin", nil); err != nil {
		t.Fatal(err)
	}
	checkCopied(t, l, s)
	if err := l.Clone(t.Context(), "[datastore1] raw/raw.vmdk", "[landing] raw.vmdk", "thin", nil); err != nil {
		t.Fatal(err)
	}
	if used := s.Used("raw-flat.vmdk"); used != 1<<20 {
		t.Errorf("the RDM's copy has %d bytes", used)
	}
}

func TestCloneRefusals(t *testing.T) {
	s := serveNFS(t)
	l := startLab(t, withNFS(Config{VMs: []VM{web01()}}, s))
	mountLanding(t, login(t, l).Client)
	for name, tc := range map[string]struct {
		src, dst, format string
		want             error
	}{
		"no source":     {"[datastore1] web01/other.vmdk", copiedDisk, "thin", errNoSource},
		"no datastore":  {sourceDisk, "[elsewhere] x.vmdk", "thin", errNoTarget},
		"own datastore": {sourceDisk, "[datastore1] web01/copy.vmdk", "thin", errReadOnly},
		"format":        {sourceDisk, copiedDisk, "2gbsparse", errBadFormat},
	} {
		if err := l.Clone(t.Context(), tc.src, tc.dst, tc.format, nil); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestKilledCloneLeavesFlatFile(t *testing.T) {
	s := serveNFS(t)
	l := startLab(t, withNFS(Config{VMs: []VM{web01()}, Faults: []Fault{{Kind: FaultCloneKill, At: 4 << 20}}}, s))
	mountLanding(t, login(t, l).Client)
	if err := l.Clone(t.Context(), sourceDisk, copiedDisk, "thin", nil); !errors.Is(err, errKilled) {
		t.Error(err)
	}
	if names := s.Names(""); !slices.Equal(names, []string{"web01-flat.vmdk"}) {
		t.Errorf("remaining files: %v", names)
	}
}

func TestServerRestartsDuringAClone(t *testing.T) {
	s := serveNFS(t)
	cfg := withNFS(Config{VMs: []VM{web01()}, Faults: []Fault{{Kind: FaultCloneStall, At: 4 << 20}}}, s)
	cfg.NFS.Times.Reconnect = time.Millisecond
	l := startLab(t, cfg)
	mountLanding(t, login(t, l).Client)
	err := l.Clone(t.Context(), sourceDisk, copiedDisk, "thin", func(percent int) {
		if percent == 50 {
			if err := errors.Join(s.Stop(), s.Resume()); err != nil {
				t.Error(err)
			}
			l.Faults().Clear()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	checkCopied(t, l, s)
}

func TestCloneFailsWithoutItsServer(t *testing.T) {
	s := serveNFS(t)
	cfg := withNFS(Config{VMs: []VM{web01()}}, s)
	cfg.NFS.Times = nfsclient.Times{Heartbeat: time.Millisecond, HeartbeatTimeout: time.Minute, APD: time.Millisecond, LockUpdate: time.Hour}
	l := startLab(t, cfg)
	mountLanding(t, login(t, l).Client)
	err := l.Clone(t.Context(), sourceDisk, copiedDisk, "thin", func(percent int) {
		if percent == 50 {
			s.Hook(func(nfstest.Op) nfstest.Verdict { return nfstest.Verdict{Status: uint32(nfsclient.ErrStale)} })
		}
	})
	if err == nil {
		t.Error("the copy succeeded without its server")
	}
}

func TestPowerCutLeavesLocks(t *testing.T) {
	s := serveNFS(t)
	l := startLab(t, withNFS(Config{VMs: []VM{web01()}, Faults: []Fault{{Kind: FaultCloneStall, At: 4 << 20}}}, s))
	mountLanding(t, login(t, l).Client)
	err := l.Clone(t.Context(), sourceDisk, copiedDisk, "thin", func(percent int) {
		if percent == 50 {
			l.PowerCutHost()
		}
	})
	if err == nil {
		t.Error("the copy succeeded on a host without power")
	}
	names := s.Names("")
	if len(names) != 2 || !strings.HasPrefix(names[0], ".lck-") || len(l.Mounts()) != 0 {
		t.Errorf("remaining files: %v, mounts %v", names, l.Mounts())
	}
}

func TestVolumePaths(t *testing.T) {
	for in, want := range map[string]volumePath{
		"[ds 1] a/b.vmdk":               {"ds 1", "a/b.vmdk"},
		"[ds]a.vmdk":                    {"ds", "a.vmdk"},
		"/vmfs/volumes/ds 1/a/b.vmdk":   {"ds 1", "a/b.vmdk"},
		"/vmfs/volumes/ds//a/../b":      {"ds", "b"},
		"/vmfs/volumes/ds/../../../x":   {"ds", "x"},
		"https://h/folder/a/b?dsName=d": {"d", "a/b"},
	} {
		if got, err := parseVolumePath(in); err != nil || got != want {
			t.Errorf("%q: %+v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "x", "[ds", "[] x", "/vmfs/volumes//x", "/etc/passwd", "https://h/other?dsName=d", "https://h/folder/x"} {
		if got, err := parseVolumePath(in); err == nil {
			t.Errorf("%q: %+v", in, got)
		}
	}
}

func FuzzVolumePath(f *testing.F) {
	f.Add("[datastore1] web01/web01.vmdk")
	f.Add("/vmfs/volumes/ds/../../etc/passwd")
	f.Add("https://h/folder/%2e%2e/x?dsName=d")
	f.Fuzz(func(t *testing.T, s string) {
		p, err := parseVolumePath(s)
		if err == nil && (p.datastore == "" || strings.HasPrefix(p.path, "/") || slices.Contains(strings.Split(p.path, "/"), "..")) {
			t.Errorf("%q: %+v", s, p)
		}
	})
}

// Mounts use privileged source ports, like a real ESXi host.
func TestMountsComeFromPrivilegedPorts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	s := serveNFS(t)
	l := startLab(t, withNFS(Config{}, s))
	mountLanding(t, login(t, l).Client)
	for _, op := range s.Ops() {
		if op.Port >= 1024 {
			t.Errorf("%+v", op)
		}
	}
}

// NFS datastores are part of a host's configuration. A host mounts them again when it
// boots.
func TestHostMountsItsDatastoresAtBoot(t *testing.T) {
	s := serveNFS(t)
	l := startLab(t, withNFS(Config{}, s))
	c := login(t, l)
	dss, hosts := datastoreSystems(t, c.Client)
	ds := mountLanding(t, c.Client)
	l.PowerCutHost()
	if len(l.Mounts()) > 0 || !slices.Contains(datastoreNames(t, c.Client, hosts[0]), "landing") {
		t.Errorf("off: %v, in the inventory %v", l.Mounts(), datastoreNames(t, c.Client, hosts[0]))
	}
	if err := l.BootHost(); err != nil {
		t.Fatal(err)
	}
	if m := l.Mounts(); len(m) != 1 || m[0].Datastore != "landing" {
		t.Errorf("booted: %v", m)
	}
	l.PowerCutHost()
	if err := dss[0].Remove(t.Context(), ds); err != nil { // possible while the datastore is not mounted
		t.Fatal(err)
	}
	if err := l.BootHost(); err != nil || len(l.Mounts()) > 0 {
		t.Errorf("removed, after a boot: %v, %v", l.Mounts(), err)
	}
}

func TestLimitOfMounts(t *testing.T) {
	s := serveNFS(t)
	cfg := withNFS(Config{}, s)
	cfg.NFS.MaxVolumes = 1
	c := login(t, startLab(t, cfg))
	dss, _ := datastoreSystems(t, c.Client)
	mountLanding(t, c.Client)
	spec := nasSpec("second")
	spec.RemoteHost = "localhost"
	if _, err := dss[0].CreateNasDatastore(t.Context(), spec); err == nil || !fault.Is(err, &types.NasConnectionLimitReached{}) {
		t.Errorf("a second mount: %v", err)
	}
}

// Writes wait while the network is down, and continue when it is up again.
func TestWritesWaitForTheNetwork(t *testing.T) {
	s := serveNFS(t)
	lost, back := make(chan bool, 10), make(chan bool, 10)
	cfg := withNFS(Config{VMs: []VM{{Name: "web01", Disks: []Disk{{Capacity: 8 << 20, Fill: 100, Seed: 1}}}}}, s)
	cfg.NFS.Times.Reconnect = 10 * time.Millisecond
	cfg.NFS.OnEvent = func(_, _ string, e nfsclient.Event) {
		switch e.Kind {
		case nfsclient.ConnLost:
			lost <- true
		case nfsclient.ConnBack:
			back <- true
		}
	}
	l := startLab(t, cfg)
	mountLanding(t, login(t, l).Client)
	l.CutNFS()
	<-lost
	done := make(chan error, 1)
	go func() {
		done <- l.Clone(t.Context(), "[datastore1] web01/web01.vmdk", "[landing] web01.vmdk", "thin", nil)
	}()
	select {
	case err := <-done:
		t.Fatalf("copied without a network: %v", err)
	case <-back:
		t.Fatal("connected without a network")
	default:
	}
	l.HealNFS()
	<-back
	if err := <-done; err != nil {
		t.Error(err)
	}
}
