package assemble

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/esx/shell"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/transport"
)

// sums are the hashes of disks that the host made, by the disk's key: several destinations
// ask for the same ones, and the host is to read once.
type sums struct {
	mu   sync.Mutex
	each map[int32]*hashed
}

type hashed struct {
	turn chan struct{} // holds one token; taken while the host hashes
	sum  migrate.SourceSum
	done bool
}

func (s *sums) of(key int32) *hashed {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.each == nil {
		s.each = map[int32]*hashed{}
	}
	if s.each[key] == nil {
		s.each[key] = &hashed{turn: make(chan struct{}, 1)}
		s.each[key].turn <- struct{}{}
	}
	return s.each[key]
}

// sum has the host hash a disk, once for all who ask.
func (w *Parts) sum(ctx context.Context, d transport.Disk) (migrate.SourceSum, error) {
	h := w.sums.of(d.Disk.Key)
	select {
	case <-h.turn:
	case <-ctx.Done():
		return migrate.SourceSum{}, ctx.Err()
	}
	defer func() { h.turn <- struct{}{} }()
	if h.done {
		return h.sum, nil
	}
	sum, err := w.sumOnHost(ctx, d)
	h.sum, h.done = sum, err == nil
	return sum, err
}

// sumOnHost hashes the flat file of a disk, where its bytes are those of the disk.
func (w *Parts) sumOnHost(ctx context.Context, d transport.Disk) (migrate.SourceSum, error) {
	if d.Disk.Backing != inventory.Flat || d.Disk.Layers > 1 || d.Snapshot != "" {
		return migrate.SourceSum{}, fault.New(fault.Unsupported, "no file on the host holds disk %d byte for byte: it is %s, in %d layers", d.Disk.Key, d.Disk.Backing, d.Disk.Layers).
			WithHint("leave --source-hash out; --spot compares a part of the disk")
	}
	file, err := w.flatFile(ctx, d)
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

// flatFile is what the disk's descriptor names, by its path on the host.
func (w *Parts) flatFile(ctx context.Context, d transport.Disk) (_ string, err error) {
	src, err := w.Reader.Open(ctx, d)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	return shell.VolumePath(src.Path())
}
