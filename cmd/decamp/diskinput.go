package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/blockcopy"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/diskfile"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/dir"
	"github.com/decamp/decamp/internal/vmdk"
)

// inputFlags are the flags that determine how the files of a disk are read.
type inputFlags struct {
	from      string   // format of the input; empty: by its content
	folders   []string // further folders with parents of a VMDK
	ignoreCID bool     // accept parents that were changed after the snapshot
	backing   bool     // read backing files of qcow2 images
}

// registerFlags registers the flags, which set the fields of o.
func (o *inputFlags) registerFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.from, "from", "", "format of IN: `vmdk, qcow2 or raw` (default by its content; raw by its name)")
	f.StringArrayVar(&o.folders, "folder", nil, "further `DIR` with parents of a VMDK that are named by a datastore path; may be repeated")
	f.BoolVar(&o.ignoreCID, "ignore-cid", false, "read a snapshot chain even if a parent was changed after the snapshot")
	f.BoolVar(&o.backing, "backing", false, "read the backing files that the header of a qcow2 image names")
	_ = cmd.MarkFlagDirname("folder") // fails for unknown flags only
}

// checkFlags refuses values and combinations that are not supported; in is the argument IN.
func (o *inputFlags) checkFlags(cmd *cobra.Command, in string) error {
	switch {
	case o.from != "" && o.from != "vmdk" && o.from != "qcow2" && o.from != "raw":
		return badUsage(cmd, "--from %q: want vmdk, qcow2 or raw", o.from)
	case in == "-" && (o.from != "" || o.folders != nil || o.ignoreCID || o.backing):
		return badUsage(cmd, "the standard input is a streamOptimized VMDK: --from, --folder, --ignore-cid and --backing are not supported")
	}
	return nil
}

// diskOptions returns the options with which the disk at path is opened.
func (o *inputFlags) diskOptions(path string) diskfile.Options {
	return diskfile.Options{
		Kind: diskfile.Kind(o.from), RecordedRaw: recordedRaw(path), Folders: o.folders, IgnoreCID: o.ignoreCID, Backing: o.backing,
	}
}

// recordedRaw reports whether a file is a raw image of a migrated VM, according to the vm.json beside
// it.
func recordedRaw(path string) bool {
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

// input is an open disk, from files or from a stream. It can be copied once.
type input struct {
	size     int64  // size of the disk in bytes
	identity string // identity of the source for resuming
	// copies the disk to a target
	copy     func(context.Context, disk.Target, blockcopy.Options) (blockcopy.Result, error)
	again    func(context.Context) (disk.Source, error) // opens it a second time; nil if it cannot be
	warnings func() []string                            // returns the warnings so far
	close    func() error                               // closes the files
}

// openInput opens the disk at path. With "-" it opens the stream on the standard input.
func openInput(ctx context.Context, in *os.File, path string, o inputFlags) (*input, error) {
	if path == "-" {
		return openStream(ctx, stdin{ctx, in})
	}
	f, err := diskfile.Open(ctx, path, o.diskOptions(path))
	if err != nil {
		return nil, err
	}
	return &input{
		size: f.Size(), identity: "convert " + f.Identity(), warnings: f.Warnings, close: f.Close,
		copy: func(ctx context.Context, t disk.Target, opts blockcopy.Options) (blockcopy.Result, error) {
			return blockcopy.Copy(ctx, f, t, opts)
		},
		again: func(ctx context.Context) (disk.Source, error) { return diskfile.Open(ctx, path, o.diskOptions(path)) },
	}, nil
}

// openStream opens a streamOptimized VMDK on a stream. It cannot be resumed, because the next stream
// may be another disk: each has a unique identity.
func openStream(ctx context.Context, r io.Reader) (*input, error) {
	s, err := vmdk.ReadStream(ctx, r)
	if err != nil {
		return nil, err
	}
	return &input{
		size: s.Size(), identity: fmt.Sprintf("convert standard input at %s", time.Now().Format(time.RFC3339Nano)),
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
