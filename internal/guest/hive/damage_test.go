package hive

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/guest/budget/budgettest"
	"github.com/decamp/decamp/internal/guest/hive/hivetest"
)

// survey reads all there is below a key, folded at depth, and returns what went wrong.
func survey(t testing.TB, k *Key, depth int) (failures int) {
	t.Helper()
	err := k.eachValue(func(name string, b []byte) (bool, error) {
		v, err := k.h.parseValue(name, b)
		if len(v.Data) > MaxValue {
			t.Errorf("a value of %d bytes", len(v.Data))
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
		t.Errorf("%d cells were visited", k.h.cells)
	}
	if err != nil {
		return failures + 1
	}
	for _, sub := range subs[:min(len(subs), 8)] {
		if depth > 0 {
			failures += survey(t, sub, depth-1)
		}
	}
	return failures
}

func surveyAll(t testing.TB, data []byte) int {
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
	return survey(t, root, 3)
}

func TestFlippedBits(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	sound, _ := wide()
	if n := surveyAll(t, sound); n != 0 {
		t.Fatalf("%d errors in a sound hive", n)
	}
	r := rand.New(rand.NewPCG(1, 2))
	noticed := 0
	const rounds = 3000
	for range rounds {
		data := bytes.Clone(sound)
		for range 1 + r.IntN(8) {
			data[4096+r.IntN(1024)] ^= 1 << r.IntN(8) // the keys and lists are first
		}
		if surveyAll(t, data) > 0 {
			noticed++
		}
	}
	if noticed < rounds/4 {
		t.Errorf("%d of %d damaged hives were noticed", noticed, rounds)
	}
}

func TestDirtyHives(t *testing.T) {
	tests := map[string]struct {
		damage func(b []byte)
		dirty  bool
	}{
		"sound":          {func([]byte) {}, false},
		"written to":     {func(b []byte) { b[4]++; hivetest.Seal(b) }, true},
		"torn":           {func(b []byte) { b[12]++ }, true},
		"sealed anew":    {func(b []byte) { b[12]++; hivetest.Seal(b) }, false},
		"wrong checksum": {func(b []byte) { b[508]++ }, true},
	}
	for name, tt := range tests {
		b := hivetest.Empty()
		tt.damage(b)
		if h := open(t, b); h.Dirty() != tt.dirty {
			t.Errorf("%s: dirty is %v", name, h.Dirty())
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
			t.Errorf("%s: opened", name)
		}
	}
	if _, err := Open(budgettest.New(t), strings.NewReader("regf")); err == nil {
		t.Error("four bytes were opened")
	}
}

// Lists that contain each other, and one list many times, must not go on for ever.
func TestListThatBitesItsTail(t *testing.T) {
	data, _ := wide()
	h := open(t, data)
	root, err := h.Key("")
	if err != nil {
		t.Fatal(err)
	}
	cell := data[4096+root.subkeyList+4:]
	for i := range 3 {
		copy(cell[4+4*i:], []byte{byte(root.subkeyList), byte(root.subkeyList >> 8), byte(root.subkeyList >> 16), 0})
	}
	if _, err := open(t, data).Key("alpha"); err == nil || !strings.Contains(err.Error(), "kind") {
		t.Errorf("a list of lists in itself: %v", err)
	}
}

// FuzzHive patches a real hive and reads all of it.
func FuzzHive(f *testing.F) {
	sound, _ := wide()
	f.Add(36, []byte{1})
	f.Add(4096+32, bytes.Repeat([]byte{0xff}, 32))
	f.Add(4096+36+28, []byte{0x20, 0, 0, 0})
	f.Fuzz(func(t *testing.T, at int, patch []byte) {
		if at < 0 || at >= len(sound) {
			return
		}
		data := bytes.Clone(sound)
		copy(data[at:], patch)
		surveyAll(t, data)
	})
}
