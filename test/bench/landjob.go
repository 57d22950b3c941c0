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
	Lab     labFacts `json:"lab"`
	Scheme  string   `json:"scheme"`
	VMs     []string `json:"vms"` // the first disk of each lands
	Dir     string   `json:"dir"`
	Portmap string   `json:"portmap"`
}

// landedDisks is what childLand did.
type landedDisks struct {
	measurement
	Written  int64   `json:"written"`  // bytes given to images
	Blocks   int64   `json:"blocks"`   // bytes that the images occupy
	Fair     float64 `json:"fair"`     // least share of the most, while all ran
	Together float64 `json:"together"` // seconds of that
}

// childLand lands disks with decamp's own code, as `decamp migrate --transport landing` does.
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
	l.done.Fair, l.done.Together = fairnessOf(l.samples)
	return json.NewEncoder(os.Stdout).Encode(l.done)
}

// lands is disks that land.
type landRun struct {
	job       landJob
	transport *landing.Transport
	began     time.Time

	mu      sync.Mutex
	samples [][]sample // samples of each disk
	done    landedDisks
}

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
	for _, vm := range vms {
		l.done.Bytes += vm.Disks[0].Capacity
	}
	return err
}

func (l *landRun) copyOne(ctx context.Context, i int, vm *inventory.VM) error {
	d := &vm.Disks[0]
	f := image.File{Path: filepath.Join(l.job.Dir, vm.Name+".raw"), Format: image.Raw, Size: d.Capacity}
	job := image.Job{Place: f, Path: f.Path, Manifest: f.Path + ".manifest", Info: manifest.Info{Disk: vm.Name, Size: d.Capacity}}
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

// recordSample notes how far a copy is, once something of it has come.
func (l *landRun) recordSample(i int, got int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if got > 0 {
		l.samples[i] = append(l.samples[i], sample{time.Since(l.began).Seconds(), float64(got)})
	}
}
