package manifest

import (
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
)

// After random appends, drops, growth, reopens and seals a log has the same chunks as a simple model.
func TestLogAgreesWithModel(t *testing.T) {
	for seed := range uint64(30) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		info := testInfo(1 + rnd.Int64N(300))
		path := filepath.Join(t.TempDir(), "m")
		l, model := mustCreate(t, path, info), map[int64]Hash{}
		for range 60 {
			first := rnd.Int64N(info.Chunks())
			n := 1 + rnd.Int64N(info.Chunks()-first)
			switch op := rnd.IntN(11); {
			case op < 4:
				r := Run{First: first}
				for c := first; c < first+n; c++ {
					model[c] = testHash(rnd.Int64())
					r.Hashes = append(r.Hashes, model[c])
				}
				mustAppend(t, l, r)
			case op < 6:
				for c := first; c < first+n; c++ {
					model[c] = info.zeroHash(c)
				}
				mustAppend(t, l, Run{First: first, Zeros: n})
			case op < 8:
				for c := first; c < first+n; c++ {
					delete(model, c)
				}
				if err := l.Drop(first, n); err != nil {
					t.Fatal(err)
				}
			case op < 9:
				mustClose(t, l)
				l = mustOpen(t, path)
			case op < 10:
				info = growTo(t, l, model, info.Size+rnd.Int64N(20*ChunkSize))
			default:
				sealAndCompare(t, l, model)
			}
			compareDurable(t, l, model)
		}
		mustAppend(t, l, Run{Zeros: info.Chunks()})
		for c := range info.Chunks() {
			model[c] = info.zeroHash(c)
		}
		sealAndCompare(t, l, model)
		mustClose(t, l)
	}
}

// growTo grows the disk to size, in the log and in the model.
func growTo(t *testing.T, l *Log, model map[int64]Hash, size int64) Info {
	t.Helper()
	if was := l.Info(); size > was.Size && was.Size%ChunkSize > 0 {
		delete(model, was.Chunks()-1)
	}
	if err := l.Grow(t.Context(), size); err != nil {
		t.Fatal(err)
	}
	if l.Info().Size != size {
		t.Fatalf("grown to %d bytes, want %d", l.Info().Size, size)
	}
	return l.Info()
}

func compareDurable(t *testing.T, l *Log, model map[int64]Hash) {
	t.Helper()
	for c := range l.Chunks() {
		if _, has := model[c]; has != l.Has(c) {
			t.Fatalf("chunk %d: has %v, want %v", c, l.Has(c), has)
		}
	}
	if l.Missing() != l.Chunks()-int64(len(model)) {
		t.Fatalf("%d missing, want %d", l.Missing(), l.Chunks()-int64(len(model)))
	}
}

func sealAndCompare(t *testing.T, l *Log, model map[int64]Hash) {
	t.Helper()
	if !l.Complete() {
		return
	}
	root := mustSeal(t, l)
	s := mustLoad(t, l.path)
	var want []Hash
	for c := range l.Chunks() {
		want = append(want, model[c])
	}
	if got := hashesOf(t, s, 11); !slices.Equal(got, want) || s.Root() != root {
		t.Fatal("the sealed hashes differ from the model")
	}
}
