package guest

import (
	"context"
	"encoding/json"
	"os"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/guest/budget"
	"github.com/decamp/decamp/internal/guest/budget/budgettest"
)

// memory is a disk in memory that counts the bytes that are read.
type memory struct {
	data []byte
	read int64
}

func (m *memory) Size() int64       { return int64(len(m.data)) }
func (m *memory) Hints() disk.Hints { return disk.Hints{} }
func (m *memory) Close() error      { return nil }

func (m *memory) ReadAt(_ context.Context, p []byte, off int64) error {
	if err := disk.CheckRange(m.Size(), disk.Range{Off: off, Len: int64(len(p))}); err != nil {
		return err
	}
	m.read += int64(copy(p, m.data[off:]))
	return nil
}

func (m *memory) Extents(_ context.Context, r disk.Range) ([]disk.Extent, error) {
	return []disk.Extent{{Range: r}}, nil
}

// FuzzDetect overwrites the sectors of the partition tables with fuzzed bytes. Detect terminates within its
// limits, and the report can be encoded as JSON.
func FuzzDetect(f *testing.F) {
	mbr, gpt := readSample(f, "mbr.bin"), readSample(f, "gpt.bin")
	f.Add(mbr, []byte{}, 0)
	f.Add(gpt, gpt[len(gpt)-512:], 1<<20)
	f.Add(gpt[:512], []byte("LUKS\xba\xbe"), 2048*512)
	hole := make([]byte, 2<<20)
	if err := bombDisk(f, "NTFS: a hole of 2^63 bytes").ReadAt(f.Context(), hole, 0); err != nil {
		f.Fatal(err)
	}
	f.Add(hole[:512], hole[1<<20:][:44<<10], 1<<20)
	f.Fuzz(func(t *testing.T, start, piece []byte, at int) {
		const size = 2 << 20
		m := &memory{data: make([]byte, size)}
		copy(m.data, start)
		if at >= 0 && at < size {
			copy(m.data[at:], piece)
		}
		b := budgettest.New(t)
		r, err := detectAll(t.Context(), b, []disk.Source{m})
		if err != nil {
			t.Fatalf("detecting a readable disk: %v", err)
		}
		u := b.Used()
		if m.read > u.Read {
			t.Errorf("%d bytes read, %d charged", m.read, u.Read)
		}
		if l := budget.Examination(); u.Peak > l.Memory || (u.Read > l.Read || u.Steps > l.Steps) && Examined(r) == nil {
			t.Errorf("usage %+v exceeds the limits, warnings %v", u, r[0].Warnings)
		}
		if _, err := json.Marshal(r); err != nil {
			t.Error(err)
		}
	})
}

func readSample(f *testing.F, name string) []byte {
	f.Helper()
	data, err := os.ReadFile("testdata/" + name)
	if err != nil {
		f.Fatal(err)
	}
	return data
}

// FuzzParseGPT fuzzes the entries directly. The checksum prevents FuzzDetect from reaching them.
func FuzzParseGPT(f *testing.F) {
	f.Add(readSample(f, "gpt.bin")[1024:], 128)
	f.Add(make([]byte, 4096), 4096)
	f.Fuzz(func(t *testing.T, array []byte, size int) {
		if size < 128 || size > 4096 {
			return
		}
		for _, p := range parseGPT(array, size) {
			if p.Number < 1 || p.Off < 0 || p.Len <= 0 || p.Off+p.Len < 0 {
				t.Errorf("partition %+v", p)
			}
		}
	})
}
