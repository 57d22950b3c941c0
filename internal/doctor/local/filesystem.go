package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/doctor"
	"github.com/decamp/decamp/internal/fault"
)

// folder makes a file there.
func (e *examiner) folder(context.Context) []doctor.Finding {
	at := e.nearest()
	f := doctor.Finding{On: e.Folder, Seen: "it is there, and takes files"}
	if at != e.Folder {
		f.Seen = fmt.Sprintf("it can be made in %s", at)
	}
	err := e.scratch(func(*os.File) error { return nil })
	if err == nil {
		return []doctor.Finding{f}
	}
	f.Status, f.Seen, f.Want = doctor.Failure, err.Error(), "a folder that this user may write to"
	switch {
	case errors.Is(err, unix.ENOTDIR):
		f.Remedy = "name a folder; this is a file: ls -ld " + fault.Quote(at)
	case errors.Is(err, unix.EROFS):
		f.Remedy = fmt.Sprintf("mount -o remount,rw \"$(findmnt -no TARGET -T %s)\"", fault.Quote(at))
	case errors.Is(err, fs.ErrPermission):
		f.Remedy = fmt.Sprintf("sudo install -d -o \"$(id -un)\" %s", fault.Quote(e.Folder))
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		f.Remedy = "make room: df -h " + fault.Quote(at)
	default:
		f.Remedy = "ls -ld " + fault.Quote(at)
	}
	return []doctor.Finding{f}
}

// judged converts the result of a test to a finding. Errors of the test file itself do not count.
func (e *examiner) judged(err error, ok, no doctor.Finding) []doctor.Finding {
	var path *fs.PathError
	f := ok
	switch {
	case err == nil:
	case errors.As(err, &path) && path.Op == "open":
		f = doctor.Finding{Status: doctor.Unknown, Seen: err.Error(), Remedy: "ls -ld " + fault.Quote(e.nearest())}
	default:
		f = no
		f.Seen += ": " + err.Error()
	}
	f.On = e.Folder
	return []doctor.Finding{f}
}

const mib = 1 << 20

// errTakesRoom is that a hole has blocks.
var errTakesRoom = errors.New("it takes room")

// holes makes one by truncating, and one by punching.
func (e *examiner) holes(context.Context) []doctor.Finding {
	err := e.scratch(func(file *os.File) error {
		if err := file.Truncate(64 * mib); err != nil {
			return err
		}
		if _, err := file.WriteAt(slices.Repeat([]byte{1}, mib), 0); err != nil {
			return err
		}
		if err := unix.Fallocate(int(file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, mib); err != nil {
			return fmt.Errorf("punch: %w", err)
		}
		var s unix.Stat_t
		if err := unix.Fstat(int(file.Fd()), &s); err != nil {
			return err
		}
		if s.Blocks*512 > 8*mib {
			return errTakesRoom
		}
		return nil
	})
	return e.judged(err, doctor.Finding{Seen: "holes take no room, and can be punched"}, doctor.Finding{
		Status: doctor.Warning, Seen: "no holes", Want: "a file system with holes, as ext4, XFS, Btrfs and ZFS are: here, images take their whole size",
		Remedy: "name another folder with --to, or let qcow2 leave them out: --format qcow2",
	})
}

// size makes a file as large as the largest disk, which takes no room.
func (e *examiner) size(context.Context) []doctor.Finding {
	if len(e.Disks) == 0 {
		return nil
	}
	largest := slices.MaxFunc(e.Disks, func(a, b Disk) int { return int((a.Size - b.Size) >> 9) })
	err := e.scratch(func(file *os.File) error { return unix.Ftruncate(int(file.Fd()), largest.Size) })
	return e.judged(err, doctor.Finding{Seen: fmt.Sprintf("a file of %.1f GiB can be made", float64(largest.Size)/gib)}, doctor.Finding{
		Status: doctor.Failure, Seen: fmt.Sprintf("a file of %.1f GiB, for %s, cannot be made", float64(largest.Size)/gib, largest.Name),
		Want: "files of any size: ext4 ends at 16 TiB, FAT at 4 GiB", Remedy: "mkfs.xfs a volume for it and name its folder with --to, or free this user of limits: ulimit -f unlimited",
	})
}

// direct writes a block past the page cache.
func (e *examiner) direct(context.Context) []doctor.Finding {
	err := e.scratch(func(file *os.File) error {
		direct, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", file.Fd()), os.O_WRONLY|unix.O_DIRECT, 0)
		if err != nil {
			return errors.Unwrap(err)
		}
		defer direct.Close()
		_, err = unix.Pwrite(int(direct.Fd()), disk.AlignedMemory(disk.MemoryAlign), 0)
		return err
	})
	return e.judged(err, doctor.Finding{Seen: "O_DIRECT works"}, doctor.Finding{
		Status: doctor.Advice, Seen: "no O_DIRECT", Want: "O_DIRECT: without it, writes go by the page cache, slower and at the cost of others",
		Remedy: "name a folder of ext4 or XFS with --to; on ZFS: zfs set direct=standard DATASET   # from OpenZFS 2.3 on",
	})
}

// reflink clones a file. Without it nothing fails; it is reported because it makes clones of images
// free.
func (e *examiner) reflink(context.Context) []doctor.Finding {
	err := e.scratch(func(from *os.File) error {
		if _, err := from.WriteAt(slices.Repeat([]byte{1}, mib), 0); err != nil {
			return err
		}
		return e.scratch(func(to *os.File) error { return unix.IoctlFileClone(int(to.Fd()), int(from.Fd())) })
	})
	return e.judged(err, doctor.Finding{Seen: "cp --reflink clones images at once"}, doctor.Finding{Seen: "no reflinks: a clone of an image is a copy"})
}
