package landing_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/decamp/decamp/internal/cleanup"
	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/image"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/nfs"
	"github.com/decamp/decamp/internal/transport"
	"github.com/decamp/decamp/internal/transport/landing"
)

// victimEnv is the environment variable that holds the victimConfig in JSON. If it is set, the test binary
// is the victim.
const victimEnv = "DECAMP_TEST_DOOMED"

func TestMain(m *testing.M) {
	if text := os.Getenv(victimEnv); text != "" {
		fmt.Fprintln(os.Stderr, "the victim was not killed:", runVictim(text))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// victimConfig describes a landing whose process is killed at a point.
type victimConfig struct {
	Point       string
	Addr        string
	User        string
	Password    string
	Fingerprint string
	Dir         string // folder of the landing
	State       string
	Ports       nfs.Ports
	Image       string
}

// killPoints are the points at which the process is killed, in order.
var killPoints = []string{"before mount", "after mount", "in copy", "after copy", "before unmount", "after unmount"}

// killingHost is a landing.Host that kills the process at a point.
type killingHost struct {
	landing.Host
	point string
}

func (h killingHost) killAt(point string) {
	if h.point == point {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

func (h killingHost) MountNAS(ctx context.Context, host inventory.MoRef, n esx.NAS) (string, bool, error) {
	h.killAt("before mount")
	name, fresh, err := h.Host.MountNAS(ctx, host, n)
	h.killAt("after mount")
	return name, fresh, err
}

func (h killingHost) CopyDisk(ctx context.Context, c esx.DiskCopy) error {
	report := c.Progress
	c.Progress = func(percent int) {
		report(percent)
		if percent > 0 { // the host has files open
			h.killAt("in copy")
		}
	}
	err := h.Host.CopyDisk(ctx, c)
	h.killAt("after copy")
	return err
}

func (h killingHost) UnmountNAS(ctx context.Context, host inventory.MoRef, n esx.NAS) error {
	h.killAt("before unmount")
	err := h.Host.UnmountNAS(ctx, host, n)
	h.killAt("after unmount")
	return err
}

func runVictim(text string) error {
	var d victimConfig
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		return err
	}
	ctx := context.Background()
	s, err := esx.Dial(ctx, esx.Config{
		URL:         &url.URL{Scheme: "esxi", User: url.User(d.User), Host: d.Addr},
		Password:    func(context.Context) (esx.Secret, error) { return esx.Secret(d.Password), nil },
		Fingerprint: d.Fingerprint, After: fastAfter,
	})
	if err != nil {
		return err
	}
	vm, err := s.VM(ctx, "web 01")
	if err != nil {
		return err
	}
	t := landing.New(killingHost{s, d.Point}, landing.Options{
		Dir: d.Dir, Ports: d.Ports, Memory: 64 << 20, Leftovers: cleanup.NewStore(d.State), Server: d.Addr,
	})
	_, job := newImageJob(d.Image, &vm.Disks[0], image.Raw)
	_, _, err = job.Fill(ctx, func(ctx context.Context, c *image.Copying) error {
		_, err := t.Transfer(ctx, transport.Job{
			Disk: transport.Disk{VM: vm, Disk: &vm.Disks[0]}, Target: c.Target, Manifest: c.Log, ReadBack: job.Opener.ReadUnfinished,
		})
		return err
	})
	return errors.Join(err, t.Close())
}

// newImageJob returns the job that copies a disk into the image at path.
func newImageJob(path string, d *inventory.Disk, format image.Format) (image.File, image.Job) {
	f := image.File{Path: path, Format: format, Size: d.Capacity}
	return f, image.Job{Opener: f, Path: path, Manifest: path + ".manifest", Info: manifest.Info{Disk: "disk", Size: d.Capacity, Source: "test"}}
}

// If a landing is killed at any point, its mount is recorded. The next run with the same state folder leaves
// the correct image, no datastore and no record.
func TestLandingKilledAtAnyPointIsCleanedUp(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	for _, point := range killPoints {
		t.Run(point, func(t *testing.T) {
			size := int64(8 << 20)
			if point == "in copy" { // large, and stalled until the kill
				size = 256 << 20
			}
			r := newRig(t, lab.Disk{Capacity: lab.Bytes(size), Fill: 100, Seed: 6})
			if point == "in copy" {
				_, err := r.lab.Faults().Add(lab.Fault{Kind: lab.FaultCloneStall, Path: "disk.vmdk", At: 64 << 20, Count: 1})
				r.must(err)
				t.Cleanup(r.lab.Faults().Release)
			}
			path := filepath.Join(t.TempDir(), "disk.raw")
			r.runKilled(point, path)
			r.lab.Faults().Release()

			left, err := r.leftovers().List()
			r.must(err)
			if len(left) != 1 {
				t.Errorf("records %+v, want one", left)
			}
			if r.hasDatastore() != (point != "before mount" && point != "after unmount") {
				t.Errorf("the datastore is mounted: %v, which is wrong at this point", r.hasDatastore())
			}
			r.undoLeftovers() // a mount with open files stays until the end of the run

			tr := r.newLanding()
			r.requireSameContent(r.landAt(tr, path), 0)
			r.must(tr.Close())
			if r.hasDatastore() {
				t.Error("the datastore is still mounted")
			}
			if left, err := r.leftovers().List(); err != nil || len(left) > 0 {
				t.Errorf("records %+v, %v, want none", left, err)
			}
		})
	}
}

// runKilled runs a landing in a separate process, which is killed at the point.
func (r *rig) runKilled(point, path string) {
	r.Helper()
	text, err := json.Marshal(victimConfig{
		Point: point, Addr: r.lab.Addr(), User: r.lab.User(), Password: r.lab.Password(), Fingerprint: r.lab.Fingerprint(),
		Dir: r.dir, State: r.state, Ports: r.ports, Image: path,
	})
	r.must(err)
	cmd := exec.CommandContext(r.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), victimEnv+"="+string(text))
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		r.Fatalf("the process was not killed: %v\n%s", err, out)
	}
}

// undoLeftovers removes recorded mounts, as each run does at its start.
func (r *rig) undoLeftovers() {
	r.Helper()
	_, err := r.leftovers().Restore(r.Context(), r.lab.Addr(), map[cleanup.Kind]cleanup.Undo{
		cleanup.NFSDatastore: func(ctx context.Context, rec cleanup.Record) error {
			return r.session.UnmountNAS(ctx, rec.Host, landing.Recorded(rec))
		},
	})
	r.Log("restore:", err)
}
