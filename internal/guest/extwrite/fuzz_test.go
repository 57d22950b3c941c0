package extwrite

import (
	"bytes"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/guest/budget/budgettest"
)

// FuzzDamaged patches a real file system and writes to it. It checks that there is no panic, and that memory
// and work stay within their limits.
func FuzzDamaged(f *testing.F) {
	var images [][]byte
	for _, form := range []form{
		{"ext4 without checksums", "1M", []string{"-t", "ext4", "-b", "1024", "-N", "64", "-O", "^metadata_csum,^uninit_bg,^has_journal"}},
		{"ext2", "1M", []string{"-t", "ext2", "-b", "1024", "-N", "64"}},
	} {
		image := &memory{}
		image.load(f, form.makeImage(f, smallTree(f)))
		images = append(images, image.data)
	}
	f.Add(0, 0, []byte{}, "etc/fstab")
	f.Add(1, 1024+0x28, []byte{1, 0, 0, 0}, "etc/new")
	f.Add(0, 2048, bytes.Repeat([]byte{0xff}, 64), "etc/new")
	f.Add(1, 5*1024, bytes.Repeat([]byte{0x11}, 300), "link/x")
	f.Fuzz(func(t *testing.T, which, at int, patch []byte, path string) {
		data := bytes.Clone(images[which&1])
		if at < 0 || at >= len(data) {
			return
		}
		copy(data[at:], patch)
		b := budgettest.New(t)
		defer budgettest.Charged(t, b)()
		fs, err := Open(b.ReadWriter(&memory{data}), func() time.Time { return fixedTime })
		if err != nil {
			return
		}
		_ = fs.WriteFile(path, pattern(5000), Attr{Mode: 0o644})
		_ = fs.AppendFile(path, pattern(3000))
		_ = fs.Mkdir(path, Attr{})
		_ = fs.Symlink(path+"l", "x")
		_, _ = fs.Names(path)
		if held := int64(len(fs.stage.staged)+len(fs.stage.clean)) * fs.super.blockSize; held > 64<<20 {
			t.Errorf("%d bytes are in memory for a file system of %d bytes", held, len(data))
		}
		_ = fs.Flush()
	})
}
