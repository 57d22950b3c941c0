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

// memory is a file of bytes, and Files that has nothing else.
type memory []byte

func (m memory) Open(context.Context, string) (disk.Source, error) { return m, nil }
func (m memory) Size() int64                                       { return int64(len(m)) }
func (m memory) Hints() disk.Hints                                 { return disk.Hints{} }
func (m memory) Close() error                                      { return nil }

func (m memory) ReadAt(_ context.Context, p []byte, off int64) error {
	if err := disk.CheckRange(m.Size(), disk.Range{Off: off, Len: int64(len(p))}); err != nil {
		return err
	}
	copy(p, m[off:])
	return nil
}

func (m memory) Extents(_ context.Context, r disk.Range) ([]disk.Extent, error) {
	return []disk.Extent{{Range: r}}, disk.CheckRange(m.Size(), r)
}

// streamSeeds are streams of every layout, small ones, and some that are wrong.
func streamSeeds(f *testing.F) {
	f.Helper()
	whole := good().end()
	f.Add(whole)
	f.Add(whole[:len(whole)-1024])
	f.Add(hand(1280, nil).Bytes())
	w := hand(1280, nil)
	w.marker(3, 4)
	w.Write(make([]byte, 3*512))
	w.grain(9, full(3))
	f.Add(w.end())
	for _, r := range streamRecipes() {
		l := r.Chain.Layers[0]
		l.Sectors, l.Grain = 61, 8
		f.Add(written(f, vmdktest.Chain{Seed: r.Chain.Seed, Layers: []vmdktest.Layer{l}}))
	}
}

// FuzzStream reads bytes as a stream, forward and as a file. Neither may panic or fail
// without a kind; and if the stream is whole, and no warning stands against either, they
// hold the same.
func FuzzStream(f *testing.F) {
	const longest = 256 << 10 // than which a stream would only be slower
	streamSeeds(f)
	for _, head := range vmdktest.SampleHeads(f, longest) {
		f.Add(head)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > longest {
			return
		}
		d, fileErr := vmdk.Open(t.Context(), memory(b), "x.vmdk", vmdk.Options{})
		checkKind(t, fileErr)
		s, parts, err := forward(t, b)
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

// forward returns the windows of a stream by their number.
func forward(t *testing.T, b []byte) (s *vmdk.Stream, parts map[int64][]byte, err error) {
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

// compareParts reads d where there are parts, and in the first windows of the disk.
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
		case len(d.Warnings()) > 0: // of redundant tables, which a stream does without
			checkKind(t, err)
		case err != nil:
			t.Fatalf("the stream is whole, but as a file: %v", err)
		case !bytes.Equal(got, want):
			t.Fatalf("window %d is not the same in the file", n)
		}
	}
}
