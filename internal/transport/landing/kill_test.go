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

// doomedEnv holds the doomed run of a process that this binary is started as.
const doomedEnv = "DECAMP_TEST_DOOMED"

func TestMain(m *testing.M) {
	if text := os.Getenv(doomedEnv); text != "" {
		fmt.Fprintln(os.Stderr, "it lived:", runDoomed(text))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// doomed is one landing that is killed at a point of its life.
type doomed struct {
	Point       string
	Addr        string
	User        string
	Password    string
	Fingerprint string
	Dir         string // of the landing
	State       string
	Ports       nfs.Ports
	Image       string
}

// The points, in order. A real process is killed at each of them.
var points = []string{"before mount", "after mount", "in copy", "after copy", "before unmount", "after unmount"}

// doomedHost kills the process at the point.
type doomedHost struct {
	landing.Host
	point string
}

func (h doomedHost) at(point string) {
	if h.point == point {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

func (h doomedHost) MountNAS(ctx context.Context, host inventory.MoRef, n esx.NAS) (string, bool, error) {
	h.at("before mount")
	name, fresh, err := h.Host.MountNAS(ctx, host, n)
	h.at("after mount")
	return name, fresh, err
}

func (h doomedHost) CopyDisk(ctx context.Context, c esx.DiskCopy) error {
	report := c.Progress
	c.Progress = func(percent int) {
		report(percent)
		if percent > 0 { // it has files open
			h.at("in copy")
		}
	}
	err := h.Host.CopyDisk(ctx, c)
	h.at("after copy")
	return err
}

func (h doomedHost) UnmountNAS(ctx context.Context, host inventory.MoRef, n esx.NAS) error {
	h.at("before unmount")
	err := h.Host.UnmountNAS(ctx, host, n)
	h.at("after unmount")
	return err
}

func runDoomed(text string) error {
	var d doomed
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		return err
	}
	ctx := context.Background()
	s, err := esx.Dial(ctx, esx.Config{
		URL:         &url.URL{Scheme: "esxi", User: url.User(d.User), Host: d.Addr},
		Password:    func(context.Context) (esx.Secret, error) { return esx.Secret(d.Password), nil },
		Fingerprint: d.Fingerprint, After: soon,
	})
	if err != nil {
		return err
	}
	vm, err := s.VM(ctx, "web 01")
	if err != nil {
		return err
	}
	t := landing.New(doomedHost{s, d.Point}, landing.Options{
		Dir: d.Dir, Ports: d.Ports, Memory: 64 << 20, Leftovers: cleanup.NewStore(d.State), Server: d.Addr,
	})
	_, job := jobOf(d.Image, &vm.Disks[0], image.Raw)
	_, _, err = job.Fill(ctx, func(ctx context.Context, c *image.Copying) error {
		_, err := t.Transfer(ctx, transport.Job{
			Disk: transport.Disk{VM: vm, Disk: &vm.Disks[0]}, Target: c.Target, Manifest: c.Log, ReadBack: job.Opener.ReadUnfinished,
		})
		return err
	})
	return errors.Join(err, t.Close())
}

// jobOf is the copy of a disk into the image at path.
func jobOf(path string, d *inventory.Disk, format image.Format) (image.File, image.Job) {
	f := image.File{Path: path, Format: format, Size: d.Capacity}
	return f, image.Job{Opener: f, Path: path, Manifest: path + ".manifest", Info: manifest.Info{Disk: "disk", Size: d.Capacity, Source: "test"}}
}

// Wherever a landing is killed, what it mounted is on record; and the next run of the same
// state folder ends with the right image, no datastore, and no record.
func TestKilledAnywhereNothingIsLeft(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	for _, point := range points {
		t.Run(point, func(t *testing.T) {
			size := int64(8 << 20)
			if point == "in copy" { // it stands still until it is seen
				size = 256 << 20
			}
			r := newRig(t, lab.Disk{Capacity: lab.Bytes(size), Fill: 100, Seed: 6})
			if point == "in copy" {
				_, err := r.lab.Faults().Add(lab.Fault{Kind: lab.FaultCloneStall, Path: "disk.vmdk", At: 64 << 20, Count: 1})
				r.must(err)
				t.Cleanup(r.lab.Faults().Release)
			}
			path := filepath.Join(t.TempDir(), "disk.raw")
			r.kill(point, path)
			r.lab.Faults().Release()

			left, err := r.leftovers().List()
			r.must(err)
			if len(left) != 1 {
				t.Errorf("on record: %+v", left)
			}
			if r.mounted() != (point != "before mount" && point != "after unmount") {
				t.Errorf("the host has it mounted: %v", r.mounted())
			}
			r.putBack() // what a held file keeps, the end of the run takes off

			tr := r.landing()
			r.same(r.landAt(tr, path), 0)
			r.must(tr.Close())
			if r.mounted() {
				t.Error("the datastore is left behind")
			}
			if left, err := r.leftovers().List(); err != nil || len(left) > 0 {
				t.Errorf("still on record: %+v, %v", left, err)
			}
		})
	}
}

// kill runs a landing in a process of its own, which is killed at the point.
func (r *rig) kill(point, path string) {
	r.Helper()
	text, err := json.Marshal(doomed{
		Point: point, Addr: r.lab.Addr(), User: r.lab.User(), Password: r.lab.Password(), Fingerprint: r.lab.Fingerprint(),
		Dir: r.dir, State: r.state, Ports: r.ports, Image: path,
	})
	r.must(err)
	cmd := exec.CommandContext(r.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), doomedEnv+"="+string(text))
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		r.Fatalf("it was not killed: %v\n%s", err, out)
	}
}

// putBack does what the next run begins with.
func (r *rig) putBack() {
	r.Helper()
	_, err := r.leftovers().Restore(r.Context(), r.lab.Addr(), map[cleanup.Kind]cleanup.Undo{
		cleanup.NFSDatastore: func(ctx context.Context, rec cleanup.Record) error {
			return r.session.UnmountNAS(ctx, rec.Host, landing.Recorded(rec))
		},
	})
	r.Log("put back:", err)
}
