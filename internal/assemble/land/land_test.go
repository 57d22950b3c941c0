package land

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/assemble"
)

// A warning names each way in which local users reach the files of decamp land, and only those.
func TestLandWarnsOfLocalUsers(t *testing.T) {
	here := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1"), netip.MustParseAddr("10.0.1.5")}
	root, err := os.MkdirTemp("/var/tmp", "land") // other users may enter it, unlike t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	dir := filepath.Join(root, "land")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		above, mode os.FileMode
		allow       string
		want        []string
	}{
		{0o755, 0o700, "192.0.2.1/32", nil},
		{0o755, 0o750, "192.0.2.0/24", nil}, // the group may read it
		{0o755, 0o770, "192.0.2.0/24", []string{"-rwxrwx---"}},
		{0o755, 0o755, "192.0.2.0/24", []string{"-rwxr-xr-x"}},
		{0o755, 0o704, "192.0.2.0/24", []string{"-rwx---r--"}},
		{0o755, 0o701, "192.0.2.0/24", []string{"-rwx-----x"}},
		{0o700, 0o755, "192.0.2.0/24", nil}, // other users cannot reach it
		{0o755, 0o700, "127.0.0.1/32", []string{"127.0.0.1/32 includes its address 127.0.0.1"}},
		{0o755, 0o700, "::/0", []string{"::/0 includes its address ::1"}},
		{0o755, 0o700, "10.0.0.0/16", []string{"10.0.0.0/16 includes its address 10.0.1.5"}},
		{0o755, 0o777, "0.0.0.0/0", []string{"-rwxrwxrwx", "0.0.0.0/0 includes its address 127.0.0.1"}},
	} {
		for path, mode := range map[string]os.FileMode{root: c.above, dir: c.mode} {
			if err := os.Chmod(path, mode); err != nil {
				t.Fatal(err)
			}
		}
		got := localAccess(dir, assemble.Hosts{netip.MustParsePrefix(c.allow)}, here)
		ok := len(got) == len(c.want)
		for i := range min(len(got), len(c.want)) {
			want := strings.TrimPrefix(c.want[i], "-")
			ok = ok && strings.Contains(got[i], want)
		}
		if !ok {
			t.Errorf("%v below %v, --allow %s: %q, want %q", c.mode, c.above, c.allow, got, c.want)
		}
	}
	// The real addresses of this machine include loopback.
	if got := localAccess(dir, assemble.Hosts{netip.MustParsePrefix("127.0.0.0/8")}, ownAddresses()); len(got) != 2 {
		t.Errorf("got warnings %q, want 2", got)
	}
}
