package diskspace

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// df is who everybody believes.
func TestSizeIsThatOfDF(t *testing.T) {
	folder := t.TempDir()
	out, err := exec.Command("df", "-B1", "--output=size", folder).Output()
	if err != nil {
		t.Fatal(err)
	}
	s, err := At(folder)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Fields(string(out)); len(got) != 2 || got[1] != fmt.Sprint(s.Size) || s.Available > s.Free || s.Free > s.Size {
		t.Errorf("df says %q, At %+v", out, s)
	}
	if _, err := At(folder + "/none"); err == nil || !strings.Contains(err.Error(), folder+"/none") {
		t.Errorf("a folder that is not there: %v", err)
	}
}

// An NFS mount says that it likes 1 MiB at once; its blocks are of 4 KiB.
func TestBlocksAreFragments(t *testing.T) {
	st := unix.Statfs_t{Bsize: 1 << 20, Frsize: 4096, Blocks: 100, Bfree: 50, Bavail: 40}
	if got := Of(&st); got != (Space{Size: 100 << 12, Free: 50 << 12, Available: 40 << 12}) {
		t.Errorf("%+v", got)
	}
	st.Frsize = 0
	if got := Of(&st); got.Size != 100<<20 {
		t.Errorf("without fragments: %+v", got)
	}
}
