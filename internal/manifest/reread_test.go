package manifest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

func TestSampleContainsItsRequiredChunks(t *testing.T) {
	t.Parallel()
	info := Info{Disk: "2000", Size: 40960*ChunkSize - 512, Source: "test"}
	s := Sample{First: 3*ChunkSize + 1, Random: 64, Metadata: []int64{7, 7, 2, 30000, -1, 40960}, Seed: [32]byte{1}}
	chunks, report := s.Of(info)
	for _, c := range []int64{0, 1, 2, 3, 7, 30000, 40959} {
		if !slices.Contains(chunks, c) {
			t.Errorf("chunk %d is not in the sample %s", c, report.List)
		}
	}
	if len(chunks) != 71 || report.Random != 64 || report.Metadata != 2 || report.Of != 40960 || report.Chunks != 0 {
		t.Errorf("%d chunks, %+v", len(chunks), report)
	}
	if !slices.IsSorted(chunks) || len(slices.Compact(slices.Clone(chunks))) != len(chunks) {
		t.Errorf("chunks %v", chunks)
	}
	if !strings.HasPrefix(report.List, "0-3,7,") || !strings.HasSuffix(report.List, "40959") {
		t.Errorf("list %s", report.List)
	}
}

// The same seed selects the same chunks, and another seed others. The journal records the seed.
func TestSampleFollowsItsSeed(t *testing.T) {
	t.Parallel()
	info := Info{Disk: "2000", Size: 40960 * ChunkSize, Source: "test"}
	s := Sample{Random: 64, Seed: [32]byte{31: 9}}
	chunks, report := s.Of(info)
	again, same := s.Of(info)
	s.Seed[0] = 1
	other, _ := s.Of(info)
	if !slices.Equal(chunks, again) || report != same || slices.Equal(chunks, other) || report.Seed != fmt.Sprintf("%062d09", 0) {
		t.Errorf("%v, %v, %v; seed %s", chunks, again, other, report.Seed)
	}
}

// With many seeds, all chunks are selected about equally often.
func TestSampleSelectsAllChunksEvenly(t *testing.T) {
	t.Parallel()
	info := Info{Disk: "2000", Size: 100 * ChunkSize, Source: "test"}
	var times [100]int
	for seed := range 2000 {
		chunks, _ := Sample{Random: 10, Seed: [32]byte{byte(seed), byte(seed >> 8)}}.Of(info)
		for _, c := range chunks {
			times[c]++
		}
	}
	for c, n := range times[1:99] { // expected: 204, which is 10 of 98 chunks 2000 times
		if n < 130 || n > 290 {
			t.Errorf("chunk %d was selected %d times", c+1, n)
		}
	}
}

func TestSampleOfSmallDisks(t *testing.T) {
	t.Parallel()
	for size, want := range map[int64]int64{512: 1, ChunkSize: 1, ChunkSize + 512: 2, 66 * ChunkSize: 66, 67 * ChunkSize: 66} {
		chunks, report := Sample{First: ChunkSize, Random: 64, Metadata: []int64{0}}.Of(Info{Disk: "1", Size: size, Source: "test"})
		if int64(len(chunks)) != want {
			t.Errorf("%d bytes: %d chunks, %+v", size, len(chunks), report)
		}
	}
}

func TestCompareReportsItsCounts(t *testing.T) {
	t.Parallel()
	src := disk.NewPattern(200*ChunkSize + 512)
	var paced atomic.Int64
	report, err := Sample{Random: 20, Metadata: []int64{50}}.Compare(t.Context(), src, newSealed(t, src), func(_ context.Context, n int64) error { paced.Add(n); return nil })
	if err != nil || report.Chunks != 23 || report.Bytes != 22*ChunkSize+512 || paced.Load() != report.Bytes {
		t.Fatalf("%+v, %v; %d bytes paced", report, err, paced.Load())
	}
	if got := report.String(); got != "23 of 201 chunks equal" {
		t.Error(got)
	}
	report.Chunks, report.Of = 1234567, 12345678
	if got := report.String(); got != "1,234,567 of 12,345,678 chunks equal" {
		t.Error(got)
	}
	if got := (Reread{Chunks: 48, Of: 48}).String(); got != "all 48 chunks equal" {
		t.Error(got)
	}
	if got := (Reread{Of: 48, NotRead: "turned off"}).String(); got != "none: turned off" {
		t.Error(got)
	}
}

// Compare finds a wrong bit anywhere in a chunk of the sample, and names the chunk. It does not read other chunks.
func TestCompareFindsBits(t *testing.T) {
	t.Parallel()
	src := disk.NewPattern(200*ChunkSize + 512)
	m := newSealed(t, src)
	s := Sample{Random: 5, Metadata: []int64{50}, Seed: [32]byte{3}}
	chunks, _ := s.Of(m.Info())
	for _, c := range chunks {
		at := m.Info().Chunk(c)
		for _, off := range []int64{at.Off, at.End() - 1} {
			_, err := s.Compare(t.Context(), &faultySource{Source: src, flip: map[int64]byte{off: 4}}, m, nil)
			if !fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), fmt.Sprintf("disk 2001 at %d: ", at.Off)) || fault.HintOf(err) == "" {
				t.Errorf("bit at %d: %v", off, err)
			}
		}
	}
	for c := range m.Info().Chunks() {
		if !slices.Contains(chunks, c) {
			if _, err := s.Compare(t.Context(), &faultySource{Source: src, flip: map[int64]byte{c * ChunkSize: 1}}, m, nil); err != nil {
				t.Errorf("bit of chunk %d, which is not in the sample: %v", c, err)
			}
			break
		}
	}
}

func TestFailedCompareReportsNoChunks(t *testing.T) {
	t.Parallel()
	src, broken := disk.NewPattern(8*ChunkSize), errors.New("gone")
	m := newSealed(t, src)
	report, err := Sample{Random: 8}.Compare(t.Context(), &faultySource{Source: src, err: broken, errAt: 4 * ChunkSize}, m, nil)
	if !errors.Is(err, broken) || report.Chunks != 0 || report.Bytes != 0 {
		t.Errorf("%+v, %v", report, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if report, err := (Sample{Random: 8}).Compare(ctx, src, m, nil); !errors.Is(err, context.Canceled) || report.Chunks != 0 {
		t.Errorf("canceled: %+v, %v", report, err)
	}
	if _, err := (Sample{}).Compare(t.Context(), disk.NewPattern(9*ChunkSize), m, nil); !fault.Is(err, fault.Conflict) {
		t.Errorf("another size: %v", err)
	}
	if report, err := (Sample{Random: 8}).Compare(t.Context(), src, m, nil); err != nil || !reflect.DeepEqual(report, Reread{Chunks: 8, Of: 8, Bytes: 8 * ChunkSize, Random: 6, Seed: report.Seed, List: "0-7"}) {
		t.Errorf("%+v, %v", report, err)
	}
}
