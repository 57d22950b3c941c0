package mount

import "testing"

func TestParseMount(t *testing.T) {
	m, ok := parseMount(`36 35 0:98 / /mnt/esx\0401 rw,nosuid shared:1 master:2 - fuse.decamp esxi://root@esx1 rw,user_id=0`)
	if want := (mountEntry{dir: "/mnt/esx 1", kind: "fuse.decamp", minor: 98}); !ok || m != want {
		t.Errorf("got %+v, want %+v", m, want)
	}
	for _, bad := range []string{"", "36 35 0:98 / /mnt rw", "36 35 x / /mnt rw - ext4 a b", "a - ", "1 2 3:99999999999 / /m - ext4"} {
		if m, ok := parseMount(bad); ok {
			t.Errorf("%q: got %+v, want no entry", bad, m)
		}
	}
}

func FuzzMountTable(f *testing.F) {
	f.Add(`36 35 0:98 / /mnt/esx\0401 rw,nosuid shared:1 - fuse.decamp esxi://root@esx1 rw`)
	f.Add(`36 35 0:98 / /mnt/\777\0 rw - fuse a`)
	f.Fuzz(func(t *testing.T, line string) {
		if m, ok := parseMount(line); ok && (m.kind == "" || len(m.dir) > len(line)) {
			t.Fatalf("%q: got invalid entry %+v", line, m)
		}
	})
}
