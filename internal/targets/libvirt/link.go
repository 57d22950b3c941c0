package libvirt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/atomicfile"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/targets/libvirt/rpc"
)

// canLink reports whether the i-th image can get a hard link in its pool instead of a copy. The pool
// must be a writable
// folder of this host, in the same file system as the staging folder.
func (j *job) canLink(i int) bool {
	folder := j.into[i].folder
	return !j.into[i].block && j.at.transport == "unix" && unix.Access(folder, unix.W_OK|unix.X_OK) == nil && sameDevice(filepath.Dir(j.Images[i].Path), folder)
}

// linkAll creates hard links in the pools for all images that allow it, and returns the new volumes.
// The staged
// names remain, so that a failed delivery loses nothing. If libvirt does not list the links as volumes,
// its
// pool is another folder with the same path: then linkAll removes the links and returns no volumes.
func (j *job) linkAll(ctx context.Context) ([]rpc.Volume, error) {
	links := 0
	for i, img := range j.Images {
		if !j.canLink(i) {
			continue
		}
		links++
		if err := linkFile(img.Path, j.linkPath(i)); err != nil {
			return nil, errors.Join(ignoreUnable(err), j.unlinkAll())
		}
		if err := atomicfile.Sync(j.into[i].folder); err != nil {
			return nil, err
		}
	}
	if links == 0 {
		return nil, nil
	}
	volumes, err := ownVolumes(ctx, j.client, j.pools, j.VM, diskVolumes)
	if err != nil || len(volumes) == links {
		return volumes, err
	}
	return nil, j.unlinkAll()
}

// linkPath returns the path of the i-th image in its pool.
func (j *job) linkPath(i int) string {
	return filepath.Join(j.into[i].folder, volumeName(j.maps, j.VM, i, j.Images[i].Format))
}

// unlinkAll removes the links in the pools.
func (j *job) unlinkAll() error {
	var errs []error
	for i, img := range j.Images {
		if sameFile(img.Path, j.linkPath(i)) {
			errs = append(errs, os.Remove(j.linkPath(i)))
		}
	}
	return errors.Join(errs...)
}

// removeStaged removes the staged names of linked images, so that a running VM does not change a file
// in the
// staging folder. It does nothing for a remote libvirt.
func (j *job) removeStaged() error {
	if j.at.transport != "unix" {
		return nil
	}
	var errs []error
	for i, img := range j.Images {
		if sameFile(img.Path, j.linkPath(i)) {
			errs = append(errs, os.Remove(img.Path))
		}
	}
	return errors.Join(errs...)
}

// sameFile reports whether two paths refer to the same file. It returns false if one does not exist.
func sameFile(a, b string) bool {
	s, err := os.Lstat(a)
	if err != nil {
		return false
	}
	t, err := os.Lstat(b)
	return err == nil && os.SameFile(s, t)
}

// linkFile creates a hard link. An existing link to the same file is no error; another file is
// fault.Conflict.
func linkFile(from, to string) error {
	err := os.Link(from, to)
	if errors.Is(err, unix.EEXIST) {
		if sameFile(from, to) {
			return nil
		}
		return fault.New(fault.Conflict, "%s already exists", to).WithHint("check the file and move it away: ls -l %s", fault.Quote(to))
	}
	if err != nil {
		return fmt.Errorf("link %s to %s: %w", from, to, err)
	}
	return nil
}

// ignoreUnable returns nil for errors of file systems or accounts that do not permit hard links. The
// images are
// uploaded then.
func ignoreUnable(err error) error {
	for _, unable := range []unix.Errno{unix.EPERM, unix.EACCES, unix.EXDEV, unix.EOPNOTSUPP, unix.EMLINK} {
		if errors.Is(err, unable) {
			return nil
		}
	}
	return err
}
