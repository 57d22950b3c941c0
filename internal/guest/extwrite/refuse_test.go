package extwrite

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/guest/budget"
	"github.com/decamp/decamp/internal/guest/budget/budgettest"
)

// Open refuses a file system with an unsupported feature. The error names the feature. Only the superblock is read.
func TestFeaturesAreRefusedByName(t *testing.T) {
	for feature, args := range map[string][]string{
		"inline_data": {"-O", "inline_data"},
		"bigalloc":    {"-O", "bigalloc"},
		"encrypt":     {"-O", "encrypt"},
		"verity":      {"-O", "verity"},
		"casefold":    {"-O", "casefold"},
		"quota":       {"-O", "quota"},
		"project":     {"-O", "quota,project"},
		"mmp":         {"-O", "mmp"},
		"meta_bg":     {"-O", "meta_bg,^resize_inode"},
		"ea_inode":    {"-O", "ea_inode"},
	} {
		t.Run(feature, func(t *testing.T) {
			f := form{feature, "32M", append([]string{"-t", "ext4"}, args...)}
			err := openFault(t, f.makeImage(t, ""))
			if !fault.Is(err, fault.Unsupported) || !strings.Contains(err.Error(), feature) || fault.HintOf(err) == "" {
				t.Errorf("got %v, want an unsupported error about %s", err, feature)
			}
		})
	}
}

// openFault opens an image and returns the error. It requires that only the superblock is read.
func openFault(t *testing.T, path string) error {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d := budgettest.ReadWriter(t, f)
	_, err = Open(d, time.Now)
	if got := d.Budget().Used().Read; got != superSize {
		t.Errorf("Open has read %d bytes, want %d", got, superSize)
	}
	return err
}

func TestUncleanFileSystemIsRefused(t *testing.T) {
	tests := []struct {
		name, form, request string
		kind                fault.Kind
		want                string
	}{
		{"journal", "ext4", "feature needs_recovery", fault.Conflict, "not shut down cleanly"},
		{"mounted", "ext2", "ssv state 0", fault.Conflict, "not shut down cleanly"},
		{"orphans", "ext4", "ssv last_orphan 12", fault.Conflict, "not shut down cleanly"},
		{"errors", "ext4", "ssv state 3", fault.Corrupt, "found errors"},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			path := formNamed(t, c.form).makeImage(t, "")
			runProgram(t, "debugfs", "-w", "-R", c.request, path)
			err := openFault(t, path)
			if !fault.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) || fault.HintOf(err) == "" {
				t.Errorf("got %v, want an error about %q with a remedy", err, c.want)
			}
		})
	}
}

// Damage that a checksum detects is an error, and nothing is written.
func TestChecksumDetectsDamage(t *testing.T) {
	tests := []struct {
		name   string
		damage func(image []byte)
		change func(fs *FS) error
		want   string
	}{
		{"superblock", func(p []byte) { p[1024+0x30] ^= 1 }, nil, "checksum"},
		{"root inode", nil, nil, "checksum of inode"},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			image := &memory{}
			image.load(t, formNamed(t, "ext4").makeImage(t, seedTree(t)))
			if c.damage == nil {
				fs := openMemory(t, image)
				block, off, err := fs.inodes.locateInode(rootInode)
				if err != nil {
					t.Fatal(err)
				}
				image.data[block*fs.super.blockSize+off+8] ^= 1
			} else {
				c.damage(image.data)
			}
			before := bytes.Clone(image.data)
			fs, err := Open(budgettest.ReadWriter(t, image), time.Now)
			if err == nil {
				err = fs.WriteFile("etc/new", nil, Attr{})
				if flushErr := fs.Flush(); flushErr != nil {
					t.Error(flushErr)
				}
			}
			if !bytes.Equal(image.data, before) {
				t.Error("the failed call has changed the disk")
			}
			if !fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want a corrupt error about the %s", err, c.want)
			}
		})
	}
}

// Appending to a file rewrites it. If the file has a large hole, which uses no space on the disk, the memory budget
// limits this.
func TestAppendToAHoleIsLimited(t *testing.T) {
	dir := t.TempDir()
	hole := filepath.Join(dir, "etc/hole")
	if err := errors.Join(os.Mkdir(filepath.Dir(hole), 0o755), os.WriteFile(hole, []byte("begin"), 0o600), os.Truncate(hole, 100<<20)); err != nil {
		t.Fatal(err)
	}
	o := openImage(t, formNamed(t, "ext4").makeImage(t, dir))
	var limit *budget.Error
	if err := o.AppendFile("/etc/hole", []byte("end")); !errors.As(err, &limit) || !strings.Contains(err.Error(), "memory") {
		t.Errorf("got %v, want an error about the memory budget", err)
	}
	checkCharge(t, o.stage)
}

// checkCharge requires that exactly the blocks in memory are charged to the budget.
func checkCharge(t *testing.T, s *stage) {
	t.Helper()
	blocks := int64(len(s.pending) + len(s.staged) + len(s.clean))
	if u := s.disk.Budget().Used(); u.Memory != blocks*s.blockSize {
		t.Errorf("%d blocks of %d bytes are in memory, charged: %+v", blocks, s.blockSize, u)
	}
}

// All blocks in memory are charged: blocks that were read, blocks of failed calls, and several versions of a
// block.
func TestBlocksInMemoryAreCharged(t *testing.T) {
	o := openImage(t, formNamed(t, "ext4").makeImage(t, seedTree(t)))
	for step, err := range []error{
		o.WriteFile("etc/new", make([]byte, 100_000), Attr{}),
		o.WriteFile("etc/new", make([]byte, 50_000), Attr{}),
		o.AppendFile("etc/new", make([]byte, 50_000)),
		errorOf(o.ReadFile("etc/fstab", 1<<20)),
	} {
		if err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
		checkCharge(t, o.stage)
	}
	if err := o.Mkdir("etc/many", Attr{}); err == nil || len(o.stage.staged) < 20 {
		t.Fatalf("%v, %d staged blocks", err, len(o.stage.staged))
	}
	checkCharge(t, o.stage)
	if err := o.Flush(); err != nil {
		t.Fatal(err)
	}
	if u := o.stage.disk.Budget().Used(); u.Memory != 0 {
		t.Errorf("after Flush: %+v", u)
	}
}

// Staged changes that exceed the memory budget are refused, even if they are below maxStaged.
func TestStagedChangesAreLimited(t *testing.T) {
	o := openImage(t, formNamed(t, "ext4 large").makeImage(t, ""))
	var limit *budget.Error
	if err := o.WriteFile("large", make([]byte, 80<<20), Attr{}); !errors.As(err, &limit) || !strings.Contains(err.Error(), "memory") {
		t.Errorf("80 MiB: %v", err)
	}
	if len(o.stage.pending) > 0 {
		t.Errorf("%d pending blocks remain", len(o.stage.pending))
	}
	checkCharge(t, o.stage)
}

// The cache of unchanged blocks is limited in bytes for every block size.
func TestBlockCacheIsLimited(t *testing.T) {
	for _, blockSize := range []int64{1 << 10, 4 << 10, 64 << 10} {
		image := &memory{data: make([]byte, 40<<20)}
		s := newStage(budgettest.ReadWriter(t, image), blockSize, 40<<20/blockSize)
		for n := range s.blocks {
			if _, err := s.readBlock(n); err != nil {
				t.Fatal(err)
			}
			if held := int64(len(s.clean)) * blockSize; held > maxClean {
				t.Fatalf("%d bytes are in memory, want at most %d", held, maxClean)
			}
		}
		checkCharge(t, s)
	}
}

func TestInvalidPathsAreRefused(t *testing.T) {
	fs := openImage(t, formNamed(t, "ext4").makeImage(t, seedTree(t)))
	runProgram(t, "debugfs", "-w", "-R", "sif /etc/empty flags 0x80010", fs.path) // chattr +i
	fs = openImage(t, fs.path)
	for name, c := range map[string]struct {
		err  error
		kind fault.Kind
	}{
		"not a folder":     {fs.WriteFile("etc/none/x", nil, Attr{}), fault.NotFound},
		"file as folder":   {fs.WriteFile("etc/fstab/x", nil, Attr{}), fault.NotFound},
		"folder as file":   {fs.WriteFile("etc", nil, Attr{}), fault.Unsupported},
		"append to none":   {fs.AppendFile("etc/none", nil), fault.NotFound},
		"protected":        {fs.WriteFile("etc/empty", nil, Attr{}), fault.Denied},
		"folder exists":    {fs.Mkdir("etc/many", Attr{}), fault.Conflict},
		"name of a link":   {fs.Mkdir("conf", Attr{}), fault.Conflict},
		"long name":        {fs.WriteFile(strings.Repeat("n", 256), nil, Attr{}), fault.Invalid},
		"long link":        {fs.Symlink("etc/link", strings.Repeat("n", 60)), fault.Invalid},
		"no name":          {fs.Mkdir("etc/..", Attr{}), fault.Invalid},
		"through nowhere":  {fs.WriteFile("long/x", nil, Attr{}), fault.NotFound},
		"larger than read": {errorOf(fs.ReadFile("boot/initrd", 100)), fault.Unsupported},
	} {
		if !fault.Is(c.err, c.kind) {
			t.Errorf("%s: %v, want kind %v", name, c.err, c.kind)
		}
	}
	if len(fs.stage.staged)+len(fs.stage.pending) != 0 {
		t.Error("refused calls left changes")
	}
	if got, err := fs.Readlink("long"); err != nil || len(got) != 91 {
		t.Errorf("target of a long link is %q, error %v", got, err)
	}
}

func errorOf(_ []byte, err error) error { return err }
