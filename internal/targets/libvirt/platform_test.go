package libvirt

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets/libvirt/rpc"
)

func TestRoomInPools(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	files := func(name string, mibs int64) pool {
		return pool{Pool: rpc.Pool{Name: name}, available: mibs * mib}
	}
	devices := func(name string, mibs int64) pool {
		return pool{Pool: rpc.Pool{Name: name}, available: mibs * mib, block: true}
	}
	thick := inventory.Disk{Capacity: 100 * mib, Used: 60 * mib}
	thin := inventory.Disk{Capacity: 100 * mib, Used: 60 * mib, Thin: true}
	unknown := inventory.Disk{Capacity: 100 * mib, Thin: true}
	for _, c := range []struct {
		name string
		disk []inventory.Disk
		into []pool
		full string // part of the error; empty if there is room
		hint string
	}{
		{name: "thick disks need no proven room in files", disk: []inventory.Disk{thick}, into: []pool{files("a", 1)}},
		{name: "use unknown", disk: []inventory.Disk{unknown}, into: []pool{files("a", 0)}},
		{name: "thin, exactly enough", disk: []inventory.Disk{thin}, into: []pool{files("a", 60)}},
		{name: "thin, too little", disk: []inventory.Disk{thin}, into: []pool{files("a", 59)},
			full: "requires 60 MiB in pool a, 59 MiB are free", hint: "free 2 MiB"},
		{name: "device, exactly enough", disk: []inventory.Disk{thin}, into: []pool{devices("a", 100)}},
		{name: "device, too little", disk: []inventory.Disk{thick}, into: []pool{devices("a", 90)},
			full: "requires 100 MiB in pool a, 90 MiB are free", hint: "free 11 MiB"},
		{name: "two disks in one pool", disk: []inventory.Disk{thin, thin}, into: []pool{files("a", 100), files("a", 100)},
			full: "requires 120 MiB in pool a", hint: "free 21 MiB"},
		{name: "two disks in two pools", disk: []inventory.Disk{thin, thin}, into: []pool{files("a", 60), files("b", 60)}},
		{name: "second pool is full", disk: []inventory.Disk{thin, thin}, into: []pool{files("a", 60), files("b", 10)},
			full: "requires 60 MiB in pool b, 10 MiB are free", hint: "virsh -c qemu:///system pool-list"},
	} {
		p := newTestPlatform(t, Options{})
		err := p.checkRoom(&inventory.VM{Name: "web", Disks: c.disk}, c.into)
		if (err != nil) != (c.full != "") {
			t.Errorf("%s: %v", c.name, err)
		}
		if err != nil && (!fault.Is(err, fault.Full) || !strings.Contains(err.Error(), c.full) || !strings.Contains(fault.HintOf(err), c.hint)) {
			t.Errorf("%s: %v, %q", c.name, err, fault.HintOf(err))
		}
	}
}

// Images are linked only if all of them are staged on this machine, on the file system of their pool. Linked images
// require no space and are not sent.
func TestImagesAreLinked(t *testing.T) {
	t.Parallel()
	here := t.TempDir()
	near, far := pool{folder: here}, pool{folder: "/proc"}
	for _, c := range []struct {
		name, stage, transport string
		into                   []pool
		linked                 bool
	}{
		{"same file system", here, "unix", []pool{near}, true},
		{"two pools", here, "unix", []pool{near, near}, true},
		{"another file system", here, "unix", []pool{far}, false},
		{"one of two on another file system", here, "unix", []pool{near, far}, false},
		{"first of two on another file system", here, "unix", []pool{far, near}, false},
		{"device", here, "unix", []pool{{folder: here, block: true}}, false},
		{"another machine", here, "tcp", []pool{near}, false},
		{"stage unknown", "", "unix", []pool{near}, false},
		{"stage missing", filepath.Join(here, "none"), "unix", []pool{near}, false},
		{"pool's folder missing", here, "unix", []pool{{folder: filepath.Join(here, "none")}}, false},
		{"neither folder exists", filepath.Join(here, "none"), "unix", []pool{{folder: filepath.Join(here, "other")}}, false},
		{"no disks", here, "unix", nil, false},
	} {
		p := newTestPlatform(t, Options{Staging: c.stage})
		p.at.transport = c.transport
		vm := &inventory.VM{}
		for range c.into {
			vm.Disks = append(vm.Disks, inventory.Disk{Capacity: 1 << 20, Used: 1 << 20, Thin: true})
		}
		if err := p.checkRoom(vm, c.into); (err == nil) != (c.linked || len(c.into) == 0) {
			t.Errorf("%s: %v", c.name, err)
		}
		want := int64(77)
		if c.linked {
			want = 0
		}
		if n := p.Sends(77, 88); n != want {
			t.Errorf("%s: %d of 77 bytes are sent, want %d", c.name, n, want)
		}
	}
}

func TestKindsOfLibvirtErrors(t *testing.T) {
	t.Parallel()
	ordinary := errors.New("connection lost")
	for _, c := range []struct {
		err  error
		kind fault.Kind
	}{
		{nil, fault.Internal},
		{ordinary, fault.Internal},
		{&rpc.Error{Code: rpc.InternalError}, fault.Unsupported},
		{fmt.Errorf("define: %w", &rpc.Error{Code: rpc.OperationFailed}), fault.Unsupported},
		{&rpc.Error{Code: rpc.SystemError, Errno: unix.ENOSPC}, fault.Full},
		{&rpc.Error{Code: rpc.SystemError, Errno: unix.EDQUOT}, fault.Full},
		{&rpc.Error{Code: rpc.SystemError, Errno: unix.EACCES}, fault.Denied},
		{&rpc.Error{Code: rpc.SystemError, Errno: unix.EPERM}, fault.Denied},
		{&rpc.Error{Code: rpc.SystemError, Errno: unix.EROFS}, fault.Denied},
		{&rpc.Error{Code: rpc.AccessDenied}, fault.Denied},
		{fault.New(fault.Conflict, "taken: %w", &rpc.Error{Code: rpc.AccessDenied}), fault.Conflict},
	} {
		err := libvirtFault(c.err)
		if c.err == nil {
			if err != nil {
				t.Errorf("libvirtFault(nil) = %v", err)
			}
			continue
		}
		if fault.KindOf(err) != c.kind || !errors.Is(err, c.err) {
			t.Errorf("libvirtFault(%v) = %v (%v), want %v", c.err, err, fault.KindOf(err), c.kind)
		}
		if c.kind != fault.Internal && fault.KindOf(c.err) == fault.Internal && fault.HintOf(err) == "" {
			t.Errorf("%v has no hint", err)
		}
	}
}

func TestTypeOfDomainsIsChecked(t *testing.T) {
	t.Parallel()
	s := newSite(t, sharedDaemon(t), false)
	for kind, refused := range map[string]bool{"": false, "qemu": false, "xen": true} {
		s.platform.opts.Type = kind
		err := s.platform.Check(t.Context(), webVM(1<<20))
		if (err != nil) != refused || refused && (!fault.Is(err, fault.Unsupported) || !strings.Contains(fault.HintOf(err), "--domain-type qemu")) {
			t.Errorf("%q: %v (%s)", kind, err, fault.HintOf(err))
		}
	}
}

func newTestPlatform(t *testing.T, o Options) *Platform {
	t.Helper()
	p, err := New("qemu:///system", o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
