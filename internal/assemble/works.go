package assemble

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path/filepath"

	"github.com/decamp/decamp/internal/convert/appliance/nbd"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/transport"
	"github.com/decamp/decamp/internal/transport/nfc"
	"github.com/decamp/decamp/internal/trial"
)

// openAgain opens a disk for the second reading: over NFC in a new session if NFC copies the disks,
// otherwise over HTTPS on connections that copy nothing.
func (w *Parts) openAgain(ctx context.Context, d transport.Disk) (_ disk.Source, by string, err error) {
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

// boot tries a VM before it is published. What it showed is kept with its run.
func (w *Parts) boot(d *Destination) func(context.Context, string, []trial.Static) (trial.Report, error) {
	return func(ctx context.Context, domain string, static []trial.Static) (trial.Report, error) {
		return trial.Boot(ctx, domain, trial.Options{Static: static, Expect: w.Expect, Keep: filepath.Join(w.Store.Folder(d.Plan.ID), "trial")})
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
func (w *Parts) Rehearse(ctx context.Context, what migrate.Rehearsing) (trial.Report, error) {
	served := map[string]func(io.ReadWriter){}
	for path, src := range what.Disks {
		served[path] = func(conn io.ReadWriter) { _ = nbd.Serve(conn, unwritten{ctx, src}) } // the guest is told of what fails
	}
	return trial.Boot(ctx, what.Domain, trial.Options{
		Expect: cmp.Or(what.Expect, w.Expect), Deadline: what.Deadline, Keep: what.Keep, Scratch: what.Scratch, Served: served, Static: what.Static,
	})
}

// unwritten is a disk that is only read.
type unwritten struct {
	ctx context.Context
	src disk.Source
}

func (u unwritten) Size() int64 { return u.src.Size() }

func (u unwritten) ReadAt(p []byte, off int64) (int, error) {
	if err := u.src.ReadAt(u.ctx, p, off); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (u unwritten) WriteAt([]byte, int64) (int, error) {
	return 0, fault.New(fault.Denied, "the images of a rehearsal are not written to")
}
