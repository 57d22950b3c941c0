package convert

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/decamp/decamp/internal/guest/budget/budgettest"
)

func randomText(n int) string {
	p := make([]byte, n)
	rng := rand.New(rand.NewPCG(5, 6))
	for i := range p {
		p[i] = byte(rng.Uint32())
	}
	return string(p)
}

func TestSplitAppended(t *testing.T) {
	first := []byte("an initramfs of some kind")
	second := append(bytes.Clone(first), appendedData(len(first), []byte("packed"))...)
	third := append(bytes.Clone(second), appendedData(len(second), []byte("packed again"))...)
	got := splitAppended(third)
	if len(got) != 3 || !bytes.Equal(got[0], first) || !bytes.Equal(bytes.Join(got, nil), third) {
		t.Errorf("%d parts: %q", len(got), got)
	}
	for name, data := range map[string][]byte{"none": first, "truncated": third[:len(third)-1], "empty": nil, "mark alone": appendMark(0)} {
		if got := splitAppended(data); len(got) != 1 || !bytes.Equal(got[0], data) {
			t.Errorf("%s: %d parts", name, len(got))
		}
	}
	if len(second)%4 != 0 {
		t.Errorf("the appended part ends at %d, which is not a multiple of 4", len(second))
	}
}

// FuzzParts splits fuzzed data. The parts joined are the data.
func FuzzParts(f *testing.F) {
	f.Add(append([]byte("x"), appendedData(1, []byte("y"))...))
	f.Add(appendMark(7))
	f.Fuzz(func(t *testing.T, data []byte) {
		if !bytes.Equal(bytes.Join(splitAppended(data), nil), data) {
			t.Errorf("%q is split into %q", data, splitAppended(data))
		}
		_, _ = readInitramfs(budgettest.New(t), data, kernel{release: release})
	})
}
