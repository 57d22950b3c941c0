package hive

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/guest/budget/budgettest"
	"github.com/decamp/decamp/internal/guest/hive/hivetest"
)

// readKeys reads the values and subkeys of a key down to the given depth, and returns the number of errors.
func readKeys(t testing.TB, k *Key, depth int) (failures int) {
	t.Helper()
	err := k.eachValue(func(name string, b []byte) (bool, error) {
		v, err := k.h.parseValue(name, b)
		if len(v.Data) > MaxValue {
			t.Errorf("value of %d bytes, want at most %d", len(v.Data), MaxValue)
		}
		v.Text()
		v.Texts()
		v.Number()
		return false, err
	})
	if err != nil {
		failures++
	}
	subs, err := k.Subkeys()
	if k.h.cells > 2*MaxCells {
		t.Errorf("%d cells were visited, want at most %d", k.h.cells, 2*MaxCells)
	}
	if err != nil {
		return failures + 1
	}
	for _, sub := range subs[:min(len(subs), 8)] {
		if depth > 0 {
			failures += readKeys(t, sub, depth-1)
		}
	}
	return failures
}

func readHive(t testing.TB, data []byte) int {
	b := budgettest.New(t)
	defer budgettest.Charged(t, b)()
	h, err := Open(b, bytes.NewReader(data))
	if err != nil {
		return 1
	}
	root, err := h.Key("")
	if err != nil {
		return 1
	}
	return readKeys(t, root, 3)
}

func TestFlippedBits(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	sound, _ := newWideHive()
	if n := readHive(t, sound); n != 0 {
		t.Fatalf("%d errors in an undamaged hive", n)
	}
	r := rand.New(rand.NewPCG(1, 2))
	detected := 0
	const rounds = 3000
	for range rounds {
		data := bytes.Clone(sound)
		for range 1 + r.IntN(8) {
			data[4096+r.IntN(1024)] ^= 1 << r.IntN(8) // the keys and lists are at the beginning
		}
		if readHive(t, data) > 0 {
			detected++
		}
	}
	if detected < rounds/4 {
		t.Errorf("damage was detected in %d of %d hives, want at least %d", detected, rounds, rounds/4)
	}
}

func TestDirtyHives(t *testing.T) {
	tests := map[string]struct {
		damage func(b []byte)
		dirty  bool
	}{
		"undamaged":      {func([]byte) {}, false},
		"written to":     {func(b []byte) { b[4]++; hivetest.Seal(b) }, true},
		"torn":           {func(b []byte) { b[12]++ }, true},
		"new checksum":   {func(b []byte) { b[12]++; hivetest.Seal(b) }, false},
		"wrong checksum": {func(b []byte) { b[508]++ }, true},
	}
	for name, tt := range tests {
		b := hivetest.Empty()
		tt.damage(b)
		if h := openHive(t, b); h.Dirty() != tt.dirty {
			t.Errorf("%s: Dirty is %v, want %v", name, h.Dirty(), tt.dirty)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	for name, damage := range map[string]func(b []byte){
		"mark":    func(b []byte) { b[0] = 'x' },
		"version": func(b []byte) { b[20] = 2 },
	} {
		b := hivetest.Empty()
		damage(b)
		if _, err := Open(budgettest.New(t), bytes.NewReader(b)); err == nil {
			t.Errorf("Open accepts a damaged header: %s", name)
		}
	}
	if _, err := Open(budgettest.New(t), strings.NewReader("regf")); err == nil {
		t.Error("Open accepts four bytes")
	}
}

// A list of lists that contains itself is refused, and so are two that contain each other.
func TestCyclicList(t *testing.T) {
	data, _ := newWideHive()
	h := openHive(t, data)
	root, err := h.Key("")
	if err != nil {
		t.Fatal(err)
	}
	listAt := func(offset uint32) []byte { return data[4096+offset+4:] }
	outer := listAt(root.subkeyList)
	inner := listAt(le32(outer, 4))
	requireRefusal := func() {
		t.Helper()
		if _, err := openHive(t, data).Key("alpha"); err == nil || !strings.Contains(err.Error(), `kind "ri"`) {
			t.Errorf("got %v, want an error about a list of the kind ri", err)
		}
	}
	copy(inner, "ri")
	binary.LittleEndian.PutUint32(inner[4:], root.subkeyList)
	requireRefusal()
	for i := range 3 {
		binary.LittleEndian.PutUint32(outer[4+4*i:], root.subkeyList)
	}
	requireRefusal()
}

// FuzzHive patches a real hive and reads all of it.
func FuzzHive(f *testing.F) {
	sound, _ := newWideHive()
	f.Add(36, []byte{1})
	f.Add(4096+32, bytes.Repeat([]byte{0xff}, 32))
	f.Add(4096+36+28, []byte{0x20, 0, 0, 0})
	f.Fuzz(func(t *testing.T, at int, patch []byte) {
		if at < 0 || at >= len(sound) {
			return
		}
		data := bytes.Clone(sound)
		copy(data[at:], patch)
		readHive(t, data)
	})
}
