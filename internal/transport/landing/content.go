package landing

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/decamp/decamp/internal/blockcopy"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/nfs"
	"github.com/decamp/decamp/internal/transport"
	"github.com/decamp/decamp/internal/writebehind"
)

// content is one disk that lands: the content of the -flat.vmdk that the host creates.
type content struct {
	*writebehind.File
	job        transport.Job      // transfer that the disk belongs to
	source     disk.Source        // reader of the target; nil if it cannot be read
	folder     string             // folder in the export, whose name is used once
	descriptor string             // path of the descriptor in the export
	flat       string             // path of the data file in the export
	began      time.Time          // time of creation
	resumed    int64              // bytes that were durable before this transfer
	percent    atomic.Int32       // last percentage that the host reported; -1 before the first
	life       context.Context    // ends with the Transfer, or when the content is removed
	end        context.CancelFunc // cancels life
	hold       time.Duration      // Options.Hold
	paced      waitTimer          // time in which WRITEs waited for the budget
	stuck      waitTimer          // time in which calls waited for our writers
}

var _ nfs.Content = (*content)(nil)

// Close is part of nfs.Content. It does nothing, because the Transfer owns the disk. A host that closes
// the file, or removes it after a failed copy, does not end the transfer.
func (c *content) Close() error { return nil }

// openContent is nfs.Export.Open. It returns the content of a disk that lands; nil for descriptors and
// other plain files.
func (t *Transport) openContent(name string) (nfs.Content, error) {
	t.landing.Lock()
	defer t.landing.Unlock()
	if c := t.disks[name]; c != nil {
		return c, nil
	}
	return nil, nil
}

// addContent creates the content and the folder for the job's disk. The caller must call removeContent.
func (t *Transport) addContent(ctx context.Context, job transport.Job) (_ *content, err error) {
	c := &content{job: job, folder: rand.Text(), began: time.Now(), hold: t.opts.Hold}
	c.life, c.end = context.WithCancel(ctx)
	defer func() {
		if err != nil {
			c.end()
		}
	}()
	c.percent.Store(notBegun.percent)
	c.descriptor, c.flat = c.folder+"/disk.vmdk", c.folder+"/disk-flat.vmdk"
	o := writebehind.Options{CheckpointBytes: t.opts.CheckpointBytes}
	if job.ReadBack != nil {
		if c.source, err = job.ReadBack(ctx); err != nil {
			return nil, err
		}
		o.Source = c.source
	}
	if job.Manifest != nil {
		c.resumed = (job.Manifest.Chunks() - job.Manifest.Missing()) << 20
		if c.resumed > 0 {
			o.Size = job.Target.Size()
		}
	}
	if c.File, err = writebehind.New(job.Target, job.Manifest, t.pool, o); err != nil {
		return nil, errors.Join(err, c.closeSource())
	}
	if err := os.Mkdir(filepath.Join(t.opts.Dir, c.folder), 0o700); err != nil {
		return nil, errors.Join(err, c.File.Close(), c.closeSource())
	}
	t.landing.Lock()
	defer t.landing.Unlock()
	t.disks[c.flat] = c
	return c, nil
}

// removeContent closes the content and deletes its folder. Later writes of the host fail: their handles
// are stale.
func (t *Transport) removeContent(c *content) error {
	c.end()
	t.landing.Lock()
	delete(t.disks, c.flat)
	t.landing.Unlock()
	t.mu.Lock()
	s := t.server
	t.mu.Unlock()
	err := os.RemoveAll(filepath.Join(t.opts.Dir, c.folder))
	if s != nil {
		err = errors.Join(err, s.Forget(exportPath(t.opts.Dir), c.flat))
	}
	return errors.Join(err, c.File.Close(), c.closeSource())
}

// closeSource closes the reader of the target, if there is one.
func (c *content) closeSource() error {
	if c.source == nil {
		return nil
	}
	return c.source.Close()
}

// preferOwnError returns our own error in place of the host's, if writing failed here: the host's error
// is then only a consequence.
func (c *content) preferOwnError(err error) error {
	if own := c.Err(); err != nil && own != nil {
		return own
	}
	return err
}

// finishDisk checks that the host created a disk of the right size, and makes all of it durable.
func (c *content) finishDisk(ctx context.Context) error {
	if got, want := c.Size(), c.job.Target.Size(); got != want {
		return fault.New(fault.Corrupt, "the host created a disk of %d bytes instead of %d", got, want).
			WithHint("see /var/log/vmkernel.log on the host, or use --transport https")
	}
	return c.Finish(ctx)
}

// reportPercent reports the host's percentage as bytes.
func (c *content) reportPercent(percent int) {
	c.percent.Store(int32(percent))
	if c.job.Progress != nil {
		p := c.copyProgress()
		p.Done = c.job.Target.Size() / 100 * int64(percent)
		c.job.Progress(p)
	}
}

// copyProgress returns the progress by the bytes that arrived.
func (c *content) copyProgress() blockcopy.Progress {
	s := c.Stats()
	return blockcopy.Progress{Size: c.job.Target.Size(), Done: s.Held, Read: s.Held, Written: s.Written, Times: c.copyTimes(time.Now())}
}

// copyResult returns the result of the transfer so far.
func (c *content) copyResult() blockcopy.Result {
	r := blockcopy.Result{Progress: c.copyProgress(), Elapsed: time.Since(c.began), Checkpoints: c.Stats().Checkpoints}
	r.Done = r.Size
	return r
}
