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

// inputFlags say how a disk's files are read, from flags.
type inputFlags struct {
	from      string
	folders   []string
	ignoreCID bool
	backing   bool
}

func (o *inputFlags) registerFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.from, "from", "", "format of IN: `vmdk, qcow2 or raw` (default by its content; raw by its name)")
	f.StringArrayVar(&o.folders, "folder", nil, "further `DIR` with parents of a VMDK that are named by a datastore path; may be repeated")
	f.BoolVar(&o.ignoreCID, "ignore-cid", false, "read a snapshot chain even if a parent was changed after the snapshot")
	f.BoolVar(&o.backing, "backing", false, "read the backing files that the header of a qcow2 image names")
	_ = cmd.MarkFlagDirname("folder") // fails for unknown flags only
}

func (o *inputFlags) checkFlags(cmd *cobra.Command, in string) error {
	switch {
	case o.from != "" && o.from != "vmdk" && o.from != "qcow2" && o.from != "raw":
		return badUsage(cmd, "--from %q: want vmdk, qcow2 or raw", o.from)
	case in == "-" && (o.from != "" || o.folders != nil || o.ignoreCID || o.backing):
		return badUsage(cmd, "the standard input is a streamOptimized VMDK: --from, --folder, --ignore-cid and --backing are not supported")
	}
	return nil
}

// diskOptions returns how the disk at path is opened.
func (o *inputFlags) diskOptions(path string) diskfile.Options {
	return diskfile.Options{
		Kind: diskfile.Kind(o.from), RecordedRaw: recordedRaw(path), Folders: o.folders, IgnoreCID: o.ignoreCID, Backing: o.backing,
	}
}

// recordedRaw reports whether a file is a raw image of a migrated VM: the vm.json beside it
// lists it.
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

// input is a disk that is read once, from files or from a stream.
type input struct {
	size     int64
	identity string // identity of the source for resuming
	copy     func(context.Context, disk.Target, blockcopy.Options) (blockcopy.Result, error)
	again    func(context.Context) (disk.Source, error) // opens it a second time; nil if it cannot be
	warnings func() []string
	close    func() error
}

// openInput opens the disk at path, or with "-" the one that comes by the standard input.
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

// openStream opens a streamOptimized VMDK that passes by once. Nobody can tell whether
// the next one is the same, so that nothing is resumed: each has its own identity.
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

// stdin reads a file that may be a pipe without a writer, until ctx ends: an io.Reader has no context.
type stdin struct {
	ctx  context.Context
	file *os.File
}

// stdinPollInterval is how long it may take until a read notices that ctx has ended.
const stdinPollInterval = 200 * time.Millisecond

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
