package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/nbd"
	"github.com/decamp/decamp/internal/transport"
	"github.com/decamp/decamp/internal/transport/nfc"
)

const (
	flightDepth = 16    // number of random reads in flight
	flightReads = 20000 // number of random reads of one measurement
)

// measureRandom compares random reads of 4 KiB over NBD with those of one session of the NFC client. The
// programs take turns. If both ends are bound by processors, a read through both takes the time of both: the
// rows have that bound, too.
func (d *nbdBed) measureRandom(ctx context.Context, b *bench) error {
	e, err := nfcLab(ctx, lab.Disk{Capacity: randomDisk, Fill: 100, Thick: true}, lab.NFC{})
	if err != nil {
		return err
	}
	defer e.stop()
	sides := []nbdSide{nbdDecampNFC, nbdPlugin}
	rates, shares := make([][]float64, len(sides)), make([][]float64, len(sides))
	var alone, memory, bound []float64
	for range nbdRuns {
		var one measurement
		if err := runJob(ctx, &one, "flight", flightJob{Lab: &e.facts}); err != nil {
			return err
		}
		other, err := d.readMemory(ctx)
		if err != nil {
			return err
		}
		alone, memory = append(alone, flightReads/one.Seconds), append(memory, flightReads/other.Seconds)
		bound = append(bound, one.Seconds/(one.Seconds+other.Seconds))
		for i, side := range sides {
			t, err := d.readAtRandom(ctx, e, side)
			if err != nil {
				return err
			}
			rates[i], shares[i] = append(rates[i], flightReads/t.Seconds), append(shares[i], one.Seconds/t.Seconds)
		}
	}
	peers := []Peer{{Name: "both ends alone, one after the other", Value: median(bound),
		Note: fmt.Sprintf("the NFC client %.0f reads a second, NBD from nbdkit memory %.0f", median(alone), median(memory))}}
	for i := range sides {
		b.atLeast(nbdRandom, Row{Figure: fmt.Sprintf("%s, random reads of 4 KiB, %d in flight: reads a second", sides[i].name, flightDepth),
			Value: median(shares[i]), Unit: "x one session of the NFC client alone",
			Note: fmt.Sprintf("in clear; %.0f reads a second", median(rates[i])), Peers: peers})
	}
	return nil
}

// readAtRandom starts a server, reads its first disk at random offsets, and stops the server.
func (d *nbdBed) readAtRandom(ctx context.Context, e *emulated, side nbdSide) (t measurement, err error) {
	s, err := d.startNBD(ctx, e, side)
	if err != nil {
		return t, err
	}
	defer s.stop()
	return t, runJob(ctx, &t, "flight", flightJob{Socket: filepath.Join(s.dir, "nbd.sock")})
}

// readMemory reads a disk of nbdkit's plugin memory at random offsets.
func (d *nbdBed) readMemory(ctx context.Context) (t measurement, err error) {
	dir, err := os.MkdirTemp(d.dir, "nbd")
	if err != nil {
		return t, err
	}
	socket := filepath.Join(dir, "nbd.sock")
	s, err := d.startServer(ctx, dir, "nbdkit memory", []string{"nbdkit", "-f", "-r", "-U", socket, "memory", formatInt(randomDisk)})
	if err != nil {
		return t, err
	}
	defer s.stop()
	return t, runJob(ctx, &t, "flight", flightJob{Socket: socket})
}

// flightJob is the input of childFlight.
type flightJob struct {
	Lab    *labFacts `json:"lab"`    // emulated host to read with one session; nil to read over NBD
	Socket string    `json:"socket"` // Unix socket of an NBD server
}

// childFlight reads a disk at random offsets, with several reads in flight.
func childFlight(ctx context.Context, args []string) (t measurement, err error) {
	var job flightJob
	if err := json.Unmarshal([]byte(args[0]), &job); err != nil {
		return t, err
	}
	if job.Lab == nil {
		conn, err := net.Dial("unix", job.Socket)
		if err != nil {
			return t, err
		}
		c, err := nbd.New(conn)
		if err != nil {
			return t, err
		}
		defer c.Close()
		return readInFlight(ctx, c, c.Size())
	}
	host, err := job.Lab.logIn(ctx, "esxi")
	if err != nil {
		return t, err
	}
	defer host.Close()
	vm, err := host.VM(ctx, benchVM)
	if err != nil {
		return t, err
	}
	pull := nfc.New(host, nfcJob{Handles: 1, Plain: true, Stored: true}.toOptions())
	defer pull.Close()
	src, err := pull.Open(ctx, transport.Disk{VM: vm, Disk: &vm.Disks[0]})
	if err != nil {
		return t, err
	}
	defer src.Close()
	return readInFlight(ctx, src, src.Size())
}

// readInFlight reads flightReads blocks at random offsets, flightDepth at a time. All callers read the
// same offsets.
func readInFlight(ctx context.Context, from interface {
	ReadAt(ctx context.Context, p []byte, off int64) error
}, size int64) (measurement, error) {
	t, err := timeWork(func() error {
		g, ctx := errgroup.WithContext(ctx)
		for i := range flightDepth {
			g.Go(func() error {
				rnd, p := rand.New(rand.NewPCG(uint64(i), 2)), make([]byte, randomSize)
				for range flightReads / flightDepth {
					if err := from.ReadAt(ctx, p, rnd.Int64N(size/randomSize)*randomSize); err != nil {
						return err
					}
				}
				return nil
			})
		}
		return g.Wait()
	})
	t.Bytes = flightReads * randomSize
	return t, err
}
