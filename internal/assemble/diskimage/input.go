package diskimage

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/blockcopy"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/diskfile"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/dir"
	"github.com/decamp/decamp/internal/vmdk"
)

// IsRecordedRaw reports whether a file is a raw image of a migrated VM, according to the vm.json beside
// it.
func IsRecordedRaw(path string) bool {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	r, err := dir.ReadRecord(filepath.Dir(path))
	if err != nil {
		return false
	}
	return slices.ContainsFunc(r.Images, func(img dir.RecordedImage) bool {
		return img.File == filepath.Base(path) && img.Format == targets.Raw
	})
}

// Input is an open disk, from files or from a stream. It can be copied once.
type Input struct {
	Size     int64  // size of the disk in bytes
	identity string // identity of the source for resuming
	// copies the disk to a target
	copy     func(context.Context, disk.Target, blockcopy.Options) (blockcopy.Result, error)
	again    func(context.Context) (disk.Source, error) // opens it a second time; nil if it cannot be
	warnings func() []string                            // returns the warnings so far
	close    func() error                               // closes the files
}

// Close closes the files.
func (in *Input) Close() error { return in.close() }

// OpenInput opens the disk at path. With "-" it opens the stream on in, the standard input.
func OpenInput(ctx context.Context, in *os.File, path string, o diskfile.Options) (*Input, error) {
	if path == "-" {
		return openStream(ctx, stdin{ctx, in})
	}
	f, err := diskfile.Open(ctx, path, o)
	if err != nil {
		return nil, err
	}
	return &Input{
		Size: f.Size(), identity: "convert " + f.Identity(), warnings: f.Warnings, close: f.Close,
		copy: func(ctx context.Context, t disk.Target, opts blockcopy.Options) (blockcopy.Result, error) {
			return blockcopy.Copy(ctx, f, t, opts)
		},
		again: func(ctx context.Context) (disk.Source, error) { return diskfile.Open(ctx, path, o) },
	}, nil
}

// openStream opens a streamOptimized VMDK on a stream. It cannot be resumed, because the next stream
// may be another disk: each has a unique identity.
func openStream(ctx context.Context, r io.Reader) (*Input, error) {
	s, err := vmdk.ReadStream(ctx, r)
	if err != nil {
		return nil, err
	}
	return &Input{
		Size: s.Size(), identity: fmt.Sprintf("convert standard input at %s", time.Now().Format(time.RFC3339Nano)),
		copy: func(ctx context.Context, t disk.Target, opts blockcopy.Options) (blockcopy.Result, error) {
			return blockcopy.Receive(ctx, s, t, opts)
		},
		warnings: s.Warnings, close: func() error { return nil },
	}, nil
}

// stdin reads a file, which may be a pipe without a writer, until ctx ends.
type stdin struct {
	ctx  context.Context // ends reads
	file *os.File        // file to read
}

// stdinPollInterval limits the time until a read notices that ctx has ended.
const stdinPollInterval = 200 * time.Millisecond

// Read waits for data with poll(2), and returns the error of ctx when it ends.
func (s stdin) Read(p []byte) (int, error) {
	fds := []unix.PollFd{{Fd: int32(s.file.Fd()), Events: unix.POLLIN}}
	for {
		if err := s.ctx.Err(); err != nil {
			return 0, err
		}
		n, err := unix.Poll(fds, int(stdinPollInterval/time.Millisecond))
		switch {
		case err == unix.EINTR:
		case err != nil:
			return 0, fmt.Errorf("wait for the standard input: %w", err)
		case n > 0:
			return s.file.Read(p)
		}
	}
}
