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

// content is one disk that lands: what the host believes to be a -flat.vmdk.
type content struct {
	*writebehind.File
	job        transport.Job
	source     disk.Source // reads the target; nil if the job has no way to
	folder     string      // in the export, used once
	descriptor string      // in the export
	flat       string
	began      time.Time
	resumed    int64 // bytes that were safe before
	percent    atomic.Int32
	life       context.Context // the Transfer's; it ends when the place is taken away, at the latest
	end        context.CancelFunc
	hold       time.Duration // Options.Hold
	paced      waitTimer     // for the budget
	stuck      waitTimer     // for our writers
}

var _ nfs.Content = (*content)(nil)

// Close is part of nfs.Content. The disk is the Transfer's: a host that closes, or removes
// the file because its copy failed, does not end it.
func (c *content) Close() error { return nil }

// openContent is what holds the bytes of a file of the export; nil: itself.
func (t *Transport) openContent(name string) (nfs.Content, error) {
	t.landing.Lock()
	defer t.landing.Unlock()
	if c := t.disks[name]; c != nil {
		return c, nil
	}
	return nil, nil
}

// addContent makes a place for the job's disk.
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

// removeContent takes the place away. What a host still writes there goes nowhere.
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

func (c *content) closeSource() error {
	if c.source == nil {
		return nil
	}
	return c.source.Close()
}

// preferOwnError replaces what the host says of its failure by our own error, if that is the reason.
func (c *content) preferOwnError(err error) error {
	if own := c.Err(); err != nil && own != nil {
		return own
	}
	return err
}

// finishDisk checks that the host made the disk it was asked for, and makes all of it safe.
func (c *content) finishDisk(ctx context.Context) error {
	if got, want := c.Size(), c.job.Target.Size(); got != want {
		return fault.New(fault.Corrupt, "the host made a disk of %d bytes, not of %d", got, want).
			WithHint("see vmkernel.log on the host; copy by --transport https")
	}
	return c.Finish(ctx)
}

// reportPercent turns the host's percents into bytes.
func (c *content) reportPercent(percent int) {
	c.percent.Store(int32(percent))
	if c.job.Progress != nil {
		p := c.copyProgress()
		p.Done = c.job.Target.Size() / 100 * int64(percent)
		c.job.Progress(p)
	}
}

func (c *content) copyProgress() blockcopy.Progress {
	s := c.Stats()
	return blockcopy.Progress{Size: c.job.Target.Size(), Done: s.Held, Read: s.Held, Written: s.Written, Times: c.copyTimes(time.Now())}
}

func (c *content) copyResult() blockcopy.Result {
	r := blockcopy.Result{Progress: c.copyProgress(), Elapsed: time.Since(c.began), Checkpoints: c.Stats().Checkpoints}
	r.Done = r.Size
	return r
}
