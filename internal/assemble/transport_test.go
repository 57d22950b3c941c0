package assemble

import (
	"os"
	"path/filepath"
	"testing"
)

func TestMemAvailable(t *testing.T) {
	for text, want := range map[string]int64{
		"MemTotal: 100 kB\nMemAvailable:   23921056 kB\n": 23921056 << 10,
		"MemTotal: 100 kB\n":                              0,
		"MemAvailable: many kB\n":                         0,
		"MemAvailable:":                                   0,
	} {
		if n, ok := memAvailable([]byte(text)); n != want || ok != (want > 0) {
			t.Errorf("%q: got %d, %v; want %d", text, n, ok, want)
		}
	}
}

func TestGroupMemory(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		limit, used string
		want        int64
		limited     bool
	}{
		{"max\n", "5\n", 0, false},
		{"100\n", "30\n", 70, true},
		{"100\n", "130\n", 0, true},
	} {
		for name, text := range map[string]string{"memory.max": c.limit, "memory.current": c.used} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if n, limited := cgroupMemory(dir); limited != c.limited || limited && n != c.want {
			t.Errorf("limit %q, used %q: got %d, %v; want %d, %v", c.limit, c.used, n, limited, c.want, c.limited)
		}
	}
	if _, limited := cgroupMemory(filepath.Join(dir, "none")); limited {
		t.Error("a group without files has a limit")
	}
}
