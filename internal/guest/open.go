package guest

import (
	"github.com/decamp/decamp/internal/guest/budget"
	"github.com/decamp/decamp/internal/guest/tree"
)

// OpenTree returns the files of a file system of that kind, to be read; nil for a kind that
// cannot be read. Of btrfs it is the default subvolume's.
func OpenTree(kind FileSystem, r budget.Reader) (*tree.Tree, error) {
	t, _, err := openKind(kind, r)
	return t, err
}

// Subvolumes are where distributions keep the root in btrfs whose default subvolume has none:
// Fedora's, Ubuntu's and Debian's.
func Subvolumes() []string { return []string{"root", "@", "@rootfs"} }
