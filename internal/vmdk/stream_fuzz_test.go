package vmdk_test

import (
	"bytes"
	"context"
	"io"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/vmdk"
	"github.com/decamp/decamp/internal/vmdk/vmdktest"
)

// memFile is a file in memory, and a Files that returns it for every name.
type memFile []byte

func (m memFile) Open(context.Context, string) (disk.Source, error) { return m, nil }
func (m memFile) Size() int64                                       { return int64(len(m)) }
func (m memFile) Hints() disk.Hints                                 { return disk.Hints{} }
func (m memFile) Close() error                                      { return nil }

func (m memFile) ReadAt(_ context.Context, p []byte, off int64) error {
	if err := disk.CheckRange(m.Size(), disk.Range{Off: off, Len: int64(len(p))}); err != nil {
		return err
	}
	copy(p, m[off:])
	return nil
}

func (m memFile) Extents(_ context.Context, r disk.Range) ([]disk.Extent, error) {
	return []disk.Extent{{Range: r}}, disk.CheckRange(m.Size(), r)
}

// streamSeeds adds small streams of every layout, and some invalid streams.
func streamSeeds(f *testing.F) {
	f.Helper()
	whole := wholeStream().end()
	f.Add(whole)
	f.Add(whole[:len(whole)-1024])
	f.Add(newHandmade(1280, nil).Bytes())
	w := newHandmade(1280, nil)
	w.marker(3, 4)
	w.Write(make([]byte, 3*512))
	w.grain(9, fullGrain(3))
	f.Add(w.end())
	for _, r := range streamRecipes() {
		l := r.Chain.Layers[0]
		l.Sectors, l.Grain = 61, 8
		f.Add(chainBytes(f, vmdktest.Chain{Seed: r.Chain.Seed, Layers: []vmdktest.Layer{l}}))
	}
}

// FuzzStream reads bytes as a stream, in one pass and as a file. Neither panics, and every error has a
// kind. If the stream is complete and causes no warnings, both return the same content.
func FuzzStream(f *testing.F) {
	const longest = 256 << 10 // longer inputs only take more time
	streamSeeds(f)
	for _, head := range vmdktest.SampleHeads(f, longest) {
		f.Add(head)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > longest {
			return
		}
		d, fileErr := vmdk.Open(t.Context(), memFile(b), "x.vmdk", vmdk.Options{})
		checkKind(t, fileErr)
		s, parts, err := readForward(t, b)
		checkKind(t, err)
		if d == nil {
			return
		}
		defer d.Close()
		if err == nil && len(s.Warnings()) == 0 {
			compareParts(t, d, parts)
		}
	})
}

func checkKind(t *testing.T, err error) {
	t.Helper()
	if err != nil && fault.KindOf(err) == fault.Internal {
		t.Fatalf("%v has no kind", err)
	}
}

const fuzzWindow = 1 << 20

// readForward reads a stream in one pass and returns its windows by number.
func readForward(t *testing.T, b []byte) (s *vmdk.Stream, parts map[int64][]byte, err error) {
	t.Helper()
	if s, err = vmdk.ReadStream(t.Context(), bytes.NewReader(b)); err != nil {
		return nil, nil, err
	}
	parts = map[int64][]byte{}
	for {
		p, err := s.Next(t.Context(), fuzzWindow)
		if err == io.EOF {
			return s, parts, nil
		}
		if err != nil {
			return s, nil, err
		}
		got := make([]byte, p.Range().Len)
		err = p.Fill(t.Context(), got)
		parts[p.Range().Off/fuzzWindow] = got
		p.Release()
		if err != nil {
			return s, nil, err
		}
	}
}

// compareParts compares d with the parts, and with zeros in the first windows if they have no part.
func compareParts(t *testing.T, d *vmdk.Disk, parts map[int64][]byte) {
	t.Helper()
	for n := range min(4, (d.Size()+fuzzWindow-1)/fuzzWindow) {
		if parts[n] == nil {
			parts[n] = make([]byte, min(fuzzWindow, d.Size()-n*fuzzWindow))
		}
	}
	for n, want := range parts {
		got := make([]byte, len(want))
		err := d.ReadAt(t.Context(), got, n*fuzzWindow)
		switch {
		case len(d.Warnings()) > 0: // redundant tables, which reading in one pass does not use
			checkKind(t, err)
		case err != nil:
			t.Fatalf("the stream is complete, but reading it as a file fails: %v", err)
		case !bytes.Equal(got, want):
			t.Fatalf("window %d differs between stream and file", n)
		}
	}
}
