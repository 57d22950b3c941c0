package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/blockcopy"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/transport"
	"github.com/decamp/decamp/internal/transport/fanout"
)

const (
	fanSize = 2 << 30 // size of the disk in bytes
	fanRuns = 3       // number of runs; odd, because the median counts
)

// A destination is one target of a fan-out.
type destination struct {
	Name   string // name in the table
	Path   string // path of the image
	Format string // format of the image
	Rate   int64  // limit in bytes per second, for a disk that is slower than this machine's; 0 for none
}

// fanoutFigures copies a disk to three destinations at once, and to each of them alone:
// with disks of three speeds, and with the disks of this machine.
func fanoutFigures(ctx context.Context, b *bench) error {
	ram, err := os.MkdirTemp("/dev/shm", "decamp-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(ram)
	if err := fanoutFigure(ctx, b, "disks of 300, 400 and 500 MB/s", []destination{
		{Name: "raw on this disk", Path: filepath.Join(b.dir, "fan.raw"), Format: "raw", Rate: 300e6},
		{Name: "raw in tmpfs", Path: filepath.Join(ram, "fan.raw"), Format: "raw", Rate: 400e6},
		{Name: "qcow2 in tmpfs", Path: filepath.Join(ram, "fan.qcow2"), Format: "qcow2", Rate: 500e6},
	}); err != nil {
		return err
	}
	return fanoutFigure(ctx, b, "this disk, tmpfs, tmpfs", []destination{
		{Name: "raw on this disk", Path: filepath.Join(b.dir, "fan.raw"), Format: "raw"},
		{Name: "raw in tmpfs", Path: filepath.Join(ram, "fan.raw"), Format: "raw"},
		{Name: "qcow2 in tmpfs", Path: filepath.Join(ram, "fan.qcow2"), Format: "qcow2"},
	})
}

// fanoutFigure measures one set of destinations, together and alone in turn.
func fanoutFigure(ctx context.Context, b *bench, name string, places []destination) error {
	var all, cpu, wire []float64
	alone := make([][]float64, len(places))
	for range fanRuns {
		t, err := fanOut(ctx, places)
		if err != nil {
			return err
		}
		all, cpu, wire = append(all, t.rate()), append(cpu, t.cpuPerGiB()), append(wire, float64(t.Wire)/float64(t.Bytes))
		for i := range places {
			if t, err = fanOut(ctx, places[i:i+1]); err != nil {
				return err
			}
			alone[i] = append(alone[i], t.rate())
		}
	}
	slowest := median(alone[0])
	var peers []Peer
	for i, p := range places {
		slowest = min(slowest, median(alone[i]))
		peers = append(peers, Peer{Name: p.Name + " alone", Value: median(alone[i])})
	}
	b.atMost(1, Row{Figure: "fan-out to " + name + ": source read", Value: median(wire), Unit: "x"})
	b.addRow(Row{Figure: "fan-out to " + name, Value: median(all), Unit: "MB/s", Peers: peers,
		Note: fmt.Sprintf("%.2f CPU s/GiB of source; median of %d", median(cpu), fanRuns)})
	// The rate at which all processors would be busy limits the fan-out on a small
	// machine.
	busy := float64(b.machine.Cores) / median(cpu) * (1 << 30) / 1e6
	b.atLeast(0.85, Row{Figure: "fan-out to " + name + ", against the slowest alone", Value: median(all) / slowest, Unit: "x",
		Peers: []Peer{{Name: "with every processor busy all the time", Value: busy / slowest,
			Note: fmt.Sprintf("%d cores, %.2f CPU s/GiB of source: %.0f MB/s", b.machine.Cores, median(cpu), busy)}}})
	return nil
}

// fanOut runs childFan and removes the images.
func fanOut(ctx context.Context, places []destination) (t measurement, err error) {
	job, err := json.Marshal(places)
	if err != nil {
		return t, err
	}
	defer func() {
		for _, p := range places {
			err = errors.Join(err, os.Remove(p.Path))
		}
	}()
	return t, runChild(ctx, &t, "fan", string(job))
}

// childFan copies a Pattern to all destinations at once, with a manifest for each. Wire
// of the result is the number of bytes read.
func childFan(ctx context.Context, args []string) (t measurement, err error) {
	var places []destination
	if err := json.Unmarshal([]byte(args[0]), &places); err != nil {
		return t, err
	}
	src := &patternTransport{src: disk.NewPattern(fanSize)}
	group := fanout.New(src, len(places))
	t, err = timeWork(func() error {
		var g errgroup.Group
		for i, p := range places {
			g.Go(func() error { return p.copyDisk(ctx, group.Member(i)) })
		}
		return g.Wait()
	})
	t.Bytes, t.Wire = fanSize, src.read.Load()
	return t, err
}

// copyDisk copies the disk of a fan-out to the destination.
func (p destination) copyDisk(ctx context.Context, m *fanout.Member) (err error) {
	dst, err := createImage(p.Format, p.Path, fanSize)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	log, done, err := tempManifest(true, fanSize)
	if err != nil {
		return err
	}
	defer done()
	_, err = m.Transfer(ctx, transport.Job{
		Disk:   transport.Disk{VM: &inventory.VM{}, Disk: &inventory.Disk{Key: 2000}},
		Target: &slowTarget{Target: dst, rate: p.Rate}, Manifest: manifest.Ledger(log),
	})
	if err != nil {
		return err
	}
	return dst.Finish(ctx)
}

// patternTransport is a transport that reads a Pattern and counts its bytes.
type patternTransport struct {
	src  disk.Source  // source of all disks
	read atomic.Int64 // number of bytes read
}

// Name is part of transport.Transport.
func (*patternTransport) Name() string { return "pattern" }

// Close is part of transport.Transport.
func (*patternTransport) Close() error { return nil }

// Probe is part of transport.Transport.
func (*patternTransport) Probe(context.Context, transport.Disk) (transport.Offer, error) {
	return transport.Offer{Usable: true}, nil
}

// Transfer is part of transport.Transport.
func (t *patternTransport) Transfer(ctx context.Context, job transport.Job) (blockcopy.Result, error) {
	return transport.Pull(ctx, func(context.Context, transport.Disk) (disk.Source, error) { return countedPattern{t.src, t}, nil }, job)
}

// countedPattern is a source that counts the bytes of its transport.
type countedPattern struct {
	disk.Source
	t *patternTransport // transport with the counter
}

// ReadAt is part of disk.Source.
func (c countedPattern) ReadAt(ctx context.Context, p []byte, off int64) error {
	c.t.read.Add(int64(len(p)))
	return c.Source.ReadAt(ctx, p, off)
}

// slowTarget is a target with a limited rate that performs one write after the other.
type slowTarget struct {
	disk.Target
	rate int64 // bytes per second; 0 for no limit

	mu   sync.Mutex // protects free
	free time.Time  // time when the disk has completed its queue
}

// WriteAt is part of disk.Target. It waits as long as the slow disk would need.
func (s *slowTarget) WriteAt(ctx context.Context, p []byte, off int64) error {
	if s.rate > 0 {
		time.Sleep(time.Until(s.reserveTime(len(p))))
	}
	return s.Target.WriteAt(ctx, p, off)
}

// reserveTime returns the time at which the slow disk has completed n more bytes.
func (s *slowTarget) reserveTime(n int) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); s.free.Before(now) {
		s.free = now
	}
	s.free = s.free.Add(time.Duration(n) * time.Second / time.Duration(s.rate))
	return s.free
}
