package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"time"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/lab/nfsclient"
)

// streamJob is the input of childStream.
type streamJob struct {
	Server   serverFacts `json:"server"`   // server to write to
	Path     string      `json:"path"`     // path of the export; empty writes to Server.Addr without mounting
	PID      int         `json:"pid"`      // process ID of the server
	Size     int64       `json:"size"`     // bytes of the file
	Block    int         `json:"block"`    // bytes of one WRITE
	InFlight int         `json:"inFlight"` // WRITEs not answered at a time
	Commit   bool        `json:"commit"`   // COMMIT at the end, within the time
}

// streamMount limits one attempt to mount.
const streamMount = 20 * time.Second

// childStream writes one file over NFS. The time is that of the WRITEs, and the
// processor time is the client's.
func childStream(ctx context.Context, args []string) (t measurement, err error) {
	var job streamJob
	if err := json.Unmarshal([]byte(args[0]), &job); err != nil {
		return t, err
	}
	// Any byte except zero: blocks of zeros would not be written.
	block := bytes.Repeat([]byte{0xdc}, job.Block)
	if job.Path == "" {
		s := nfsclient.Stream{Addr: job.Server.Addr, Handle: "none", Size: job.Size, Block: block, InFlight: job.InFlight}
		return job.timeWrites(func() error { return s.Write(ctx) })
	}
	d, err := job.mountExport(ctx)
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, d.Unmount(ctx)) }()
	return job.writeBlocks(ctx, d, block)
}

// mountExport mounts the export of the job.
func (job streamJob) mountExport(ctx context.Context) (*nfsclient.Datastore, error) {
	return nfsclient.Mount(ctx, nfsclient.Config{
		Host: "127.0.0.1", Path: job.Path, PortmapAddr: job.Server.Portmap, Times: nfsclient.Times{Mount: streamMount},
	})
}

// childMounts waits until an export can be mounted, for at most startPatience.
func childMounts(ctx context.Context, args []string) (t measurement, err error) {
	var job streamJob
	if err := json.Unmarshal([]byte(args[0]), &job); err != nil {
		return t, err
	}
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	for {
		d, err := job.mountExport(ctx)
		if err == nil {
			return t, d.Unmount(ctx)
		}
		select {
		case <-ctx.Done():
			return t, err
		case <-time.After(mountPause):
		}
	}
}

// mountPause is the time between two attempts to mount.
const mountPause = 100 * time.Millisecond

// writeBlocks creates a file, writes it in blocks, and removes it. The time includes
// COMMIT if the job requires it.
func (job streamJob) writeBlocks(ctx context.Context, d *nfsclient.Datastore, block []byte) (t measurement, err error) {
	const name = "bench" + diskSuffix
	f, err := d.Create(ctx, name)
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, f.Close(ctx), d.Remove(ctx, name)) }()
	// vmkfstools also sets the size of the file first.
	if err := f.Truncate(ctx, job.Size); err != nil {
		return t, err
	}
	return job.timeWrites(func() error {
		if err := f.Stream(block, job.InFlight, job.Size).Write(ctx); err != nil || !job.Commit {
			return err
		}
		return f.Commit(ctx)
	})
}

// timeWrites measures write, including the processor time of the server.
func (job streamJob) timeWrites(write func() error) (measurement, error) {
	before, err := cpuOf(job.PID)
	if err != nil {
		return measurement{}, err
	}
	t, err := timeWork(write)
	if err != nil {
		return t, err
	}
	after, err := cpuOf(job.PID)
	t.Bytes, t.Server = job.Size, after-before
	return t, err
}

// pwriteJob is the input of childPwrite.
type pwriteJob struct {
	Path  string `json:"path"`  // path of the file
	Size  int64  `json:"size"`  // bytes of the file
	Block int    `json:"block"` // bytes of one write
}

// childPwrite measures the limit of the file system: one thread writes the same data
// without a server.
func childPwrite(_ context.Context, args []string) (t measurement, err error) {
	var job pwriteJob
	if err := json.Unmarshal([]byte(args[0]), &job); err != nil {
		return t, err
	}
	f, err := os.Create(job.Path)
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(job.Path)) }()
	block := disk.AlignedMemory(int64(job.Block))
	for i := range block {
		block[i] = 0xdc
	}
	t, err = timeWork(func() error {
		for off := int64(0); off < job.Size; off += int64(job.Block) {
			if _, err := f.WriteAt(block, off); err != nil {
				return err
			}
		}
		return nil
	})
	t.Bytes = job.Size
	return t, err
}
