package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/blockcopy"
	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/image"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/nfs"
	"github.com/decamp/decamp/internal/transport"
	"github.com/decamp/decamp/internal/transport/landing"
)

// landJob is the input of childLand.
type landJob struct {
	Lab     labFacts `json:"lab"`     // emulated host or vCenter
	Scheme  string   `json:"scheme"`  // esxi or vcenter
	VMs     []string `json:"vms"`     // VMs whose first disk is copied
	Dir     string   `json:"dir"`     // folder for images
	Portmap string   `json:"portmap"` // address of the port mapper
}

// landedDisks is the result of childLand.
type landedDisks struct {
	measurement
	Written  int64   `json:"written"`  // bytes written to images
	Blocks   int64   `json:"blocks"`   // bytes allocated by the images
	Fair     float64 `json:"fair"`     // smallest progress divided by the largest, while all copies ran
	Together float64 `json:"together"` // seconds in which all copies ran
}

// childLand copies disks to a landing with decamp's code, in the way of decamp migrate
// --transport landing.
func childLand(ctx context.Context, args []string) error {
	l := &landRun{began: time.Now()}
	if err := json.Unmarshal([]byte(args[0]), &l.job); err != nil {
		return err
	}
	host, err := l.job.Lab.logIn(ctx, l.job.Scheme)
	if err != nil {
		return err
	}
	defer host.Close()
	l.transport = landing.New(host, landing.Options{
		Dir: filepath.Join(l.job.Dir, "names"), Ports: nfs.Ports{NFS: "127.0.0.1:0", Portmap: l.job.Portmap},
	})
	if err := l.copyAll(ctx, host); err != nil {
		return err
	}
	l.done.Peak = peakResident()
	// All copies have ended, so the lock is not needed.
	l.done.Fair, l.done.Together = fairnessOf(l.samples)
	return json.NewEncoder(os.Stdout).Encode(l.done)
}

// landRun is a set of disks that are copied to a landing.
type landRun struct {
	job       landJob            // input of the role
	transport *landing.Transport // landing for all disks
	began     time.Time          // time of the start, for samples

	mu      sync.Mutex  // protects the fields below
	samples [][]sample  // samples of each disk
	done    landedDisks // result so far
}

// copyAll copies the first disk of each VM concurrently.
func (l *landRun) copyAll(ctx context.Context, host *esx.Session) (err error) {
	var vms []*inventory.VM
	for _, name := range l.job.VMs {
		vm, err := host.VM(ctx, name)
		if err != nil {
			return err
		}
		vms = append(vms, vm)
	}
	l.samples = make([][]sample, len(vms))
	l.done.measurement, err = timeWork(func() error {
		group, ctx := errgroup.WithContext(ctx)
		for i, vm := range vms {
			group.Go(func() error { return l.copyOne(ctx, i, vm) })
		}
		return group.Wait()
	})
	if err == nil {
		err = l.transport.Close()
	}
	// The figure counts provisioned bytes, which the host reads.
	for _, vm := range vms {
		l.done.Bytes += vm.Disks[0].Capacity
	}
	return err
}

// copyOne copies the first disk of VM i to an image.
func (l *landRun) copyOne(ctx context.Context, i int, vm *inventory.VM) error {
	d := &vm.Disks[0]
	f := image.File{Path: filepath.Join(l.job.Dir, vm.Name+".raw"), Format: image.Raw, Size: d.Capacity}
	job := image.Job{Opener: f, Path: f.Path, Manifest: f.Path + ".manifest", Info: manifest.Info{Disk: vm.Name, Size: d.Capacity}}
	var res blockcopy.Result
	_, _, err := job.Fill(ctx, func(ctx context.Context, c *image.Copying) (err error) {
		res, err = l.transport.Transfer(ctx, transport.Job{
			Disk: transport.Disk{VM: vm, Disk: d}, Target: c.Target, Manifest: c.Log, ReadBack: f.ReadUnfinished,
			Progress: func(p blockcopy.Progress) { l.recordSample(i, p.Read) },
		})
		return err
	})
	if err != nil {
		return err
	}
	info, err := os.Stat(f.Path)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done.Written += res.Written
	l.done.Blocks += info.Sys().(*syscall.Stat_t).Blocks * sectorSize
	return nil
}

const sectorSize = 512 // unit of st_blocks, in bytes

// recordSample records the progress of copy i, after its first bytes.
func (l *landRun) recordSample(i int, got int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if got > 0 {
		l.samples[i] = append(l.samples[i], sample{time.Since(l.began).Seconds(), float64(got)})
	}
}
