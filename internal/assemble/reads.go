package assemble

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/esx/shell"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/nbd"
	"github.com/decamp/decamp/internal/testboot"
	"github.com/decamp/decamp/internal/transport"
	"github.com/decamp/decamp/internal/transport/nfc"
)

// reopenDisk opens a disk for the second reading: over NFC in a new session if NFC copies the disks,
// otherwise over HTTPS on connections that copy nothing.
func (w *Parts) reopenDisk(ctx context.Context, d transport.Disk) (_ disk.Source, by string, err error) {
	if n, ok := w.Transport.(*nfc.Transport); ok {
		src, err := n.Open(ctx, d)
		if err != nil {
			return nil, "", err // not a nil *nfc.Source in an interface
		}
		return src, "nfc", nil
	}
	src, err := OpenDisk(ctx, w.Rereader, d)
	return src, "https", err
}

// trialBoot tries a VM before it is published. What it showed is kept with its run.
func (w *Parts) trialBoot(d *Destination) func(context.Context, string, []testboot.Static) (testboot.Report, error) {
	return func(ctx context.Context, domain string, static []testboot.Static) (testboot.Report, error) {
		return testboot.Boot(ctx, domain, testboot.Options{Static: static, Expect: w.Expect, Keep: filepath.Join(w.Store.Folder(d.Plan.ID), "trial")})
	}
}

// enterTrial waits until one more VM may boot here: each takes memory and processors.
func (w *Parts) enterTrial(ctx context.Context, waits func(why string)) (leave func(), err error) {
	if w.Trials == nil {
		return func() {}, nil
	}
	leave = func() { <-w.Trials }
	select {
	case w.Trials <- struct{}{}:
		return leave, nil
	default:
	}
	waits(fmt.Sprintf("as many VMs boot on trial here as may at a time: %d (--trials)", cap(w.Trials)))
	select {
	case w.Trials <- struct{}{}:
		return leave, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Rehearse boots what a warm run's images hold, which are served to QEMU: they are no images that it
// could open, and change while it reads.
func (w *Parts) Rehearse(ctx context.Context, what migrate.Rehearsing) (testboot.Report, error) {
	served := map[string]func(io.ReadWriter){}
	for path, src := range what.Disks {
		served[path] = func(conn io.ReadWriter) { _ = nbd.Serve(conn, readOnlyDisk{ctx, src}) } // the guest receives the errors
	}
	return testboot.Boot(ctx, what.Domain, testboot.Options{
		Expect: cmp.Or(what.Expect, w.Expect), Deadline: what.Deadline, Keep: what.Keep, Scratch: what.Scratch, Served: served, Static: what.Static,
	})
}

// unwritten is a disk that is only read.
type readOnlyDisk struct {
	ctx context.Context
	src disk.Source
}

func (u readOnlyDisk) Size() int64 { return u.src.Size() }

func (u readOnlyDisk) ReadAt(p []byte, off int64) (int, error) {
	if err := u.src.ReadAt(u.ctx, p, off); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (u readOnlyDisk) WriteAt([]byte, int64) (int, error) {
	return 0, fault.New(fault.Denied, "the images of a rehearsal are not written to")
}

// sums are the hashes of disks that the host made, by the disk's key: several destinations
// ask for the same ones, and the host is to read once.
type hostSums struct {
	mu    sync.Mutex
	byKey map[int32]*sumEntry
}

type sumEntry struct {
	token chan struct{} // holds one token; taken while the host hashes
	sum   migrate.SourceSum
	done  bool
}

func (s *hostSums) entryFor(key int32) *sumEntry {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byKey == nil {
		s.byKey = map[int32]*sumEntry{}
	}
	if s.byKey[key] == nil {
		s.byKey[key] = &sumEntry{token: make(chan struct{}, 1)}
		s.byKey[key].token <- struct{}{}
	}
	return s.byKey[key]
}

// hashDisk has the host hash a disk, once for all who ask.
func (w *Parts) hashDisk(ctx context.Context, d transport.Disk) (migrate.SourceSum, error) {
	h := w.sums.entryFor(d.Disk.Key)
	select {
	case <-h.token:
	case <-ctx.Done():
		return migrate.SourceSum{}, ctx.Err()
	}
	defer func() { h.token <- struct{}{} }()
	if h.done {
		return h.sum, nil
	}
	sum, err := w.hashOnHost(ctx, d)
	h.sum, h.done = sum, err == nil
	return sum, err
}

// hashOnHost hashes the flat file of a disk, where its bytes are those of the disk.
func (w *Parts) hashOnHost(ctx context.Context, d transport.Disk) (migrate.SourceSum, error) {
	if d.Disk.Backing != inventory.Flat || d.Disk.Layers > 1 || d.Snapshot != "" {
		return migrate.SourceSum{}, fault.New(fault.Unsupported, "no file on the host holds disk %d byte for byte: it is %s, in %d layers", d.Disk.Key, d.Disk.Backing, d.Disk.Layers).
			WithHint("leave --source-hash out; --spot compares a part of the disk")
	}
	file, err := w.flatFilePath(ctx, d)
	if err != nil {
		return migrate.SourceSum{}, err
	}
	s, err := w.Shells.Open(ctx, d.VM.Host)
	if err != nil {
		return migrate.SourceSum{}, err
	}
	began := time.Now()
	// by the VM's instance too: the file of another that took its place has its own hash
	name := shell.JobName("sum", d.VM.InstanceUUID, file)
	sum, err := s.Sum(ctx, name, file, d.Disk.Capacity)
	return migrate.SourceSum{Algorithm: sum.Algorithm, Hex: sum.Hex, By: file, Elapsed: time.Since(began)}, err
}

// flatFilePath is what the disk's descriptor names, by its path on the host.
func (w *Parts) flatFilePath(ctx context.Context, d transport.Disk) (_ string, err error) {
	src, err := w.Reader.Open(ctx, d)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	return shell.VolumePath(src.Path())
}
