package nfs

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/image"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/nfs"
	"github.com/decamp/decamp/internal/transport"
	"github.com/decamp/decamp/internal/transport/landing"
)

// victimEnv has a victim's orders in JSON: the test binary that finds it is a process that
// lands one disk, as decamp migrate does, until it has or is killed.
const victimEnv = "NFS_VICTIM"

// orders are what a victim does.
type orders struct {
	Dir     string // of image and manifest
	Names   string // folder of the landing, which has no disks in it
	Format  image.Format
	Size    int64
	Address string
	Death   death
	Rate    int64 // bytes a second that its disk takes; 0: as many as come
}

// death is when the victim kills itself: at its target's operation number At, counted from
// 1. None for 0.
type death struct {
	At   int
	When moment
}

// moment is when within an operation.
type moment int

const (
	before moment = iota
	halfway
	after
	moments
)

// A message goes over the victim's pipes. The victim asks, in the host's words; the host
// answers each with nothing but Err.
type message struct {
	Mount  *esx.NAS `json:",omitempty"`
	Copy   string   `json:",omitempty"` // descriptor
	Leave  bool     `json:",omitempty"`
	Landed bool     `json:",omitempty"` // the disk is complete; nothing is asked
	Err    string   `json:",omitempty"`
}

func beVictim() error {
	var o orders
	if err := json.Unmarshal([]byte(os.Getenv(victimEnv)), &o); err != nil {
		return err
	}
	h := &pipedHost{in: json.NewDecoder(bufio.NewReader(os.Stdin)), out: json.NewEncoder(os.Stdout)}
	d := &doomed{death: o.Death}
	target := d.dooms
	if o.Rate > 0 {
		target = func(t disk.Target) disk.Target { return &crawling{Target: t, rate: o.Rate} }
	}
	if err := o.land(context.Background(), o.job(), h, target); err != nil {
		return err
	}
	return h.out.Encode(message{Landed: true})
}

// job is the image that the victim fills.
func (o orders) job() image.Job {
	f := image.File{Path: filepath.Join(o.Dir, "disk.img"), Format: o.Format, Size: o.Size}
	return image.Job{Opener: f, Path: f.Path, Manifest: f.Path + ".manifest", Info: info(o.Size)}
}

func info(size int64) manifest.Info { return manifest.Info{Disk: "2000", Size: size, Source: "test"} }

// landingMemory is the budget of a landing.
const landingMemory = 32 << 20

// checkpointEvery is how many bytes are written until they are made safe: few, or nothing
// would be by the time the server dies.
const checkpointEvery = 512 << 10

// land lands a disk as decamp migrate does. target may replace the image's.
func (o orders) land(ctx context.Context, job image.Job, h landing.Host, target func(disk.Target) disk.Target) error {
	t := o.transport(h)
	_, _, err := job.Fill(ctx, func(ctx context.Context, c *image.Copying) error {
		return o.transfer(ctx, t, transport.Job{Target: target(c.Target), Manifest: c.Log, ReadBack: job.Opener.ReadUnfinished})
	})
	return errors.Join(err, t.Close())
}

func (o orders) transport(h landing.Host) *landing.Transport {
	return landing.New(h, landing.Options{
		Dir:             filepath.Join(o.Names, "landing"),
		Advertise:       netip.MustParseAddr(o.Address),
		Ports:           nfs.Ports{NFS: o.Address + ":" + nfsPort, Portmap: o.Address + ":" + portmapPort},
		Memory:          landingMemory,
		CheckpointBytes: checkpointEvery,
	})
}

func (o orders) transfer(ctx context.Context, t *landing.Transport, job transport.Job) error {
	job.Disk = transport.Disk{
		VM:   &inventory.VM{Name: "web01", Host: "ha-host"},
		Disk: &inventory.Disk{Path: inventory.Path{Datastore: "datastore1", File: "web01/web01.vmdk"}, Capacity: o.Size},
	}
	_, err := t.Transfer(ctx, job)
	return err
}

// pipedHost is the host at the other end of the victim's pipes.
type pipedHost struct {
	mu  sync.Mutex
	in  *json.Decoder
	out *json.Encoder
}

func (h *pipedHost) ask(m message) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.out.Encode(m); err != nil {
		return err
	}
	var answer message
	if err := h.in.Decode(&answer); err != nil {
		return err
	}
	if answer.Err != "" {
		return errors.New(answer.Err)
	}
	return nil
}

func (h *pipedHost) MountNAS(_ context.Context, _ inventory.MoRef, n esx.NAS) (string, bool, error) {
	return n.Name, true, h.ask(message{Mount: &n})
}

func (h *pipedHost) UnmountNAS(context.Context, inventory.MoRef, esx.NAS) error {
	return h.ask(message{Leave: true})
}

func (h *pipedHost) CopyDisk(_ context.Context, c esx.DiskCopy) error {
	return h.ask(message{Copy: c.To.File})
}

func (h *pipedHost) SnapshotDisk(context.Context, inventory.MoRef, int32) (inventory.Path, error) {
	return inventory.Path{}, errors.New("the host has no snapshot")
}

func (h *pipedHost) HostAddresses(context.Context, inventory.MoRef) ([]netip.Addr, error) {
	return loopback, nil
}

// doomed is a Target whose process kills itself.
type doomed struct {
	disk.Target
	death

	mu    sync.Mutex
	count int
}

func (d *doomed) dooms(t disk.Target) disk.Target {
	d.Target = t
	return d
}

// now returns the moment of the operation that begins at which to die; moments for none.
func (d *doomed) now() moment {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.count++
	if d.count != d.At {
		return moments
	}
	return d.When
}

func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // nothing is left to see its error
}

func (d *doomed) WriteAt(ctx context.Context, p []byte, off int64) error {
	when := d.now()
	if when == halfway {
		half := len(p) / 2 / disk.SectorSize * disk.SectorSize
		if err := d.Target.WriteAt(ctx, p[:half], off); err != nil {
			return err
		}
	}
	return d.around(when, func() error { return d.Target.WriteAt(ctx, p, off) })
}

func (d *doomed) Zero(ctx context.Context, r disk.Range) error {
	return d.around(d.now(), func() error { return d.Target.Zero(ctx, r) })
}

func (d *doomed) Sync(ctx context.Context) error {
	return d.around(d.now(), func() error { return d.Target.Sync(ctx) })
}

func (d *doomed) around(when moment, do func() error) error {
	if when == before || when == halfway {
		die()
	}
	err := do()
	if when == after {
		die()
	}
	return err
}

// victim is a process that lands a disk for a host of this one.
type victim struct {
	*testing.T
	host *esxi
	cmd  *exec.Cmd
	most int64 // bytes of memory it has had, when it left its host
	in   *json.Encoder
	out  chan message // what it says; closed when it has ended
	errs *os.File
}

// start starts a victim.
func start(t *testing.T, h *esxi, o orders) *victim {
	t.Helper()
	text, err := json.Marshal(o)
	must(t, err)
	v := &victim{T: t, host: h, cmd: exec.Command(os.Args[0])}
	v.cmd.Env = append(os.Environ(), victimEnv+"="+string(text))
	v.errs, err = os.CreateTemp(t.TempDir(), "stderr")
	must(t, err)
	v.cmd.Stderr = v.errs
	in, err := v.cmd.StdinPipe()
	must(t, err)
	out, err := v.cmd.StdoutPipe()
	must(t, err)
	v.in, v.out = json.NewEncoder(in), make(chan message)
	must(t, v.cmd.Start())
	go v.listen(json.NewDecoder(out))
	return v
}

// listen ends with the victim, or with its first word that makes no sense.
func (v *victim) listen(out *json.Decoder) {
	defer close(v.out)
	for {
		var m message
		if out.Decode(&m) != nil {
			return // the exit status says why
		}
		v.out <- m
	}
}

// kill kills it as kill -9 does.
func (v *victim) kill() { _ = v.cmd.Process.Kill() } // it may have ended

// serve answers the victim's calls of its host until it ends. It returns whether it was
// killed, and otherwise nil if the disk landed.
func (v *victim) serve() (killed bool, err error) {
	landed := false
	for m := range v.out {
		if m.Landed {
			landed = true
			continue
		}
		_ = v.in.Encode(v.answer(m)) // it may be dead
	}
	err = v.cmd.Wait()
	told, readErr := os.ReadFile(v.errs.Name())
	must(v.T, errors.Join(readErr, v.errs.Close()))
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signaled():
		return true, nil
	case err != nil:
		return false, fmt.Errorf("%w: %s", err, told)
	case !landed:
		return false, io.ErrUnexpectedEOF
	}
	return false, nil
}

func (v *victim) answer(m message) (answer message) {
	var err error
	ctx := context.Background()
	switch {
	case m.Mount != nil:
		err = v.host.mount(ctx, m.Mount.Server, m.Mount.Path)
	case m.Leave:
		v.most = v.memory()
		err = v.host.unmount(ctx)
	case m.Copy != "":
		err = v.follow(v.host.begin(m.Copy))
	}
	if err != nil {
		answer.Err = err.Error()
	}
	return answer
}

// follow waits for a copy, or for the victim's death: then the copy goes on by itself. A
// victim says nothing while it waits.
func (v *victim) follow(c *copying) error {
	select {
	case <-c.ended:
		return c.err
	case <-v.out:
		return errors.New("nobody waits for the copy any more")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
