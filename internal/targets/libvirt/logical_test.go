package libvirt

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"libvirt.org/go/libvirtxml"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/libvirt/rpc"
	"github.com/decamp/decamp/test/lane"
)

// extentSize is the size of an LVM extent in bytes.
const extentSize = 4 << 20

// newGroupSite creates a pool on a volume group of 60 MiB. The device contains old data.
func newGroupSite(t *testing.T, d *daemon) *site {
	t.Helper()
	return newGroupSiteOfSize(t, d, 64<<20)
}

// newGroupSiteOfSize creates a pool on a volume group with a device of this size.
func newGroupSiteOfSize(t *testing.T, d *daemon, size int) *site {
	t.Helper()
	s := &site{daemon: d, client: d.newClient(t), group: fmt.Sprintf("vg%d", poolCount.Add(1))}
	file := filepath.Join(d.folder, s.group)
	if err := os.WriteFile(file, bytes.Repeat([]byte("what was there "), size/15), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.run("vg", s.group, file); err != nil {
		t.Fatal(err)
	}
	d.virsh(t, "pool-create-as", s.group, "logical", "--source-name", s.group, "--target", "/dev/"+s.group)
	s.platform = s.newPlatform(t, s.group)
	t.Cleanup(func() {
		s.cleanUp(t, s.group)
		if err := d.run("novg", s.group); err != nil {
			t.Error(err)
		}
		if err := os.Remove(file); err != nil {
			t.Error(err)
		}
	})
	return s
}

// logicalVolumes returns the names of the group's volumes in order, and the path of the device for each name.
func (s *site) logicalVolumes(t *testing.T) (names []string, device map[string]string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(s.folder, "lvm", s.group, "*.dev"))
	if err != nil {
		t.Fatal(err)
	}
	device = map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".dev")
		path, _, _ := strings.Cut(string(text), " ")
		names, device[name] = append(names, name), path
	}
	return names, device
}

// describeVolumes lists the volumes with their checksums.
func (s *site) describeVolumes(t *testing.T) (all []string) {
	t.Helper()
	names, device := s.logicalVolumes(t)
	for _, name := range names {
		p, err := os.ReadFile(device[name])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("volume %q %x", name, sha256.Sum256(p)))
	}
	return all
}

// readDevice returns the data that the guest finds on a disk. QEMU uses only the slice of the device.
func (s *site) readDevice(t *testing.T, disk libvirtxml.DomainDisk) []byte {
	t.Helper()
	folder, name := filepath.Split(disk.Source.Block.Dev)
	if folder != "/dev/"+s.group+"/" || disk.Driver.Type != "raw" {
		t.Errorf("disk %s with format %s: want a raw disk in the pool", disk.Source.Block.Dev, disk.Driver.Type)
	}
	_, device := s.logicalVolumes(t)
	p, err := os.ReadFile(device[name])
	if err != nil {
		t.Fatal(err)
	}
	if slices := disk.Source.Slices; slices != nil {
		if len(slices.Slices) != 1 || slices.Slices[0].Offset != 0 || slices.Slices[0].Type != "storage" || slices.Slices[0].Size >= uint(len(p)) {
			t.Errorf("got slices %+v of %d bytes", slices.Slices, len(p))
		}
		p = p[:slices.Slices[0].Size]
	}
	return p
}

// Deliver compares the stored data with the image, so it detects old data in a hole.
func TestStaleDataInHoleIsDetected(t *testing.T) {
	t.Parallel()
	s := newGroupSite(t, sharedDaemon(t))
	data := append(bytes.Repeat([]byte{7}, 1<<20), make([]byte, 7<<20)...)
	vm := webVM(int64(len(data)))
	_, to, def := stageVM(t, vm, s.platform, data)
	end := s.watchCalls(download, func() { s.corruptVolumes(t, 5<<20) })
	if err := to.Publish(t.Context(), def); !fault.Is(err, fault.Corrupt) || fault.HintOf(err) == "" {
		t.Errorf("got %v (%s), want corrupt with a hint", err, fault.HintOf(err))
	}
	if left := s.listObjects(t); len(left) > 0 {
		t.Errorf("remaining objects: %q", left)
	}
	end()
	if err := to.Publish(t.Context(), def); err != nil {
		t.Fatalf("%v (%s)", err, fault.HintOf(err))
	}
	if vms := s.storedVMs(t); len(vms) != 1 || !bytes.Equal(vms[0].Disks[0], data) {
		t.Errorf("got %d VMs, want 1 with the staged disk", len(vms))
	}
}

// corruptVolumes writes a byte to every volume, bypassing libvirt.
func (s *site) corruptVolumes(t *testing.T, off int64) {
	_, device := s.logicalVolumes(t)
	for _, path := range device {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteAt([]byte("x"), off)
		}
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// watchedConn is a connection that calls do before each call with the number proc.
type watchedConn struct {
	net.Conn
	proc uint32
	do   func()
}

// Numbers of watched calls.
const (
	upload   = 208
	download = 209
)

func (w *watchedConn) Write(p []byte) (int, error) {
	const procAt, kindAt, call = 12, 16, 0
	if binary.BigEndian.Uint32(p[procAt:]) == w.proc && binary.BigEndian.Uint32(p[kindAt:]) == call {
		w.do()
	}
	return w.Conn.Write(p)
}

// watchCalls runs do before each call with the number proc, until end is called.
func (s *site) watchCalls(proc uint32, do func()) (end func()) {
	original := s.platform.dial
	s.platform.dial = func(ctx context.Context, a address) (net.Conn, error) {
		conn, err := original(ctx, a)
		return &watchedConn{Conn: conn, proc: proc, do: do}, err
	}
	return func() { s.platform.dial = original }
}

// If a connection ends while libvirt 9.0 opens an upload, libvirt keeps the volume open. LVM does not remove open
// volumes.
func TestUploadToLVMCanceledWhileOpening(t *testing.T) {
	t.Parallel()
	d := sharedDaemon(t)
	for _, proc := range []uint32{upload, download} {
		if proc == download && !lane.Slow {
			continue
		}
		s := newGroupSite(t, d)
		vm := vmWithoutNICs()
		_, to, def := stageVM(t, vm, s.platform, bytes.Repeat([]byte{7}, 1<<20))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		end := s.watchCalls(proc, cancel)
		if err := to.Publish(ctx, def); !fault.Is(err, fault.Canceled) || strings.Contains(err.Error(), "delete") {
			t.Errorf("got %v, want canceled", err)
		}
		end()
		if left := s.listObjects(t); len(left) > 0 {
			t.Errorf("remaining objects: %q", left)
		}
		if err := to.Publish(t.Context(), def); err != nil {
			t.Errorf("%v (%s)", err, fault.HintOf(err))
		}
		if err := to.Withdraw(t.Context(), vm); err != nil {
			t.Error(err)
		}
	}
}

// LVM reports only in its message that a volume is in use. The hint names processes that can have it open.
func TestLVMVolumeInUseIsReported(t *testing.T) {
	t.Parallel()
	lvmErr := &rpc.Error{Code: rpc.InternalError, Message: "Child process (/sbin/lvremove) unexpected exit status 5: in use"}
	if err := inUse(lvmErr); !fault.Is(err, fault.Conflict) || !errors.Is(err, lvmErr) || !strings.Contains(fault.HintOf(err), "restart libvirtd") {
		t.Errorf("%v (%s)", err, fault.HintOf(err))
	}
	lvmErr.Code = rpc.SystemError
	if err := inUse(lvmErr); err != error(lvmErr) {
		t.Errorf("got %v, want the unchanged error", err)
	}
}

// A group has no room for thin disks with a large capacity, which would fit in a file system. Volumes from an earlier
// delivery count as free space.
func TestRoomInAGroup(t *testing.T) {
	t.Parallel()
	s := newGroupSite(t, sharedDaemon(t))
	vm := webVM(40 << 20)
	vm.Disks[0].Thin, vm.Disks[0].Used = true, 1<<20
	check := func(what string, full bool) {
		t.Helper()
		if err := s.platform.Check(t.Context(), vm); fault.Is(err, fault.Full) != full || (err != nil) != full {
			t.Errorf("%s: got %v, want full: %v", what, err, full)
		}
	}
	check("40 of 60 MiB", false)
	s.virsh(t, "vol-create-as", s.group, volumeName(s.platform.opts.Maps, vm, 0, targets.Raw), "40M")
	check("with an earlier volume, which is removed first", false)
	s.virsh(t, "vol-create-as", s.group, "theirs", "16M")
	vm.Disks[0].Capacity = 48 << 20
	check("48 of 44 MiB", true)

	const size = 48 << 20
	vm.Disks[0].Capacity = 1 // so that stageVM writes little
	_, to, def := stageVM(t, vm, s.platform, []byte{7})
	vm.Disks[0].Capacity, def.Images[0].Size = size, size
	if err := os.Truncate(def.Images[0].Path, size); err != nil {
		t.Fatal(err)
	}
	if err := to.Publish(t.Context(), def); !fault.Is(err, fault.Full) || fault.HintOf(err) == "" {
		t.Errorf("Publish without room: %v (%v, %s)", err, fault.KindOf(err), fault.HintOf(err))
	}
	if names, _ := s.logicalVolumes(t); len(names) != 1 || names[0] != "theirs" {
		t.Errorf("got volumes %q, want only theirs", names)
	}
}

// Names that LVM reserves are changed, and no others.
func TestVolumeNamesForLVM(t *testing.T) {
	t.Parallel()
	s := newGroupSite(t, sharedDaemon(t))
	for name, want := range map[string]string{
		"snapshot of x_mlog_rimage_1": "vm-snapshot_of_x-mlog-rimage_1", "pvmove_tmeta": "vm-pvmove-tmeta", strings.Repeat("_-", 40): strings.Repeat("_-", 20),
	} {
		vm := vmWithoutNICs()
		vm.Name = name
		volume := volumeName(s.platform.opts.Maps, vm, 0, targets.Raw)
		if want += "-" + sourceID(vm) + "-disk0.raw"; volume != want {
			t.Errorf("%q: got name %q, want %q", name, volume, want)
		}
		if name == "pvmove_tmeta" && !lane.Slow {
			continue
		}
		_, to, def := stageVM(t, vm, s.platform, make([]byte, 1<<20))
		if err := to.Publish(t.Context(), def); err != nil {
			t.Errorf("%q: %v", name, err)
			continue
		}
		if names, _ := s.logicalVolumes(t); len(names) != 1 || names[0] != volume {
			t.Errorf("%q: got volumes %q", name, names)
		}
		if err := to.Withdraw(t.Context(), vm); err != nil {
			t.Error(err)
		}
	}
}

// A VM on LVM starts, and its disks have their original size although LVM rounds up.
func TestVMOnLVMStarts(t *testing.T) {
	t.Parallel()
	d := ownDaemon(t)
	for _, size := range []int64{extentSize, extentSize + 512} {
		if size == extentSize && !lane.Slow {
			continue
		}
		vm := vmWithoutNICs()
		vm.Disks[0].Capacity = size
		s := newGroupSite(t, d)
		s.platform.wait = noWait
		_, to, def := stageVM(t, vm, s.platform, make([]byte, size))
		if err := to.Publish(t.Context(), def); err != nil {
			t.Fatal(err)
		}
		if _, err := s.platform.Start(t.Context(), def); err != nil {
			t.Fatalf("%v (%s)", err, fault.HintOf(err))
		}
		if text := s.virsh(t, "domblkinfo", vm.UUID, "sda"); !strings.Contains(text, fmt.Sprintf("Capacity:       %d\n", size)) {
			t.Errorf("got for a disk of %d bytes:\n%s", size, text)
		}
		if err := to.Withdraw(t.Context(), vm); !fault.Is(err, fault.Conflict) {
			t.Errorf("Withdraw of a running VM: %v", err)
		}
		s.powerOff(t, vm)
		if err := to.Withdraw(t.Context(), vm); err != nil {
			t.Error(err)
		}
		if left := s.listObjects(t); len(left) > 0 {
			t.Errorf("remaining objects: %q", left)
		}
	}
}

// The firmware variables are a file, which cannot be stored in a volume group.
func TestPoolOfVariables(t *testing.T) {
	t.Parallel()
	files, group := pool{Pool: rpc.Pool{Name: "files"}}, pool{Pool: rpc.Pool{Name: "vg0"}, block: true}
	x := &libvirtxml.Domain{OS: &libvirtxml.DomainOS{NVRam: &libvirtxml.DomainNVRam{Template: "/stage/web01_VARS.fd"}}}
	for _, tt := range []struct {
		into, pools []pool
		want        string
	}{
		{[]pool{group, files}, []pool{group, files}, "files"},
		{[]pool{group}, []pool{files, group}, "files"},
		{[]pool{group}, []pool{group}, ""},
	} {
		j := &job{into: tt.into, pools: tt.pools}
		in, _ := j.filePool()
		warnings := j.warnNoVariables(x)
		if in.Name != tt.want || (len(warnings) == 0) != (tt.want != "") {
			t.Errorf("got pool %q, warnings %+v, want pool %q", in.Name, warnings, tt.want)
		}
		if none := j.warnNoVariables(&libvirtxml.Domain{}); len(none) > 0 {
			t.Errorf("a VM without variables: %+v", none)
		}
	}
}
