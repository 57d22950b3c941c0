package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"

	rows "github.com/decamp/decamp/internal/bench"
	"github.com/decamp/decamp/internal/lab"
)

// matrix contains the machines between which rows are measured.
type matrix struct {
	b     *bench               // run of the program
	cable *netLink             // link between the host and this machine
	dir   string               // directory of the images
	labs  map[string]*emulated // emulated hosts by the medium of their datastore
}

// newMatrix creates the link and starts a host for each medium. The caller must close
// the result.
func newMatrix(ctx context.Context, b *bench) (m *matrix, err error) {
	m = &matrix{b: b, labs: map[string]*emulated{}}
	defer func() {
		if err != nil {
			m.close()
		}
	}()
	if m.cable, err = newNetLink(ctx); err != nil {
		return nil, err
	}
	if err := m.cable.setRate(ctx, wireRate["25g"], 1500); err != nil { // labs listen on it
		return nil, err
	}
	if m.dir, err = os.MkdirTemp("/dev/shm", "decamp-bench"); err != nil {
		return nil, err
	}
	for medium, rate := range sourceRate {
		if m.labs[medium], err = m.startLab(ctx, rate); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// startLab starts an emulated host at the host's end, whose datastore has the rate.
func (m *matrix) startLab(ctx context.Context, rate lab.Bytes) (*emulated, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	// The disks contain no zeros, so that all bytes are transferred.
	full := func(name string, size lab.Bytes) lab.VM {
		return lab.VM{Name: name, Disks: []lab.Disk{{Capacity: size, Fill: 100, Seed: 1}}}
	}
	return startLabBy(m.cable.host.command(ctx, self, "child", "lab"), lab.Config{
		Addr: hostAddr + ":0", Limits: lab.Limits{DatastoreRate: rate},
		VMs: []lab.VM{full(matrixVM, matrixDisk), full(matrixSyncVM, matrixSync)},
	})
}

// close stops the hosts, and removes the link and the images.
func (m *matrix) close() {
	for _, l := range m.labs {
		if l != nil {
			l.stop()
		}
	}
	if m.cable != nil {
		m.cable.close()
	}
	_ = os.RemoveAll(m.dir) // "" removes nothing
}

// measureSetup makes the host of a setup clone its disk to the setup's server, and
// returns the row.
func (m *matrix) measureSetup(ctx context.Context, s rows.Setup) (row rows.Row, err error) {
	if err := m.cable.setRate(ctx, wireRate[s.NIC], s.MTU); err != nil {
		return row, err
	}
	// A sync export is slow, so its VM has a smaller disk.
	vm, size := matrixVM, int64(matrixDisk)
	job := serverJob{Dir: m.dir, Rate: landRate[s.Destination], Memory: serverHas, At: hereAddr}
	if s.Export == rows.Sync {
		vm, size = matrixSyncVM, matrixSync
		job.Commit = landCommit[s.Destination]
	}
	job.Size = size
	server, err := m.startServer(ctx, job)
	if err != nil {
		return row, err
	}
	defer server.stop()
	cmd, err := m.cable.here.roleCommand(ctx, "clones", clonesJob{Lab: m.labs[s.Source].facts, VM: vm, Server: hereAddr, Path: landExport})
	if err != nil {
		return row, err
	}
	out, err := cmd.Output()
	var t measurement
	if err = errors.Join(err, json.Unmarshal(out, &t), m.removeImages()); err != nil {
		return row, err
	}
	row = rows.Row{Setup: s, Origin: "the lab, on " + m.b.machine.CPU, Seconds: t.Seconds, Allocated: size, Wire: float64(size) / rows.MiB / t.Seconds, At: time.Now().UTC()}
	row.On = rows.Conditions{Commit: m.b.commit, Kernel: m.b.machine.Kernel, Cores: m.b.machine.Cores, Fill: 1, Seed: 1, Storage: "tmpfs, throttled"}
	return row, nil
}

// startServer starts a server at this machine's end of the link.
func (m *matrix) startServer(ctx context.Context, job serverJob) (*nfsServer, error) {
	cmd, err := m.cable.here.roleCommand(ctx, "serve", job)
	if err != nil {
		return nil, err
	}
	return startServer(cmd)
}

// removeImages removes the images of a row.
func (m *matrix) removeImages() error {
	left, err := filepath.Glob(filepath.Join(m.dir, "*"))
	for _, path := range left {
		err = errors.Join(err, os.RemoveAll(path))
	}
	return err
}
