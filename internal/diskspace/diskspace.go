// Package diskspace returns the space of a file system. Blocks are counted in its fragments, as df
// counts them: on NFS and FUSE, the block size of statfs is the preferred size of transfers, up to a
// thousand times as much.
package diskspace

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Space is the space of a file system, in bytes.
type Space struct {
	Size      int64 // size of the file system
	Free      int64 // free space, including the part that is reserved for root
	Available int64 // part of Free that is not reserved for root
}

// At returns the space of the file system that folder is on.
func At(folder string) (Space, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(folder, &st); err != nil {
		return Space{}, fmt.Errorf("free space of %s: %w", folder, err)
	}
	return Of(&st), nil
}

// Of returns the space in the result of statfs.
func Of(st *unix.Statfs_t) Space {
	block := int64(st.Frsize)
	if block == 0 { // the file system has no fragments
		block = int64(st.Bsize)
	}
	return Space{Size: int64(st.Blocks) * block, Free: int64(st.Bfree) * block, Available: int64(st.Bavail) * block}
}
