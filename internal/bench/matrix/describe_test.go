package matrix

import (
	"testing"

	"github.com/decamp/decamp/internal/bench"
)

const someMounts = `22 1 259:1 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p1 rw
30 22 0:40 / /srv rw - tmpfs tmpfs rw
31 30 8:1 / /srv/with\040blank rw - xfs /dev/sda1 rw
32 30 8:2 / /srv/with\040blank rw - btrfs /dev/sdb1 rw
bad line
`

func TestMountOf(t *testing.T) {
	for path, want := range map[string]string{
		"/":                 "ext4 on /dev/nvme0n1p1",
		"/srvx":             "ext4 on /dev/nvme0n1p1",
		"/srv/a":            "tmpfs on tmpfs",
		"/srv/with blank/x": "btrfs on /dev/sdb1",
	} {
		if got := mountOf([]byte(someMounts), path); got != want {
			t.Errorf("mountOf(%s) = %q, want %q", path, got, want)
		}
	}
}

func TestDescribe(t *testing.T) {
	var on bench.Conditions
	if err := Describe(&on, Cell{Folders: []string{t.TempDir()}}); err != nil || on.Kernel == "" || on.Cores < 1 || on.Storage == "" {
		t.Errorf("conditions are %+v, %v", on, err)
	}
	if got := modelName([]byte("processor : 0\nmodel name\t: A fast one\nmodel name : B\n")); got != "A fast one" {
		t.Errorf("model name is %q", got)
	}
}

func FuzzMountOf(f *testing.F) {
	f.Add([]byte(someMounts), "/srv/a")
	f.Fuzz(func(_ *testing.T, text []byte, path string) { mountOf(text, path) })
}
