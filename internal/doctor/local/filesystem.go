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

// checkFolder creates a file in the folder.
func (e *examiner) checkFolder(context.Context) []doctor.Finding {
	at := e.nearestFolder()
	f := doctor.Finding{On: e.Folder, Found: "the folder is writable"}
	if at != e.Folder {
		f.Found = fmt.Sprintf("the folder can be created in %s", at)
	}
	err := e.withTempFile(func(*os.File) error { return nil })
	if err == nil {
		return []doctor.Finding{f}
	}
	f.Status, f.Found, f.Want = doctor.Failure, err.Error(), "a folder that this user may write to"
	switch {
	case errors.Is(err, unix.ENOTDIR):
		f.Remedy = "select a folder with --to; this is a file: ls -ld " + fault.Quote(at)
	case errors.Is(err, unix.EROFS):
		f.Remedy = fmt.Sprintf("mount -o remount,rw \"$(findmnt -no TARGET -T %s)\"", fault.Quote(at))
	case errors.Is(err, fs.ErrPermission):
		f.Remedy = fmt.Sprintf("sudo install -d -o \"$(id -un)\" %s", fault.Quote(e.Folder))
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		f.Remedy = "free space: df -h " + fault.Quote(at)
	default:
		f.Remedy = "ls -ld " + fault.Quote(at)
	}
	return []doctor.Finding{f}
}

// toFinding converts the result of a test: ok without an error, no otherwise. An error
// from opening a test file is Unknown.
func (e *examiner) toFinding(err error, ok, no doctor.Finding) []doctor.Finding {
	var path *fs.PathError
	f := ok
	switch {
	case err == nil:
	case errors.As(err, &path) && path.Op == "open":
		f = doctor.Finding{Status: doctor.Unknown, Found: err.Error(), Remedy: "ls -ld " + fault.Quote(e.nearestFolder())}
	default:
		f = no
		f.Found += ": " + err.Error()
	}
	f.On = e.Folder
	return []doctor.Finding{f}
}

// mib is the number of bytes of a mebibyte.
const mib = 1 << 20

// errTakesRoom is the error for a hole that has allocated blocks.
var errTakesRoom = errors.New("holes occupy space")

// checkHoles creates a hole by extending a file, and one by punching, and reads the
// allocated blocks.
func (e *examiner) checkHoles(context.Context) []doctor.Finding {
	err := e.withTempFile(func(file *os.File) error {
		// The file has a hole of 63 MiB. The data before it is then replaced by a hole.
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
		// A few blocks for metadata are normal.
		if s.Blocks*512 > 8*mib {
			return errTakesRoom
		}
		return nil
	})
	return e.toFinding(err, doctor.Finding{Found: "sparse files and hole punching work"}, doctor.Finding{
		Status: doctor.Warning, Found: "no sparse files; images occupy their full size", Want: "a file system with sparse files, such as ext4, XFS, Btrfs or ZFS",
		Remedy: "select another folder with --to, or add --format qcow2",
	})
}

// checkSize creates a sparse file with the size of the largest disk.
func (e *examiner) checkSize(context.Context) []doctor.Finding {
	if len(e.Disks) == 0 {
		return nil
	}
	largest := slices.MaxFunc(e.Disks, func(a, b Disk) int { return int((a.Size - b.Size) >> 9) })
	err := e.withTempFile(func(file *os.File) error { return unix.Ftruncate(int(file.Fd()), largest.Size) })
	return e.toFinding(err, doctor.Finding{Found: fmt.Sprintf("a file of %.1f GiB can be created", float64(largest.Size)/gib)}, doctor.Finding{
		Status: doctor.Failure, Found: fmt.Sprintf("cannot create a file of %.1f GiB for %s", float64(largest.Size)/gib, largest.Name),
		Want: "a file system without a limit below the size of the disk (ext4: 16 TiB, FAT: 4 GiB)", Remedy: "select a folder on XFS with --to, or remove the limit of this user: ulimit -f unlimited",
	})
}

// checkDirect writes a block with O_DIRECT.
func (e *examiner) checkDirect(context.Context) []doctor.Finding {
	err := e.withTempFile(func(file *os.File) error {
		// This path opens the same file again, with O_DIRECT.
		direct, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", file.Fd()), os.O_WRONLY|unix.O_DIRECT, 0)
		if err != nil {
			return errors.Unwrap(err)
		}
		defer direct.Close()
		_, err = unix.Pwrite(int(direct.Fd()), disk.AlignedMemory(disk.MemoryAlign), 0)
		return err
	})
	return e.toFinding(err, doctor.Finding{Found: "O_DIRECT works"}, doctor.Finding{
		Status: doctor.Advice, Found: "no O_DIRECT; writes use the page cache, which is slower", Want: "a file system with O_DIRECT",
		Remedy: "# select a folder on ext4 or XFS with --to; or on ZFS, OpenZFS 2.3 or later:\nzfs set direct=standard DATASET",
	})
}

// checkReflink clones a file. A missing reflink is no problem; the result shows whether
// clones of images are free.
func (e *examiner) checkReflink(context.Context) []doctor.Finding {
	err := e.withTempFile(func(from *os.File) error {
		if _, err := from.WriteAt(slices.Repeat([]byte{1}, mib), 0); err != nil {
			return err
		}
		return e.withTempFile(func(to *os.File) error { return unix.IoctlFileClone(int(to.Fd()), int(from.Fd())) })
	})
	return e.toFinding(err, doctor.Finding{Found: "cp --reflink clones images without a copy"}, doctor.Finding{Found: "no reflinks; clones of images are copies"})
}
