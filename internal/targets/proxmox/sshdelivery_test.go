package proxmox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/image"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/lab/executable"
	"github.com/decamp/decamp/internal/lab/pve"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/namemap"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/dir"
	"github.com/decamp/decamp/internal/targets/platform"
	"github.com/decamp/decamp/test/lane"
)

// node is what the tests of a kind of storage have.
func node(kinds ...pve.Storage) pve.Config {
	for i := range kinds {
		kinds[i].Content = []string{"images"}
		if kinds[i].Size == 0 {
			kinds[i].Size = 1 << 30
		}
	}
	return pve.Config{Storages: kinds}
}

// sparseVM has one disk, of which little is data.
func sparseVM(size int64) *inventory.VM {
	return with(biosVM(), func(vm *inventory.VM) {
		vm.Disks = vm.Disks[1:]
		vm.Disks[0].Capacity = size
	})
}

// onStage is a VM of which a run has copied what data says, not finished.
type onStage struct {
	*testing.T
	target *platform.Target
	def    targets.Definition
	data   []byte
}

func stage(t *testing.T, p *Platform, vm *inventory.VM) *onStage {
	t.Helper()
	folder, err := dir.New(t.TempDir(), dir.Options{Domain: dir.DomainOptions{Type: "qemu"}})
	if err != nil {
		t.Fatal(err)
	}
	s := &onStage{T: t, target: platform.New(folder, p, platform.Options{}), data: make([]byte, vm.Disks[0].Capacity)}
	s.def = targets.Definition{VM: vm, Decamp: "v0.0.0-test"}
	if s.def.Images, err = s.target.Plan(t.Context(), vm); err != nil {
		t.Fatalf("%v (%s)", err, fault.HintOf(err))
	}
	return s
}

func (s *onStage) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatalf("%v (%s)", err, fault.HintOf(err))
	}
}

// round brings the image up to data, as a round does: chunks are off the manifest before they change.
func (s *onStage) round(chunks ...int64) {
	s.Helper()
	img := s.def.Images[0]
	w, _, err := s.target.Open(s.Context(), img)
	s.must(err)
	log, err := manifest.Open(img.Manifest)
	if fault.Is(err, fault.NotFound) {
		log, err = manifest.Create(img.Manifest, manifest.Info{Disk: "2001", Size: img.Size})
	}
	s.must(err)
	if chunks == nil {
		for c := range log.Chunks() {
			chunks = append(chunks, c)
		}
	} else {
		s.must(log.DropAll(chunks))
	}
	var runs []manifest.Run
	for _, c := range chunks {
		r := log.Info().Chunk(c)
		p := s.data[r.Off:r.End()]
		s.must(w.WriteAt(s.Context(), p, r.Off))
		runs = append(runs, manifest.Run{First: c, Hashes: []manifest.Hash{manifest.HashOf(p)}})
	}
	s.must(w.Sync(s.Context()))
	s.must(log.Append(s.Context(), runs))
	s.must(errors.Join(log.Close(), w.Close()))
}

// fill makes a chunk other data.
func (s *onStage) fill(seed byte, chunks ...int64) {
	rnd := rand.NewChaCha8([32]byte{seed})
	for _, c := range chunks {
		_, _ = rnd.Read(s.data[c<<20 : min((c+1)<<20, int64(len(s.data)))])
	}
}

// finish ends the copy: the image is complete, its manifest sealed.
func (s *onStage) finish() {
	s.Helper()
	img := &s.def.Images[0]
	job := image.Job{
		Opener: place1{s.target, *img}, Path: img.Path, Manifest: img.Manifest,
		Info: manifest.Info{Disk: "2001", Size: img.Size},
	}
	root, err := job.Complete(s.Context())
	s.must(err)
	img.Root = root.String()
}

// place1 is one image's.
type place1 struct {
	*platform.Target
	img targets.Image
}

func (p place1) Open(ctx context.Context) (disk.Target, bool, error) {
	return p.Target.Open(ctx, p.img)
}
func (p place1) Grow(ctx context.Context, least int64) error {
	return p.Target.Grow(ctx, p.img, least)
}
func (p place1) Read(ctx context.Context) (disk.Source, error) { return p.Target.Read(ctx, p.img) }
func (p place1) ReadUnfinished(ctx context.Context) (disk.Source, error) {
	return p.Target.ReadUnfinished(ctx, p.img)
}

// same compares the guest's disk with data; what a volume is larger is zeros.
func (s *onStage) same(server *pve.Server) {
	s.Helper()
	_, config := guestOf(s.T, server, s.def.VM)
	got, err := server.Read(s.Context(), config["scsi0"])
	s.must(err)
	want := append(bytes.Clone(s.data), make([]byte, max(0, len(got)-len(s.data)))...)
	if !bytes.Equal(got, want) {
		for i := range got {
			if got[i] != want[i] {
				s.Fatalf("the volume differs at %d of %d bytes", i, len(got))
			}
		}
	}
	if all := server.Volumes(); len(all) != 1 {
		s.Errorf("volumes %v", all)
	}
}

// On every kind of storage the guest has its bytes, through a real sshd, also where fresh volumes are full
// of what was there before, are larger than was asked for, or are there only once they are activated.
func TestDirectToEveryStorage(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	for name, kind := range map[string]pve.Storage{
		"files":    {ID: "tank", Type: "dir"},
		"lvm":      {ID: "tank", Type: "lvm"},
		"lvmthin":  {ID: "tank", Type: "lvmthin"},
		"inactive": {ID: "tank", Type: "lvm", Lazy: true},
		"rbd":      {ID: "tank", Type: "rbd", Remote: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, d := serveSSH(t, node(kind))
			p := directPlace(t, server, d, Options{Storage: "tank"})
			s := stage(t, p, sparseVM(5<<20+512<<10))
			s.fill(1, 0, 3)
			copy(s.data[5<<20+100<<10:], "the end")
			s.round()
			s.finish()
			s.must(s.target.Publish(t.Context(), s.def))
			s.same(server)
			s.must(s.target.Withdraw(t.Context(), s.def.VM))
			checkGone(t, server)
		})
	}
}

// Of a disk that is mostly zeros only the rest goes over the wire, and takes room there.
func TestDirectWritesDataOnly(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	server, d := serveSSH(t, node(pve.Storage{ID: "tank", Type: "lvmthin"}))
	p := directPlace(t, server, d, Options{Storage: "tank"})
	s := stage(t, p, sparseVM(128<<20))
	s.fill(2, 50)
	copy(s.data[100<<20:], "one grain")
	s.round()
	s.finish()
	before := d.Sent()
	s.must(s.target.Publish(t.Context(), s.def))
	if sent := d.Sent() - before; sent < 1<<20 || sent > 2<<20 {
		t.Errorf("%d bytes were sent of 1 MiB and 64 KiB", sent)
	}
	s.same(server)
}

// While the VM runs all of it is delivered; in the outage what changed since, and nothing else.
func TestOutageDeliversTheDelta(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	for _, kind := range []string{"lvmthin", "lvm", "dir"} {
		if kind == "dir" && !lane.Slow {
			continue // TestDirectToEveryStorage has files, too
		}
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			server, d := serveSSH(t, node(pve.Storage{ID: "tank", Type: kind}))
			p := directPlace(t, server, d, Options{Storage: "tank"})
			s := stage(t, p, sparseVM(32<<20))
			s.fill(3, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 20, 21, 22, 23, 31)
			s.round()
			s.must(s.target.Prepare(t.Context(), s.def))
			first := d.Sent()
			s.fill(4, 2, 21)
			clear(s.data[5<<20 : 6<<20]) // and what was data is zeros now
			s.round(2, 5, 21)
			s.must(s.target.Prepare(t.Context(), s.def))
			second := d.Sent()
			s.fill(5, 7)
			s.round(7)
			s.finish()
			told := int64(0)
			s.def.Progress = func(done, _ int64) { told = done }
			s.must(s.target.Publish(t.Context(), s.def))
			if told != 32<<20 {
				t.Errorf("it was told that %d bytes are there", told)
			}
			third := d.Sent()
			if first < 15<<20 || second-first < 2<<20 || second-first > 3<<20 || third-second < 1<<20 || third-second > 2<<20 {
				t.Errorf("sent %d, %d and %d bytes, want 15 MiB, 2 and 1", first, second-first, third-second)
			}
			s.same(server)
			if len(server.VMIDs()) != 1 {
				t.Errorf("guests %v", server.VMIDs())
			}
		})
	}
}

// What Prepare brought is not a guest that anybody could take for a whole one, and goes with the run.
func TestEarlyDeliveryIsDiscarded(t *testing.T) {
	t.Parallel()
	server, d := serveSSH(t, node(pve.Storage{ID: "tank", Type: "lvmthin"}))
	server.AddGuest(177, map[string]string{"name": "another", "scsi0": "tank:vm-177-disk-0"})
	p := directPlace(t, server, d, Options{Storage: "tank"})
	s := stage(t, p, sparseVM(8<<20))
	s.fill(6, 1, 2)
	s.round()
	s.must(s.target.Prepare(t.Context(), s.def))
	vmid, config := guestOf(t, server, s.def.VM)
	if is := parseDescription(config["description"], s.def.VM, vmid); is.plan != earlyPlan || config["scsi0"] != "" || config["onboot"] != "0" {
		t.Errorf("a guest %v that is %+v", config, is)
	}
	s.must(p.Check(t.Context(), s.def.VM))
	s.must(s.target.Discard(t.Context(), s.def.VM, s.def.Images))
	checkGone(t, server, 177)
	if left := server.Volumes(); len(left) > 0 {
		t.Errorf("volumes %v are left", left)
	}
}

// What the first rounds brought is not left behind by a plan that says something else afterwards: another
// storage for the disk, or nothing of ssh=.
func TestEarlyVolumesFollowThePlan(t *testing.T) {
	t.Parallel()
	for name, second := range map[string]func(*pve.Server, *pve.SSH) *Platform{
		"storage": func(n *pve.Server, d *pve.SSH) *Platform { return directPlace(t, n, d, Options{Storage: "local"}) },
		"map": func(n *pve.Server, d *pve.SSH) *Platform {
			return directPlace(t, n, d, Options{Maps: namemap.Map{Storages: map[string]string{"ssd*": "local"}}})
		},
		"no ssh": func(n *pve.Server, _ *pve.SSH) *Platform { return place(t, n, Options{Storage: "local"}) },
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name != "no ssh" {
				t.Skip("takes more than a second")
			}
			server, d := serveSSH(t, pve.Config{})
			s := stage(t, directPlace(t, server, d, Options{}), sparseVM(8<<20))
			s.def.VM.Disks[0].Path.Datastore = "ssd1"
			s.fill(9, 1, 2)
			s.round()
			s.must(s.target.Prepare(t.Context(), s.def))
			s.finish()
			p := second(server, d)
			_, err := p.Deliver(t.Context(), platform.Delivery{Open: open, Definition: s.def})
			s.must(err)
			s.same(server)
			if _, config := guestOf(t, server, s.def.VM); !strings.HasPrefix(config["scsi0"], "local:") {
				t.Errorf("its disk is %q", config["scsi0"])
			}
			s.must(p.Withdraw(t.Context(), s.def.VM))
			checkGone(t, server)
		})
	}
}

// What an earlier plan gave the guest is taken off by the change that gives it the rest.
func TestOptionsOfAnEarlierPlanAreTakenOff(t *testing.T) {
	t.Parallel()
	w := &sshDelivery{&delivery{machine: Machine{Base: []Param{{"net0", "e1000"}}, Disks: []Disk{{Slot: "scsi0"}}}}}
	was := map[string]string{"virtio0": "tank:b", "net0": "virtio", "net1": "virtio", "balloon": "0", "scsi0": "tank:a,discard=on", "tags": "mine"}
	got := w.missingOptions(was, []string{"tank:a"})
	if want := []Param{{"net0", "e1000"}, {"delete", "balloon,net1,virtio0"}}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A run is taken back also by a command that does not name ssh=.
func TestEarlyVolumesAreWithdrawnWithoutSSH(t *testing.T) {
	t.Parallel()
	server, d := serveSSH(t, pve.Config{})
	s := stage(t, directPlace(t, server, d, Options{}), sparseVM(8<<20))
	s.round()
	s.must(s.target.Prepare(t.Context(), s.def))
	if len(server.Volumes()) != 1 {
		t.Fatalf("volumes %v", server.Volumes())
	}
	s.must(place(t, server, Options{}).Withdraw(t.Context(), s.def.VM))
	checkGone(t, server)
}

// Whoever takes our mark off a guest keeps it with its disks.
func TestKeptGuestKeepsItsVolumes(t *testing.T) {
	t.Parallel()
	server, d := serveSSH(t, node(pve.Storage{ID: "tank", Type: "lvmthin"}))
	p := directPlace(t, server, d, Options{Storage: "tank"})
	s := stage(t, p, sparseVM(4<<20))
	s.fill(7, 1)
	s.round()
	s.finish()
	s.must(s.target.Publish(t.Context(), s.def))
	vmid, config := guestOf(t, server, s.def.VM)
	config["description"] = "mine now"
	server.AddGuest(vmid, config)
	s.must(p.Withdraw(t.Context(), s.def.VM))
	if server.Guest(vmid) == nil || len(server.Volumes()) != 1 {
		t.Errorf("guests %v with volumes %v are left", server.VMIDs(), server.Volumes())
	}
	s.same(server)
}

// A connection that breaks again and again goes on where it was: little is sent twice.
func TestDirectGoesOnAfterABreak(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	server, d := serveSSH(t, node(pve.Storage{ID: "tank", Type: "lvmthin"}))
	p := directPlace(t, server, d, Options{Storage: "tank"})
	filled, breaks := int64(100), int64(1)
	if lane.Slow {
		filled, breaks = 300, 3
	}
	s := stage(t, p, sparseVM((filled+4)<<20))
	for c := range filled {
		s.fill(byte(c), c)
	}
	s.round()
	s.finish()
	d.Cut(80<<20, int(breaks)) // a batch is on record
	s.must(s.target.Publish(t.Context(), s.def))
	if sent := d.Sent(); sent < filled<<20 || sent > (filled+breaks*(batchData+8))<<20 {
		t.Errorf("%d MiB were sent of %d", sent>>20, filled)
	}
	s.same(server)
}

// A run that dies goes on with what is on record, and with nothing else: a volume that somebody replaced
// begins anew.
func TestRecordIsOfItsVolume(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	server, d := serveSSH(t, node(pve.Storage{ID: "tank", Type: "lvm"}))
	p := directPlace(t, server, d, Options{Storage: "tank"})
	s := stage(t, p, sparseVM(16<<20))
	s.fill(8, 1, 2, 3)
	s.round()
	s.must(s.target.Prepare(t.Context(), s.def))
	was := server.Volumes()
	for _, path := range was { // all of it is gone
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	s.must(s.target.Prepare(t.Context(), s.def))
	if now := server.Volumes(); len(now) != 1 || slices.Equal(now, was) {
		t.Errorf("volumes %v, and %v before", now, was)
	}
	s.finish()
	s.must(s.target.Publish(t.Context(), s.def))
	s.same(server)
	if _, err := os.Lstat(recordOf(s.def.Images[0])); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the record is left: %v", err)
	}
}

// What keeps us from the node, or the node from writing, is told with its kind and a remedy; nothing of a
// cold delivery is left, and the next one is as good as the first.
func TestDirectFailures(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	tests := []struct {
		name  string
		spoil func(*testing.T, *pve.Server, *pve.SSH, *Platform)
		kind  fault.Kind
		words string
		late  bool // it is not seen by Check
	}{
		{"another key", func(t *testing.T, _ *pve.Server, d *pve.SSH, p *Platform) { p.relog(t, d.OtherKey, d.KnownHosts) }, fault.Denied, "Permission denied", false},
		{"an unknown host", func(t *testing.T, _ *pve.Server, d *pve.SSH, p *Platform) { p.relog(t, d.Key, "/dev/null") }, fault.Denied, "Host key verification failed", false},
		{"a changed host key", func(t *testing.T, _ *pve.Server, d *pve.SSH, p *Platform) { p.relog(t, d.Key, d.ChangedKey) }, fault.Denied, "the host key differs", false},
		{"no qemu-nbd", func(t *testing.T, _ *pve.Server, d *pve.SSH, _ *Platform) { drop(t, d, "qemu-nbd") }, fault.Unsupported, "no qemu-nbd", false},
		{"no pvesm", func(t *testing.T, _ *pve.Server, d *pve.SSH, _ *Platform) { drop(t, d, "pvesm") }, fault.Unsupported, "no pvesm", false},
		{"no perl", func(t *testing.T, _ *pve.Server, d *pve.SSH, _ *Platform) { drop(t, d, "perl") }, fault.Unsupported, "perl", false},
		{"another node", func(t *testing.T, _ *pve.Server, d *pve.SSH, _ *Platform) { tool(t, d, "uname", "echo pve2") }, fault.Invalid, "ssh= connects to pve2", false},
		{"a node without room", func(t *testing.T, _ *pve.Server, d *pve.SSH, _ *Platform) { fail(t, d, 28, "pwritev") }, fault.Full, "no room", true},
		{"a disk that fails", func(t *testing.T, _ *pve.Server, d *pve.SSH, _ *Platform) { fail(t, d, 5, "pwritev") }, fault.Corrupt, "disk of the node", true},
		{"a disk that holds something else", func(t *testing.T, _ *pve.Server, d *pve.SSH, _ *Platform) {
			tool(t, d, "dd", "exec /usr/bin/head -c 4194304 /dev/urandom")
		}, fault.Corrupt, "differs from the written data", true},
		{"a disk that cannot be read", func(t *testing.T, _ *pve.Server, d *pve.SSH, _ *Platform) { tool(t, d, "dd", "exit 1") }, fault.Corrupt, "cannot be read", true},
		{"a pvesm that fails", func(t *testing.T, _ *pve.Server, d *pve.SSH, _ *Platform) { tool(t, d, "pvesm", "exit 2") }, fault.NotFound, "does not have the volume", true},
		{"a volume that is not activated", func(t *testing.T, _ *pve.Server, d *pve.SSH, _ *Platform) {
			tool(t, d, "pvesm", "echo /dev/vg/none")
		}, fault.Unsupported, "activate", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server, d := serveSSH(t, node(pve.Storage{ID: "tank", Type: "lvmthin"}))
			p := directPlace(t, server, d, Options{Storage: "tank"})
			s := stage(t, p, sparseVM(4<<20))
			s.fill(9, 0, 1)
			s.round()
			s.finish()
			tt.spoil(t, server, d, p)
			told := func(what string, err error) {
				t.Helper()
				if !fault.Is(err, tt.kind) || fault.HintOf(err) == "" || !strings.Contains(fmt.Sprint(err), tt.words) {
					t.Errorf("%s: %v (%v, remedy %q), want %v", what, err, fault.KindOf(err), fault.HintOf(err), tt.kind)
				}
			}
			if err := p.Check(t.Context(), s.def.VM); !tt.late {
				told("check", err)
			} else if err != nil {
				t.Errorf("check: %v", err)
			}
			told("publish", s.target.Publish(t.Context(), s.def))
			checkGone(t, server)
		})
	}
}

// relog has the place log in otherwise.
func (p *Platform) relog(t *testing.T, key, known string) {
	t.Helper()
	p.opts.ssh.KeyFile, p.opts.ssh.KnownHosts = key, known
	p.shell.dial = p.opts.dialNode
}

func drop(t *testing.T, d *pve.SSH, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(d.Tools, name)); err != nil {
		t.Fatal(err)
	}
}

// tool makes a program of the node do something else.
func tool(t *testing.T, d *pve.SSH, name, does string) {
	t.Helper()
	drop(t, d, name)
	executable.Write(t, filepath.Join(d.Tools, name), "#!/bin/sh\n"+does+"\n")
}

func fail(t *testing.T, d *pve.SSH, errno int, event string) {
	t.Helper()
	if err := d.Fail(errno, event); err != nil {
		t.Fatal(err)
	}
}

// An early delivery that fails in the outage stays for the next try, which sends only what is missing.
func TestOutageThatFailsKeepsWhatWasDelivered(t *testing.T) {
	t.Parallel()
	server, d := serveSSH(t, node(pve.Storage{ID: "tank", Type: "lvmthin"}))
	p := directPlace(t, server, d, Options{Storage: "tank"})
	s := stage(t, p, sparseVM(32<<20))
	s.fill(10, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
	s.round()
	s.must(s.target.Prepare(t.Context(), s.def))
	s.fill(11, 4)
	s.round(4)
	s.finish()
	fail(t, d, 28, "pwritev")
	if err := s.target.Publish(t.Context(), s.def); !fault.Is(err, fault.Full) {
		t.Fatalf("%v", err)
	}
	fail(t, d, 0, "")
	before := d.Sent()
	s.must(s.target.Publish(t.Context(), s.def))
	if sent := d.Sent() - before; sent > 2<<20 {
		t.Errorf("%d bytes were sent again", sent)
	}
	s.same(server)
}

// A program of ours that was left on the node, and holds the volume, gives way.
func TestWhoIsLeftOnTheNodeGivesWay(t *testing.T) {
	t.Parallel()
	server, d := serveSSH(t, node(pve.Storage{ID: "tank", Type: "lvmthin"}))
	p := directPlace(t, server, d, Options{Storage: "tank"})
	s := stage(t, p, sparseVM(4<<20))
	s.fill(12, 1)
	s.round()
	s.must(s.target.Prepare(t.Context(), s.def))
	volumes, err := p.volumes.listOwn(t.Context(), s.def.VM, "tank")
	s.must(err)
	left, err := p.shell.openSession(t.Context(), "write", volumes[0].ID)
	s.must(err)
	defer left.conn.Close()
	s.finish()
	s.must(s.target.Publish(t.Context(), s.def))
	_ = left.conn.SetReadDeadline(time.Now().Add(2 * time.Minute))
	if _, err := left.Discard(1 << 10); err == nil {
		t.Error("who was left has the volume still")
	}
	s.same(server)
}

// A qemu-nbd that does not end when it is told to does not keep the volume from who comes next.
func TestServerThatDoesNotEndIsKilled(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	server, d := serveSSH(t, node(pve.Storage{ID: "tank", Type: "lvmthin"}))
	p := directPlace(t, server, d, Options{Storage: "tank"})
	s := stage(t, p, sparseVM(4<<20))
	s.round()
	s.must(s.target.Prepare(t.Context(), s.def))
	volumes, err := p.volumes.listOwn(t.Context(), s.def.VM, "tank")
	s.must(err)
	real, err := exec.LookPath("qemu-nbd")
	s.must(err)
	tool(t, d, "qemu-nbd", "trap '' TERM\n/bin/sh -c 'LISTEN_PID=$$ exec "+real+" \"$@\"' sh \"$@\"\nexec /bin/sleep 600")
	for range 2 {
		volume, err := p.shell.openVolume(t.Context(), volumes[0].ID)
		s.must(err)
		s.must(volume.Close())
	}
}
