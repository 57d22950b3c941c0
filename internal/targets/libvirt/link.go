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

// linkable reports whether an image can get a second name in its pool, and need not be copied: that is a
// folder of this machine that we may write to, on the file system where it waits.
func (j *job) linkable(i int) bool {
	folder := j.into[i].folder
	return !j.into[i].block && j.at.transport == "unix" && unix.Access(folder, unix.W_OK|unix.X_OK) == nil && sameDevice(filepath.Dir(j.Images[i].Path), folder)
}

// linkAll gives all images that can have them names in their pools, and returns their volumes. They keep
// those they have, so that a delivery which fails takes nothing away. Where libvirt does not see them,
// its folder is not ours, whatever it is called: then there are no volumes, and no names.
func (j *job) linkAll(ctx context.Context) ([]rpc.Volume, error) {
	links := 0
	for i, img := range j.Images {
		if !j.linkable(i) {
			continue
		}
		links++
		if err := link(img.Path, j.linked(i)); err != nil {
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

// linked is the i-th image's name in the pool.
func (j *job) linked(i int) string {
	return filepath.Join(j.into[i].folder, volumeName(j.maps, j.VM, i, j.Images[i].Format))
}

// unlinkAll takes the names in the pool away again.
func (j *job) unlinkAll() error {
	var errs []error
	for i, img := range j.Images {
		if sameFile(img.Path, j.linked(i)) {
			errs = append(errs, os.Remove(j.linked(i)))
		}
	}
	return errors.Join(errs...)
}

// release takes from the stage what is in the pool now: a VM that runs must change no image that
// somebody kept.
func (j *job) release() error {
	if j.at.transport != "unix" {
		return nil
	}
	var errs []error
	for i, img := range j.Images {
		if sameFile(img.Path, j.linked(i)) {
			errs = append(errs, os.Remove(img.Path))
		}
	}
	return errors.Join(errs...)
}

// sameFile reports whether two paths name one file.
func sameFile(a, b string) bool {
	s, err := os.Lstat(a)
	if err != nil {
		return false
	}
	t, err := os.Lstat(b)
	return err == nil && os.SameFile(s, t)
}

// link gives a file a second name, which nobody else has.
func link(from, to string) error {
	err := os.Link(from, to)
	if errors.Is(err, unix.EEXIST) {
		if sameFile(from, to) {
			return nil
		}
		return fault.New(fault.Conflict, "%s is there already", to).WithHint("see what it is, and move it away: ls -l %s", fault.Quote(to))
	}
	if err != nil {
		return fmt.Errorf("link %s to %s: %w", from, to, err)
	}
	return nil
}

// ignoreUnable leaves out that a file system has no links: images are uploaded then.
func ignoreUnable(err error) error {
	for _, unable := range []unix.Errno{unix.EPERM, unix.EACCES, unix.EXDEV, unix.EOPNOTSUPP, unix.EMLINK} {
		if errors.Is(err, unable) {
			return nil
		}
	}
	return err
}
