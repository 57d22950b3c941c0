package guest

import (
	"bytes"
	"io"
	"testing"

	"github.com/decamp/decamp/internal/guest/bombs"
	"github.com/decamp/decamp/internal/guest/budget"
	"github.com/decamp/decamp/internal/guest/budget/budgettest"
	"github.com/decamp/decamp/internal/guest/ntfs"
	"github.com/decamp/decamp/internal/guest/tree"
	"github.com/decamp/decamp/internal/guest/tree/treetest"
)

// imageReader is an io.ReaderAt of the image of a bomb.
type imageReader struct {
	t     testing.TB
	image *bombs.Image
}

func (r imageReader) ReadAt(p []byte, off int64) (int, error) {
	return len(p), r.image.ReadAt(r.t.Context(), p, off)
}

// Every file system charges the names of a folder to the budget while it lists them.
func TestListingsAreCharged(t *testing.T) {
	openAs := func(kind FileSystem) func(r budget.Reader) (*tree.Tree, error) {
		return func(r budget.Reader) (*tree.Tree, error) { return OpenTree(kind, r) }
	}
	image := func(path string) io.ReaderAt { return bytes.NewReader(treetest.Unpacked(t, path)) }
	for _, tt := range []struct {
		kind   FileSystem
		r      io.ReaderAt
		folder string
		open   func(r budget.Reader) (*tree.Tree, error)
	}{
		{Ext4, imageReader{t, bombDisk(t, "configuration: 900 files of cards")}, "etc/systemd/network", openAs(Ext4)},
		{XFS, image("xfs/testdata/v5.img.gz"), "many", openAs(XFS)},
		{Btrfs, image("btrfs/testdata/kernel.img.gz"), "many", openAs(Btrfs)},
		{FAT, imageReader{t, bombDisk(t, "FAT: a root folder of 2 MiB")}, "/", openAs(FAT)},
		{NTFS, image("ntfs/testdata/ntfs.img.gz"), "many", func(r budget.Reader) (*tree.Tree, error) {
			v, err := ntfs.Open(r)
			if err != nil {
				return nil, err
			}
			return v.Tree()
		}},
	} {
		b := budgettest.New(t)
		files, err := tt.open(b.Reader(tt.r))
		if err != nil {
			t.Fatal(err)
		}
		folder, err := files.Open(tt.folder)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := folder.List(); err != nil { // fills the caches of the file system
			t.Fatal(err)
		}
		before := b.Used()
		entries, err := folder.List()
		if err != nil || len(entries) == 0 {
			t.Fatalf("%s: %d names, %v", tt.kind, len(entries), err)
		}
		const entry = 24
		want := int64(entry * len(entries))
		for _, e := range entries {
			want += int64(len(e.Name))
		}
		if u := b.Used(); u.Total-before.Total < want || u.Memory != before.Memory {
			t.Errorf("%s: %d names of %d bytes: before %+v, after %+v", tt.kind, len(entries), want, before, u)
		}
	}
}
