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

// configWithStorages returns the configuration of a node with these storages for disks.
func configWithStorages(kinds ...pve.Storage) pve.Config {
	for i := range kinds {
		kinds[i].Content = []string{"images"}
		if kinds[i].Size == 0 {
			kinds[i].Size = 1 << 30
		}
	}
	return pve.Config{Storages: kinds}
}

// sparseVM has one disk that contains little data.
func sparseVM(size int64) *inventory.VM {
	return changedVM(biosVM(), func(vm *inventory.VM) {
		vm.Disks = vm.Disks[1:]
		vm.Disks[0].Capacity = size
	})
}

// stagedCopy is an unfinished copy of a VM whose disk contains data.
type stagedCopy struct {
	*testing.T
	target *platform.Target
	def    targets.Definition
	data   []byte
}

func newStagedCopy(t *testing.T, p *Platform, vm *inventory.VM) *stagedCopy {
	t.Helper()
	folder, err := dir.New(t.TempDir(), dir.Options{Domain: dir.DomainOptions{Type: "qemu"}})
	if err != nil {
		t.Fatal(err)
	}
	s := &stagedCopy{T: t, target: platform.New(folder, p, platform.Options{}), data: make([]byte, vm.Disks[0].Capacity)}
	s.def = targets.Definition{VM: vm, Decamp: "v0.0.0-test"}
	if s.def.Images, err = s.target.Plan(t.Context(), vm); err != nil {
		t.Fatalf("%v (%s)", err, fault.HintOf(err))
	}
	return s
}

func (s *stagedCopy) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatalf("%v (%s)", err, fault.HintOf(err))
	}
}

// copyRound copies data to the image like a round of a run. It removes chunks from the manifest before they change.
// Without chunks, it copies all.
func (s *stagedCopy) copyRound(chunks ...int64) {
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

// fillRandom fills chunks with pseudorandom data.
func (s *stagedCopy) fillRandom(seed byte, chunks ...int64) {
	rnd := rand.NewChaCha8([32]byte{seed})
	for _, c := range chunks {
		_, _ = rnd.Read(s.data[c<<20 : min((c+1)<<20, int64(len(s.data)))])
	}
}

// finish completes the image and seals its manifest.
func (s *stagedCopy) finish() {
	s.Helper()
	img := &s.def.Images[0]
	job := image.Job{
		Opener: imageOpener{s.target, *img}, Path: img.Path, Manifest: img.Manifest,
		Info: manifest.Info{Disk: "2001", Size: img.Size},
	}
	root, err := job.Complete(s.Context())
	s.must(err)
	img.Root = root.String()
}

// imageOpener opens one image of a target.
type imageOpener struct {
	*platform.Target
	img targets.Image
}

func (p imageOpener) Open(ctx context.Context) (disk.Target, bool, error) {
	return p.Target.Open(ctx, p.img)
}
func (p imageOpener) Grow(ctx context.Context, least int64) error {
	return p.Target.Grow(ctx, p.img, least)
}
func (p imageOpener) Read(ctx context.Context) (disk.Source, error) { return p.Target.Read(ctx, p.img) }
func (p imageOpener) ReadUnfinished(ctx context.Context) (disk.Source, error) {
	return p.Target.ReadUnfinished(ctx, p.img)
}

// checkDisk compares the guest's disk with data. A larger volume must contain zeros behind it.
func (s *stagedCopy) checkDisk(server *pve.Server) {
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
		s.Errorf("got volumes %v, want one", all)
	}
}

// A guest delivered over SSH has the VM's data on every kind of storage, with a real sshd. This includes storages
// whose new volumes contain old data, are larger than requested, or exist only after activation.
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
			server, d := startSSHServer(t, configWithStorages(kind))
			p := newDirectPlatform(t, server, d, Options{Storage: "tank"})
			s := newStagedCopy(t, p, sparseVM(5<<20+512<<10))
			s.fillRandom(1, 0, 3)
			copy(s.data[5<<20+100<<10:], "the end")
			s.copyRound()
			s.finish()
			s.must(s.target.Publish(t.Context(), s.def))
			s.checkDisk(server)
			s.must(s.target.Withdraw(t.Context(), s.def.VM))
			checkGone(t, server)
		})
	}
}

// Only the data of a sparse disk is sent and stored.
func TestDirectWritesDataOnly(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	server, d := startSSHServer(t, configWithStorages(pve.Storage{ID: "tank", Type: "lvmthin"}))
	p := newDirectPlatform(t, server, d, Options{Storage: "tank"})
	s := newStagedCopy(t, p, sparseVM(128<<20))
	s.fillRandom(2, 50)
	copy(s.data[100<<20:], "one grain")
	s.copyRound()
	s.finish()
	before := d.Sent()
	s.must(s.target.Publish(t.Context(), s.def))
	if sent := d.Sent() - before; sent < 1<<20 || sent > 2<<20 {
		t.Errorf("%d bytes were sent for 1 MiB and 64 KiB of data", sent)
	}
	s.checkDisk(server)
}

// Prepare delivers everything while the VM runs. In the outage, Publish delivers only the chunks that changed since
// then.
func TestOutageDeliversTheDelta(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	for _, kind := range []string{"lvmthin", "lvm", "dir"} {
		if kind == "dir" && !lane.Slow {
			continue // TestDirectToEveryStorage has files
		}
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			server, d := startSSHServer(t, configWithStorages(pve.Storage{ID: "tank", Type: kind}))
			p := newDirectPlatform(t, server, d, Options{Storage: "tank"})
			s := newStagedCopy(t, p, sparseVM(32<<20))
			s.fillRandom(3, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 20, 21, 22, 23, 31)
			s.copyRound()
			s.must(s.target.Prepare(t.Context(), s.def))
			first := d.Sent()
			s.fillRandom(4, 2, 21)
			clear(s.data[5<<20 : 6<<20]) // data becomes zeros
			s.copyRound(2, 5, 21)
			s.must(s.target.Prepare(t.Context(), s.def))
			second := d.Sent()
			s.fillRandom(5, 7)
			s.copyRound(7)
			s.finish()
			reported := int64(0)
			s.def.Progress = func(done, _ int64) { reported = done }
			s.must(s.target.Publish(t.Context(), s.def))
			if reported != 32<<20 {
				t.Errorf("progress reports %d bytes", reported)
			}
			third := d.Sent()
			if first < 15<<20 || second-first < 2<<20 || second-first > 3<<20 || third-second < 1<<20 || third-second > 2<<20 {
				t.Errorf("sent %d, %d and %d bytes, want 15, 2 and 1 MiB", first, second-first, third-second)
			}
			s.checkDisk(server)
			if len(server.VMIDs()) != 1 {
				t.Errorf("got guests %v, want one", server.VMIDs())
			}
		})
	}
}

// The guest of an early delivery is marked as unfinished and does not start with the node. Discard removes it.
func TestEarlyDeliveryIsDiscarded(t *testing.T) {
	t.Parallel()
	server, d := startSSHServer(t, configWithStorages(pve.Storage{ID: "tank", Type: "lvmthin"}))
	server.AddGuest(177, map[string]string{"name": "another", "scsi0": "tank:vm-177-disk-0"})
	p := newDirectPlatform(t, server, d, Options{Storage: "tank"})
	s := newStagedCopy(t, p, sparseVM(8<<20))
	s.fillRandom(6, 1, 2)
	s.copyRound()
	s.must(s.target.Prepare(t.Context(), s.def))
	vmid, config := guestOf(t, server, s.def.VM)
	if is := parseDescription(config["description"], s.def.VM, vmid); is.plan != earlyPlan || config["scsi0"] != "" || config["onboot"] != "0" {
		t.Errorf("guest %v has status %+v", config, is)
	}
	s.must(p.Check(t.Context(), s.def.VM))
	s.must(s.target.Discard(t.Context(), s.def.VM, s.def.Images))
	checkGone(t, server, 177)
	if left := server.Volumes(); len(left) > 0 {
		t.Errorf("remaining volumes: %v", left)
	}
}

// If the plan changes after Prepare, Deliver removes the volumes of the first plan. The new plan has another storage
// for the disk, or no ssh=.
func TestChangedPlanReplacesEarlyVolumes(t *testing.T) {
	t.Parallel()
	for name, second := range map[string]func(*pve.Server, *pve.SSH) *Platform{
		"storage": func(n *pve.Server, d *pve.SSH) *Platform {
			return newDirectPlatform(t, n, d, Options{Storage: "local"})
		},
		"map": func(n *pve.Server, d *pve.SSH) *Platform {
			return newDirectPlatform(t, n, d, Options{Maps: namemap.Map{Storages: map[string]string{"ssd*": "local"}}})
		},
		"no ssh": func(n *pve.Server, _ *pve.SSH) *Platform { return newPlatform(t, n, Options{Storage: "local"}) },
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name != "no ssh" {
				t.Skip("takes more than a second")
			}
			server, d := startSSHServer(t, pve.Config{})
			s := newStagedCopy(t, newDirectPlatform(t, server, d, Options{}), sparseVM(8<<20))
			s.def.VM.Disks[0].Path.Datastore = "ssd1"
			s.fillRandom(9, 1, 2)
			s.copyRound()
			s.must(s.target.Prepare(t.Context(), s.def))
			s.finish()
			p := second(server, d)
			_, err := p.Deliver(t.Context(), platform.Delivery{Open: openImage, Definition: s.def})
			s.must(err)
			s.checkDisk(server)
			if _, config := guestOf(t, server, s.def.VM); !strings.HasPrefix(config["scsi0"], "local:") {
				t.Errorf("scsi0 is %q", config["scsi0"])
			}
			s.must(p.Withdraw(t.Context(), s.def.VM))
			checkGone(t, server)
		})
	}
}

// The request that completes a guest also deletes the options of an earlier plan.
func TestOptionsOfEarlierPlanAreDeleted(t *testing.T) {
	t.Parallel()
	w := &sshDelivery{&delivery{machine: Machine{Base: []Param{{"net0", "e1000"}}, Disks: []Disk{{Slot: "scsi0"}}}}}
	was := map[string]string{"virtio0": "tank:b", "net0": "virtio", "net1": "virtio", "balloon": "0", "scsi0": "tank:a,discard=on", "tags": "mine"}
	got := w.missingOptions(was, []string{"tank:a"})
	if want := []Param{{"net0", "e1000"}, {"delete", "balloon,net1,virtio0"}}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A command without ssh= can withdraw an early delivery.
func TestEarlyVolumesAreWithdrawnWithoutSSH(t *testing.T) {
	t.Parallel()
	server, d := startSSHServer(t, pve.Config{})
	s := newStagedCopy(t, newDirectPlatform(t, server, d, Options{}), sparseVM(8<<20))
	s.copyRound()
	s.must(s.target.Prepare(t.Context(), s.def))
	if len(server.Volumes()) != 1 {
		t.Fatalf("got volumes %v, want one", server.Volumes())
	}
	s.must(newPlatform(t, server, Options{}).Withdraw(t.Context(), s.def.VM))
	checkGone(t, server)
}

// If the user removes decamp's mark from a guest, Withdraw keeps the guest with its disks.
func TestWithdrawKeepsUnmarkedGuest(t *testing.T) {
	t.Parallel()
	server, d := startSSHServer(t, configWithStorages(pve.Storage{ID: "tank", Type: "lvmthin"}))
	p := newDirectPlatform(t, server, d, Options{Storage: "tank"})
	s := newStagedCopy(t, p, sparseVM(4<<20))
	s.fillRandom(7, 1)
	s.copyRound()
	s.finish()
	s.must(s.target.Publish(t.Context(), s.def))
	vmid, config := guestOf(t, server, s.def.VM)
	config["description"] = "mine now"
	server.AddGuest(vmid, config)
	s.must(p.Withdraw(t.Context(), s.def.VM))
	if server.Guest(vmid) == nil || len(server.Volumes()) != 1 {
		t.Errorf("got guests %v and volumes %v, want one of each", server.VMIDs(), server.Volumes())
	}
	s.checkDisk(server)
}

// A delivery whose connection breaks several times resumes from its record, so that little is sent twice.
func TestDirectDeliveryResumesAfterBrokenConnection(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	server, d := startSSHServer(t, configWithStorages(pve.Storage{ID: "tank", Type: "lvmthin"}))
	p := newDirectPlatform(t, server, d, Options{Storage: "tank"})
	filled, breaks := int64(100), int64(1)
	if lane.Slow {
		filled, breaks = 300, 3
	}
	s := newStagedCopy(t, p, sparseVM((filled+4)<<20))
	for c := range filled {
		s.fillRandom(byte(c), c)
	}
	s.copyRound()
	s.finish()
	d.Cut(80<<20, int(breaks)) // after a batch is recorded
	s.must(s.target.Publish(t.Context(), s.def))
	if sent := d.Sent(); sent < filled<<20 || sent > (filled+breaks*(batchData+8))<<20 {
		t.Errorf("%d MiB were sent for %d MiB of data", sent>>20, filled)
	}
	s.checkDisk(server)
}

// A delivery resumes only from its record. If its volume was replaced, it starts from the beginning.
func TestDirectDeliveryRestartsIfVolumeIsReplaced(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	server, d := startSSHServer(t, configWithStorages(pve.Storage{ID: "tank", Type: "lvm"}))
	p := newDirectPlatform(t, server, d, Options{Storage: "tank"})
	s := newStagedCopy(t, p, sparseVM(16<<20))
	s.fillRandom(8, 1, 2, 3)
	s.copyRound()
	s.must(s.target.Prepare(t.Context(), s.def))
	was := server.Volumes()
	for _, path := range was { // all volumes are gone
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	s.must(s.target.Prepare(t.Context(), s.def))
	if now := server.Volumes(); len(now) != 1 || slices.Equal(now, was) {
		t.Errorf("got volumes %v, before %v", now, was)
	}
	s.finish()
	s.must(s.target.Publish(t.Context(), s.def))
	s.checkDisk(server)
	if _, err := os.Lstat(recordOf(s.def.Images[0])); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the record still exists: %v", err)
	}
}

// If the node cannot be reached or cannot write, the error has its kind and a hint. Publish leaves nothing behind.
func TestDirectFailures(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	tests := []struct {
		name    string
		spoil   func(*testing.T, *pve.Server, *pve.SSH, *Platform)
		kind    fault.Kind
		message string
		late    bool // Check does not detect it
	}{
		{"another key", func(t *testing.T, _ *pve.Server, d *pve.SSH, p *Platform) { p.setLogin(t, d.OtherKey, d.KnownHosts) }, fault.Denied, "Permission denied", false},
		{"an unknown host", func(t *testing.T, _ *pve.Server, d *pve.SSH, p *Platform) { p.setLogin(t, d.Key, "/dev/null") }, fault.Denied, "Host key verification failed", false},
		{"a changed host key", func(t *testing.T, _ *pve.Server, d *pve.SSH, p *Platform) { p.setLogin(t, d.Key, d.ChangedKey) }, fault.Denied, "the host key differs", false},
		{"no qemu-nbd", func(t *testing.T, _ *pve.Server, d *pve.SSH, _ *Platform) { removeTool(t, d, "qemu-nbd") }, fault.Unsupported, "no qemu-nbd", false},
		{"no pvesm", func(t *testing.T, _ *pve.Server, d *pve.SSH, _ *Platform) { removeTool(t, d, "pvesm") }, fault.Unsupported, "no pvesm", false},
		{"no perl", func(t *testing.T, _ *pve.Server, d *pve.SSH, _ *Platform) { removeTool(t, d, "perl") }, fault.Unsupported, "perl", false},
		{"another node", func(t *testing.T, _ *pve.Server, d *pve.SSH, _ *Platform) { replaceTool(t, d, "uname", "echo pve2") }, fault.Invalid, "ssh= connects to pve2", false},
		{"a node without room", func(t *testing.T, _ *pve.Server, d *pve.SSH, _ *Platform) { injectError(t, d, 28, "pwritev") }, fault.Full, "no room", true},
		{"a disk that fails", func(t *testing.T, _ *pve.Server, d *pve.SSH, _ *Platform) { injectError(t, d, 5, "pwritev") }, fault.Corrupt, "disk of the node", true},
		{"a disk that holds something else", func(t *testing.T, _ *pve.Server, d *pve.SSH, _ *Platform) {
			replaceTool(t, d, "dd", "exec /usr/bin/head -c 4194304 /dev/urandom")
		}, fault.Corrupt, "differs from the written data", true},
		{"a disk that cannot be read", func(t *testing.T, _ *pve.Server, d *pve.SSH, _ *Platform) { replaceTool(t, d, "dd", "exit 1") }, fault.Corrupt, "cannot be read", true},
		{"a pvesm that fails", func(t *testing.T, _ *pve.Server, d *pve.SSH, _ *Platform) { replaceTool(t, d, "pvesm", "exit 2") }, fault.NotFound, "does not have the volume", true},
		{"a volume that is not activated", func(t *testing.T, _ *pve.Server, d *pve.SSH, _ *Platform) {
			replaceTool(t, d, "pvesm", "echo /dev/vg/none")
		}, fault.Unsupported, "activate", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server, d := startSSHServer(t, configWithStorages(pve.Storage{ID: "tank", Type: "lvmthin"}))
			p := newDirectPlatform(t, server, d, Options{Storage: "tank"})
			s := newStagedCopy(t, p, sparseVM(4<<20))
			s.fillRandom(9, 0, 1)
			s.copyRound()
			s.finish()
			tt.spoil(t, server, d, p)
			checkError := func(what string, err error) {
				t.Helper()
				if !fault.Is(err, tt.kind) || fault.HintOf(err) == "" || !strings.Contains(fmt.Sprint(err), tt.message) {
					t.Errorf("%s: got %v (%v, hint %q), want %v", what, err, fault.KindOf(err), fault.HintOf(err), tt.kind)
				}
			}
			if err := p.Check(t.Context(), s.def.VM); !tt.late {
				checkError("check", err)
			} else if err != nil {
				t.Errorf("check: %v", err)
			}
			checkError("publish", s.target.Publish(t.Context(), s.def))
			checkGone(t, server)
		})
	}
}

// setLogin sets the key file and the known_hosts file of the platform.
func (p *Platform) setLogin(t *testing.T, key, known string) {
	t.Helper()
	p.opts.ssh.KeyFile, p.opts.ssh.KnownHosts = key, known
	p.shell.dial = p.opts.dialNode
}

func removeTool(t *testing.T, d *pve.SSH, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(d.Tools, name)); err != nil {
		t.Fatal(err)
	}
}

// replaceTool replaces a program of the node by a shell script.
func replaceTool(t *testing.T, d *pve.SSH, name, script string) {
	t.Helper()
	removeTool(t, d, name)
	executable.Write(t, filepath.Join(d.Tools, name), "#!/bin/sh\n"+script+"\n")
}

func injectError(t *testing.T, d *pve.SSH, errno int, event string) {
	t.Helper()
	if err := d.Fail(errno, event); err != nil {
		t.Fatal(err)
	}
}

// After a Publish that fails in the outage, the early delivery stays. The next try sends only the missing data.
func TestFailedOutageKeepsEarlyDelivery(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	t.Parallel()
	server, d := startSSHServer(t, configWithStorages(pve.Storage{ID: "tank", Type: "lvmthin"}))
	p := newDirectPlatform(t, server, d, Options{Storage: "tank"})
	s := newStagedCopy(t, p, sparseVM(32<<20))
	s.fillRandom(10, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
	s.copyRound()
	s.must(s.target.Prepare(t.Context(), s.def))
	s.fillRandom(11, 4)
	s.copyRound(4)
	s.finish()
	injectError(t, d, 28, "pwritev")
	if err := s.target.Publish(t.Context(), s.def); !fault.Is(err, fault.Full) {
		t.Fatalf("%v", err)
	}
	injectError(t, d, 0, "")
	before := d.Sent()
	s.must(s.target.Publish(t.Context(), s.def))
	if sent := d.Sent() - before; sent > 2<<20 {
		t.Errorf("%d bytes were sent, want at most 2 MiB", sent)
	}
	s.checkDisk(server)
}

// If a decamp program left on the node holds the volume, the next delivery ends it.
func TestLeftoverProgramOnNodeIsEnded(t *testing.T) {
	t.Parallel()
	server, d := startSSHServer(t, configWithStorages(pve.Storage{ID: "tank", Type: "lvmthin"}))
	p := newDirectPlatform(t, server, d, Options{Storage: "tank"})
	s := newStagedCopy(t, p, sparseVM(4<<20))
	s.fillRandom(12, 1)
	s.copyRound()
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
		t.Error("the leftover process still holds the volume")
	}
	s.checkDisk(server)
}

// A qemu-nbd that ignores SIGTERM is killed, so that the next one can open the volume.
func TestHangingQemuNBDIsKilled(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	server, d := startSSHServer(t, configWithStorages(pve.Storage{ID: "tank", Type: "lvmthin"}))
	p := newDirectPlatform(t, server, d, Options{Storage: "tank"})
	s := newStagedCopy(t, p, sparseVM(4<<20))
	s.copyRound()
	s.must(s.target.Prepare(t.Context(), s.def))
	volumes, err := p.volumes.listOwn(t.Context(), s.def.VM, "tank")
	s.must(err)
	real, err := exec.LookPath("qemu-nbd")
	s.must(err)
	replaceTool(t, d, "qemu-nbd", "trap '' TERM\n/bin/sh -c 'LISTEN_PID=$$ exec "+real+" \"$@\"' sh \"$@\"\nexec /bin/sleep 600")
	for range 2 {
		volume, err := p.shell.openVolume(t.Context(), volumes[0].ID)
		s.must(err)
		s.must(volume.Close())
	}
}
