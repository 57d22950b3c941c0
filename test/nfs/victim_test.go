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

// victimEnv is the environment variable that holds the orders of a victim in JSON. If it is set, the test
// binary lands one disk as decamp migrate does, until the disk has landed or the process is killed.
const victimEnv = "NFS_VICTIM"

// victimOrders are the instructions for a victim.
type victimOrders struct {
	Dir     string // folder of image and manifest
	Names   string // folder of the landing; it holds no disk content
	Format  image.Format
	Size    int64
	Address string
	Death   killPoint
	Rate    int64 // bytes per second that the image accepts; 0: no limit
}

// killPoint is the point at which the victim kills itself: in operation number At of its target,
// counted from 1. The zero value is never.
type killPoint struct {
	At   int
	When killMoment
}

// killMoment is a moment relative to an operation.
type killMoment int

const (
	beforeOp killMoment = iota
	halfwayOp
	afterOp
	momentCount
)

// A message is sent over the pipes of a victim. The victim sends the calls of its host; each response
// has only Err.
type message struct {
	Mount  *esx.NAS `json:",omitempty"`
	Copy   string   `json:",omitempty"` // descriptor
	Leave  bool     `json:",omitempty"` // unmount
	Landed bool     `json:",omitempty"` // the disk is complete; no response follows
	Err    string   `json:",omitempty"`
}

func victimMain() error {
	var o victimOrders
	if err := json.Unmarshal([]byte(os.Getenv(victimEnv)), &o); err != nil {
		return err
	}
	h := &pipedHost{in: json.NewDecoder(bufio.NewReader(os.Stdin)), out: json.NewEncoder(os.Stdout)}
	d := &killingTarget{killPoint: o.Death}
	target := d.wrap
	if o.Rate > 0 {
		target = func(t disk.Target) disk.Target { return &slowTarget{Target: t, rate: o.Rate} }
	}
	if err := o.landDisk(context.Background(), o.imageJob(), h, target); err != nil {
		return err
	}
	return h.out.Encode(message{Landed: true})
}

// imageJob returns the image job of the victim.
func (o victimOrders) imageJob() image.Job {
	f := image.File{Path: filepath.Join(o.Dir, "disk.img"), Format: o.Format, Size: o.Size}
	return image.Job{Opener: f, Path: f.Path, Manifest: f.Path + ".manifest", Info: manifestInfo(o.Size)}
}

func manifestInfo(size int64) manifest.Info {
	return manifest.Info{Disk: "2000", Size: size, Source: "test"}
}

// landingMemory is the memory budget of a landing.
const landingMemory = 32 << 20

// checkpointEvery is the number of bytes between two checkpoints. It is small so that a checkpoint is
// complete before the server dies.
const checkpointEvery = 512 << 10

// landDisk lands a disk as decamp migrate does. target may wrap the target of the image.
func (o victimOrders) landDisk(ctx context.Context, job image.Job, h landing.Host, target func(disk.Target) disk.Target) error {
	t := o.newTransport(h)
	_, _, err := job.Fill(ctx, func(ctx context.Context, c *image.Copying) error {
		return o.transferDisk(ctx, t, transport.Job{Target: target(c.Target), Manifest: c.Log, ReadBack: job.Opener.ReadUnfinished})
	})
	return errors.Join(err, t.Close())
}

func (o victimOrders) newTransport(h landing.Host) *landing.Transport {
	return landing.New(h, landing.Options{
		Dir:             filepath.Join(o.Names, "landing"),
		Advertise:       netip.MustParseAddr(o.Address),
		Ports:           nfs.Ports{NFS: o.Address + ":" + nfsPort, Portmap: o.Address + ":" + portmapPort},
		Memory:          landingMemory,
		CheckpointBytes: checkpointEvery,
	})
}

func (o victimOrders) transferDisk(ctx context.Context, t *landing.Transport, job transport.Job) error {
	job.Disk = transport.Disk{
		VM:   &inventory.VM{Name: "web01", Host: "ha-host"},
		Disk: &inventory.Disk{Path: inventory.Path{Datastore: "datastore1", File: "web01/web01.vmdk"}, Capacity: o.Size},
	}
	_, err := t.Transfer(ctx, job)
	return err
}

// pipedHost is a landing.Host that sends each call to the test process over the pipes of the victim.
type pipedHost struct {
	mu  sync.Mutex
	in  *json.Decoder
	out *json.Encoder
}

func (h *pipedHost) callTestProcess(m message) error {
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
	return n.Name, true, h.callTestProcess(message{Mount: &n})
}

func (h *pipedHost) UnmountNAS(context.Context, inventory.MoRef, esx.NAS) error {
	return h.callTestProcess(message{Leave: true})
}

func (h *pipedHost) CopyDisk(_ context.Context, c esx.DiskCopy) error {
	return h.callTestProcess(message{Copy: c.To.File})
}

func (h *pipedHost) SnapshotDisk(context.Context, inventory.MoRef, int32) (inventory.Path, error) {
	return inventory.Path{}, errors.New("the host has no snapshot")
}

func (h *pipedHost) HostAddresses(context.Context, inventory.MoRef) ([]netip.Addr, error) {
	return loopback, nil
}

// killingTarget is a Target that kills its process at a killPoint.
type killingTarget struct {
	disk.Target
	killPoint

	mu    sync.Mutex
	count int
}

func (d *killingTarget) wrap(t disk.Target) disk.Target {
	d.Target = t
	return d
}

// nextMoment counts an operation and returns the moment at which it kills the process, or momentCount for none.
func (d *killingTarget) nextMoment() killMoment {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.count++
	if d.count != d.At {
		return momentCount
	}
	return d.When
}

func killSelf() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // the process ends here
}

func (d *killingTarget) WriteAt(ctx context.Context, p []byte, off int64) error {
	when := d.nextMoment()
	if when == halfwayOp {
		half := len(p) / 2 / disk.SectorSize * disk.SectorSize
		if err := d.Target.WriteAt(ctx, p[:half], off); err != nil {
			return err
		}
	}
	return d.runWithKill(when, func() error { return d.Target.WriteAt(ctx, p, off) })
}

func (d *killingTarget) Zero(ctx context.Context, r disk.Range) error {
	return d.runWithKill(d.nextMoment(), func() error { return d.Target.Zero(ctx, r) })
}

func (d *killingTarget) Sync(ctx context.Context) error {
	return d.runWithKill(d.nextMoment(), func() error { return d.Target.Sync(ctx) })
}

func (d *killingTarget) runWithKill(when killMoment, do func() error) error {
	if when == beforeOp || when == halfwayOp {
		killSelf()
	}
	err := do()
	if when == afterOp {
		killSelf()
	}
	return err
}

// victim is a process that lands a disk. Its host is in the test process.
type victim struct {
	*testing.T
	host       *esxi
	cmd        *exec.Cmd
	peakMemory int64 // peak memory in bytes, read at the unmount
	in         *json.Encoder
	messages   chan message // messages from the process; closed when it has ended
	stderr     *os.File
}

// startVictim starts a victim.
func startVictim(t *testing.T, h *esxi, o victimOrders) *victim {
	t.Helper()
	text, err := json.Marshal(o)
	must(t, err)
	v := &victim{T: t, host: h, cmd: exec.Command(os.Args[0])}
	v.cmd.Env = append(os.Environ(), victimEnv+"="+string(text))
	v.stderr, err = os.CreateTemp(t.TempDir(), "stderr")
	must(t, err)
	v.cmd.Stderr = v.stderr
	in, err := v.cmd.StdinPipe()
	must(t, err)
	out, err := v.cmd.StdoutPipe()
	must(t, err)
	v.in, v.messages = json.NewEncoder(in), make(chan message)
	must(t, v.cmd.Start())
	go v.readMessages(json.NewDecoder(out))
	return v
}

// readMessages forwards messages until the victim ends or a message cannot be decoded.
func (v *victim) readMessages(out *json.Decoder) {
	defer close(v.messages)
	for {
		var m message
		if out.Decode(&m) != nil {
			return // the exit status has the reason
		}
		v.messages <- m
	}
}

// kill kills the process as kill -9 does.
func (v *victim) kill() { _ = v.cmd.Process.Kill() } // fails if the process has ended

// serve handles the victim's calls of its host until the victim ends. It reports whether the victim was
// killed. If it was not, a nil error means that the disk landed.
func (v *victim) serve() (killed bool, err error) {
	landed := false
	for m := range v.messages {
		if m.Landed {
			landed = true
			continue
		}
		_ = v.in.Encode(v.handleCall(m)) // fails if the process is dead
	}
	err = v.cmd.Wait()
	output, readErr := os.ReadFile(v.stderr.Name())
	must(v.T, errors.Join(readErr, v.stderr.Close()))
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signaled():
		return true, nil
	case err != nil:
		return false, fmt.Errorf("%w: %s", err, output)
	case !landed:
		return false, io.ErrUnexpectedEOF
	}
	return false, nil
}

func (v *victim) handleCall(m message) (answer message) {
	var err error
	ctx := context.Background()
	switch {
	case m.Mount != nil:
		err = v.host.mount(ctx, m.Mount.Server, m.Mount.Path)
	case m.Leave:
		v.peakMemory = v.readPeakMemory()
		err = v.host.unmount(ctx)
	case m.Copy != "":
		err = v.awaitCopy(v.host.startCopy(m.Copy))
	}
	if err != nil {
		answer.Err = err.Error()
	}
	return answer
}

// awaitCopy waits until the copy ends or the victim dies. If the victim dies, the copy continues. A waiting
// victim sends no message, so a receive from messages means that it has ended.
func (v *victim) awaitCopy(c *runningCopy) error {
	select {
	case <-c.ended:
		return c.err
	case <-v.messages:
		return errors.New("the victim died during the copy")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
