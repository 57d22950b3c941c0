package diskspace

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// At returns the size that df prints.
func TestSizeMatchesDF(t *testing.T) {
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
		t.Errorf("df prints %q, At returns %+v", out, s)
	}
	if _, err := At(folder + "/none"); err == nil || !strings.Contains(err.Error(), folder+"/none") {
		t.Errorf("missing folder: got %v, want an error with its path", err)
	}
}

// Sizes are in units of Frsize. On NFS, Bsize is the preferred request size, for example 1 MiB.
func TestBlocksAreFragments(t *testing.T) {
	st := unix.Statfs_t{Bsize: 1 << 20, Frsize: 4096, Blocks: 100, Bfree: 50, Bavail: 40}
	if got := Of(&st); got != (Space{Size: 100 << 12, Free: 50 << 12, Available: 40 << 12}) {
		t.Errorf("got %+v", got)
	}
	st.Frsize = 0
	if got := Of(&st); got.Size != 100<<20 {
		t.Errorf("without fragments: %+v", got)
	}
}
