package main

import "testing"

func TestParseLimitValues(t *testing.T) {
	for _, c := range []struct {
		name, text string
		units      int64
	}{{"host:esx1/vms", "20", 20}, {"host:*/disks", "0", 0}, {"fleet:all/rate", "50M", 50_000_000}, {"target:dir:/srv/vm/rate", "0", 0}} {
		if n, err := limitOf(c.name, c.text); err != nil || n != c.units {
			t.Errorf("limit %s %s: got %d, %v; want %d", c.name, c.text, n, err, c.units)
		}
	}
	for name, text := range map[string]string{"host:esx1/vms": "-1", "host:esx1/disks": "many", "fleet:all/rate": "fast", "host:a/nfc": "9223372036854775807"} {
		if n, err := limitOf(name, text); err == nil {
			t.Errorf("limit %s %s: got %d, want an error", name, text, n)
		}
	}
}
