package assemble

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
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

// reopenDisk opens a disk for a second reading, over another connection than the copy: over NFC in a
// new session if NFC copies the disks, otherwise over https. by names the transport.
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

// trialBoot returns the function that boots a VM before it is published. The run keeps the screen and
// the serial log.
func (w *Parts) trialBoot(d *Destination) func(context.Context, string, []testboot.Static) (testboot.Report, error) {
	return func(ctx context.Context, domain string, static []testboot.Static) (testboot.Report, error) {
		return testboot.Boot(ctx, domain, testboot.Options{Static: static, Expect: w.Expect, Keep: filepath.Join(w.Store.Folder(d.Plan.ID), "trial")})
	}
}

// enterTrial waits until another VM may boot on this machine, because each requires memory and
// processors. waits is called with the reason before it waits. The caller calls leave when the VM has
// ended.
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
	waits(fmt.Sprintf("the number of parallel trial boots is limited to %d (--trials)", cap(w.Trials)))
	select {
	case w.Trials <- struct{}{}:
		return leave, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Rehearse boots the VM of a warm run from its current images. They are served to QEMU over NBD: QEMU
// cannot open them as images, and they may change during the reads.
func (w *Parts) Rehearse(ctx context.Context, what migrate.Rehearsing) (testboot.Report, error) {
	served := map[string]func(net.Conn){}
	for path, src := range what.Disks {
		server := &nbd.Server{Exports: []nbd.Export{{Disk: src, ReadOnly: true}}}
		served[path] = func(conn net.Conn) { _ = server.ServeConn(ctx, conn) } // the guest receives the errors
	}
	return testboot.Boot(ctx, what.Domain, testboot.Options{
		Expect: cmp.Or(what.Expect, w.Expect), Deadline: what.Deadline, Keep: what.Keep, Scratch: what.Scratch, Served: served, Static: what.Static,
	})
}

// hostSums are hashes of disks that hosts have computed. Several destinations need the same hash, and
// the host computes it once.
type hostSums struct {
	mu    sync.Mutex          // guards byKey
	byKey map[int32]*sumEntry // entries by device key of the disk
}

// sumEntry is the hash of one disk. Its fields may be used only by the owner of the token.
type sumEntry struct {
	token chan struct{}     // holds one token; taken while the host hashes
	sum   migrate.SourceSum // valid if done
	done  bool              // the host has computed the hash
}

// entryFor returns the entry of a disk, which it creates with its token.
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

// hashDisk returns the hash of a disk that its host computes. Concurrent calls for one disk wait for
// the first. A failure is not stored: the next call tries again.
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

// hashOnHost computes the hash on the host, from the flat file of a disk. It returns fault.Unsupported
// if no single file has the bytes of the disk.
func (w *Parts) hashOnHost(ctx context.Context, d transport.Disk) (migrate.SourceSum, error) {
	if d.Disk.Backing != inventory.Flat || d.Disk.Layers > 1 || d.Snapshot != "" {
		return migrate.SourceSum{}, fault.New(fault.Unsupported, "no file on the host has the exact bytes of disk %d: it is %s, in %d layers", d.Disk.Key, d.Disk.Backing, d.Disk.Layers).
			WithHint("omit --source-hash; --spot compares a part of the disk")
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

// flatFilePath returns the path on the host of the flat file that the descriptor of the disk names.
func (w *Parts) flatFilePath(ctx context.Context, d transport.Disk) (_ string, err error) {
	src, err := w.Reader.Open(ctx, d)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	return shell.VolumePath(src.Path())
}
