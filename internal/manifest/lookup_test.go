package manifest

import (
	"path/filepath"
	"slices"
	"testing"
)

func TestLookupSeesTheNewestHash(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m")
	l := mustCreate(t, path, testInfo(10))
	mustAppend(t, l, Run{First: 0, Hashes: []Hash{testHash(1), testHash(2), testHash(3)}}, Run{First: 3, Zeros: 4})
	mustAppend(t, l, Run{First: 1, Hashes: []Hash{testHash(9)}})
	if err := l.Drop(2, 1); err != nil {
		t.Fatal(err)
	}
	check := func(l *Log) {
		t.Helper()
		for chunk, want := range map[int64]Hash{0: testHash(1), 1: testHash(9), 3: ZeroHash(ChunkSize)} {
			if got, ok, err := l.Hash(chunk); got != want || !ok || err != nil {
				t.Errorf("chunk %d: %v, %v, %v", chunk, got, ok, err)
			}
		}
		for _, chunk := range []int64{-1, 2, 7, 10} {
			if _, ok, err := l.Hash(chunk); ok || err != nil {
				t.Errorf("chunk %d is not safe but has a hash; %v", chunk, err)
			}
		}
		if got := l.Recent(3); !slices.Equal(got, []int64{1, 6, 5}) {
			t.Errorf("recent %v", got)
		}
		if got := l.Recent(100); slices.Contains(got, 2) || len(got) < 6 {
			t.Errorf("recent %v", got)
		}
	}
	check(l)
	mustClose(t, l)
	l = mustOpen(t, path)
	defer mustClose(t, l)
	check(l)
}

func TestLookupInASealedLog(t *testing.T) {
	l := mustCreate(t, filepath.Join(t.TempDir(), "m"), testInfo(5))
	defer mustClose(t, l)
	mustAppend(t, l, testRun(2, 3))
	mustAppend(t, l, testRun(0, 2))
	mustSeal(t, l)
	for c := range int64(5) {
		if got, ok, err := l.Hash(c); got != testHash(c) || !ok || err != nil {
			t.Errorf("chunk %d: %v, %v, %v", c, got, ok, err)
		}
	}
}
