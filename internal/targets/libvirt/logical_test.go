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

// extent is what volumes of LVM's are made of, in bytes.
const extent = 4 << 20

// newGroupSite makes a pool of a volume group, on a device full of what is not zero: of 60 MiB.
func newGroupSite(t *testing.T, d *daemon) *site {
	t.Helper()
	return newGroupSiteOf(t, d, 64<<20)
}

// newGroupSiteOf makes one on a device of so many bytes.
func newGroupSiteOf(t *testing.T, d *daemon, size int) *site {
	t.Helper()
	s := &site{daemon: d, client: d.client(t), group: fmt.Sprintf("vg%d", pools.Add(1))}
	file := filepath.Join(d.folder, s.group)
	if err := os.WriteFile(file, bytes.Repeat([]byte("what was there "), size/15), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.say("vg", s.group, file); err != nil {
		t.Fatal(err)
	}
	d.virsh(t, "pool-create-as", s.group, "logical", "--source-name", s.group, "--target", "/dev/"+s.group)
	s.place = s.placeOf(t, s.group)
	t.Cleanup(func() {
		s.clear(t, s.group)
		if err := d.say("novg", s.group); err != nil {
			t.Error(err)
		}
		if err := os.Remove(file); err != nil {
			t.Error(err)
		}
	})
	return s
}

// devices are the volumes of the site's group, in order of their names, and where each can be read here.
func (s *site) devices(t *testing.T) (names []string, device map[string]string) {
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
		names, device[name] = append(names, name), strings.TrimSpace(string(text))
	}
	return names, device
}

// deviceThings are volumes, as they are.
func (s *site) deviceThings(t *testing.T) (all []string) {
	t.Helper()
	names, device := s.devices(t)
	for _, name := range names {
		p, err := os.ReadFile(device[name])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("volume %q %x", name, sha256.Sum256(p)))
	}
	return all
}

// readDevice returns what the guest would find on a disk: QEMU has no more of the device than the slice.
func (s *site) readDevice(t *testing.T, disk libvirtxml.DomainDisk) []byte {
	t.Helper()
	folder, name := filepath.Split(disk.Source.Block.Dev)
	if folder != "/dev/"+s.group+"/" || disk.Driver.Type != "raw" {
		t.Errorf("disk %s is not in the pool, or %s", disk.Source.Block.Dev, disk.Driver.Type)
	}
	_, device := s.devices(t)
	p, err := os.ReadFile(device[name])
	if err != nil {
		t.Fatal(err)
	}
	if slices := disk.Source.Slices; slices != nil {
		if len(slices.Slices) != 1 || slices.Slices[0].Offset != 0 || slices.Slices[0].Type != "storage" || slices.Slices[0].Size >= uint(len(p)) {
			t.Errorf("slices %+v of %d bytes", slices.Slices, len(p))
		}
		p = p[:slices.Slices[0].Size]
	}
	return p
}

// Libvirt reports what it stored, so a device that keeps what was in a hole is found out.
func TestDeviceThatKeepsWhatWasThere(t *testing.T) {
	t.Parallel()
	s := newGroupSite(t, sharedDaemon(t))
	data := append(bytes.Repeat([]byte{7}, 1<<20), make([]byte, 7<<20)...)
	vm := webVM(int64(len(data)))
	_, to, def := onStage(t, vm, s.place, data)
	end := s.watch(download, func() { s.spoil(t, 5<<20) })
	if err := to.Publish(t.Context(), def); !fault.Is(err, fault.Corrupt) || fault.HintOf(err) == "" {
		t.Errorf("%v (%s), want corrupt with a remedy", err, fault.HintOf(err))
	}
	if left := s.things(t); len(left) > 0 {
		t.Errorf("%q is left", left)
	}
	end()
	if err := to.Publish(t.Context(), def); err != nil {
		t.Fatalf("%v (%s)", err, fault.HintOf(err))
	}
	if seen := s.seen(t); len(seen) != 1 || !bytes.Equal(seen[0].Disks[0], data) {
		t.Errorf("%d VMs, or their disks differ", len(seen))
	}
}

// spoil writes a byte into every volume, which libvirt does not know of.
func (s *site) spoil(t *testing.T, off int64) {
	_, device := s.devices(t)
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

// watched is a connection that has something done before each call of a kind.
type watched struct {
	net.Conn
	proc uint32
	do   func()
}

// Numbers of calls that are watched.
const (
	upload   = 208
	download = 209
)

func (w *watched) Write(p []byte) (int, error) {
	const procAt, kindAt, call = 12, 16, 0
	if binary.BigEndian.Uint32(p[procAt:]) == w.proc && binary.BigEndian.Uint32(p[kindAt:]) == call {
		w.do()
	}
	return w.Conn.Write(p)
}

// watch has something done before each call of a kind to the place, until the returned func is called.
func (s *site) watch(proc uint32, do func()) (end func()) {
	calm := s.place.dial
	s.place.dial = func(ctx context.Context, a address) (net.Conn, error) {
		conn, err := calm(ctx, a)
		return &watched{Conn: conn, proc: proc, do: do}, err
	}
	return func() { s.place.dial = calm }
}

// Libvirt 9.0 keeps a volume open whose upload it opens for a connection that is gone, and LVM removes none that is open.
func TestUploadToLVMThatIsCanceledAsItOpens(t *testing.T) {
	t.Parallel()
	d := sharedDaemon(t)
	for _, proc := range []uint32{upload, download} {
		if proc == download && !lane.Slow {
			continue
		}
		s := newGroupSite(t, d)
		vm := withoutCards()
		_, to, def := onStage(t, vm, s.place, bytes.Repeat([]byte{7}, 1<<20))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		end := s.watch(proc, cancel)
		if err := to.Publish(ctx, def); !fault.Is(err, fault.Canceled) || strings.Contains(err.Error(), "delete") {
			t.Errorf("%v, want canceled", err)
		}
		end()
		if left := s.things(t); len(left) > 0 {
			t.Errorf("%q is left", left)
		}
		if err := to.Publish(t.Context(), def); err != nil {
			t.Errorf("%v (%s)", err, fault.HintOf(err))
		}
		if err := to.Withdraw(t.Context(), vm); err != nil {
			t.Error(err)
		}
	}
}

// LVM says only in words why it removes nothing: it is told who may have a volume open.
func TestVolumeThatLVMDoesNotRemove(t *testing.T) {
	t.Parallel()
	said := &rpc.Error{Code: rpc.InternalError, Message: "Child process (/sbin/lvremove) unexpected exit status 5: in use"}
	if err := inUse(said); !fault.Is(err, fault.Conflict) || !errors.Is(err, said) || !strings.Contains(fault.HintOf(err), "restart libvirtd") {
		t.Errorf("%v (%s)", err, fault.HintOf(err))
	}
	said.Code = rpc.SystemError
	if err := inUse(said); err != error(said) {
		t.Errorf("%v is about no program's end", err)
	}
}

// A group has no room for disks that a file system would take, as they are thin. What an earlier delivery left counts
// as free.
func TestRoomInAGroup(t *testing.T) {
	t.Parallel()
	s := newGroupSite(t, sharedDaemon(t))
	vm := webVM(40 << 20)
	vm.Disks[0].Thin, vm.Disks[0].Used = true, 1<<20
	check := func(what string, full bool) {
		t.Helper()
		if err := s.place.Check(t.Context(), vm); fault.Is(err, fault.Full) != full || (err != nil) != full {
			t.Errorf("%s: %v", what, err)
		}
	}
	check("40 of 60 MiB", false)
	s.virsh(t, "vol-create-as", s.group, volumeName(s.place.opts.Maps, vm, 0, targets.Raw), "40M")
	check("what is taken away first", false)
	s.virsh(t, "vol-create-as", s.group, "theirs", "16M")
	vm.Disks[0].Capacity = 48 << 20
	check("48 of 44 MiB", true)

	const size = 48 << 20
	vm.Disks[0].Capacity = 1 // so that it is staged
	_, to, def := onStage(t, vm, s.place, []byte{7})
	vm.Disks[0].Capacity, def.Images[0].Size = size, size
	if err := os.Truncate(def.Images[0].Path, size); err != nil {
		t.Fatal(err)
	}
	if err := to.Publish(t.Context(), def); !fault.Is(err, fault.Full) || fault.HintOf(err) == "" {
		t.Errorf("deliver without room: %v (%v, %s)", err, fault.KindOf(err), fault.HintOf(err))
	}
	if names, _ := s.devices(t); len(names) != 1 || names[0] != "theirs" {
		t.Errorf("left: %q", names)
	}
}

// Names that LVM keeps for itself are changed, and no others.
func TestVolumeNamesThatLVMTakes(t *testing.T) {
	t.Parallel()
	s := newGroupSite(t, sharedDaemon(t))
	for name, want := range map[string]string{
		"snapshot of x_mlog_rimage_1": "vm-snapshot_of_x-mlog-rimage_1", "pvmove_tmeta": "vm-pvmove-tmeta", strings.Repeat("_-", 40): strings.Repeat("_-", 20),
	} {
		vm := withoutCards()
		vm.Name = name
		volume := volumeName(s.place.opts.Maps, vm, 0, targets.Raw)
		if want += "-" + sourceID(vm) + "-disk0.raw"; volume != want {
			t.Errorf("%q: %q, want %q", name, volume, want)
		}
		if name == "pvmove_tmeta" && !lane.Slow {
			continue
		}
		_, to, def := onStage(t, vm, s.place, make([]byte, 1<<20))
		if err := to.Publish(t.Context(), def); err != nil {
			t.Errorf("%q: %v", name, err)
			continue
		}
		if names, _ := s.devices(t); len(names) != 1 || names[0] != volume {
			t.Errorf("%q: volumes %q", name, names)
		}
		if err := to.Withdraw(t.Context(), vm); err != nil {
			t.Error(err)
		}
	}
}

// A VM on devices starts, and its disks are as large as they were, whatever LVM rounds them up to.
func TestVMOnLVMStarts(t *testing.T) {
	t.Parallel()
	d := ownDaemon(t)
	for _, size := range []int64{extent, extent + 512} {
		if size == extent && !lane.Slow {
			continue
		}
		vm := withoutCards()
		vm.Disks[0].Capacity = size
		s := newGroupSite(t, d)
		s.place.wait = atOnce
		_, to, def := onStage(t, vm, s.place, make([]byte, size))
		if err := to.Publish(t.Context(), def); err != nil {
			t.Fatal(err)
		}
		if _, err := s.place.Start(t.Context(), def); err != nil {
			t.Fatalf("%v (%s)", err, fault.HintOf(err))
		}
		if text := s.virsh(t, "domblkinfo", vm.UUID, "sda"); !strings.Contains(text, fmt.Sprintf("Capacity:       %d\n", size)) {
			t.Errorf("a disk of %d bytes is\n%s", size, text)
		}
		if err := to.Withdraw(t.Context(), vm); !fault.Is(err, fault.Conflict) {
			t.Errorf("withdraw a VM that runs: %v", err)
		}
		s.powerOff(t, vm)
		if err := to.Withdraw(t.Context(), vm); err != nil {
			t.Error(err)
		}
		if left := s.things(t); len(left) > 0 {
			t.Errorf("%q is left", left)
		}
	}
}

// The firmware's variables are a file of a size, for which a group is no place.
func TestVariablesAreNoDevice(t *testing.T) {
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
			t.Errorf("in %q, warnings %+v, want %q", in.Name, warnings, tt.want)
		}
		if none := j.warnNoVariables(&libvirtxml.Domain{}); len(none) > 0 {
			t.Errorf("a VM without variables: %+v", none)
		}
	}
}
