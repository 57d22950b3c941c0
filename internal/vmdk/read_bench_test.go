package vmdk

import (
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/vmdk/vmdktest"
)

// BenchmarkRead reads disks of 256 MiB sequentially from the page cache. Like blockcopy, it has two readers
// and windows of 2 MiB.
func BenchmarkRead(b *testing.B) {
	const size = 256 << 20 / disk.SectorSize
	cowd := vmdktest.Layer{Format: vmdktest.COWD, Sectors: size, Data: 0.5}
	se := vmdktest.Layer{Format: vmdktest.SESparse, Sectors: size, Data: 0.6}
	flat := vmdktest.Layer{Sectors: size, Data: 1}
	full := func(l vmdktest.Layer) vmdktest.Layer { l.Data = 1; return l }
	inOrder := func(l vmdktest.Layer) vmdktest.Layer { l.InOrder = true; return l }
	for _, c := range []struct {
		name   string
		layers []vmdktest.Layer
	}{
		{"flat", []vmdktest.Layer{flat}},
		{"sparse", []vmdktest.Layer{inOrder(full(vmdktest.Layer{Format: vmdktest.Sparse, Sectors: size}))}},
		{"sparse shuffled", []vmdktest.Layer{full(vmdktest.Layer{Format: vmdktest.Sparse, Sectors: size})}},
		{"three COWDs", []vmdktest.Layer{full(cowd), cowd, cowd}},
		{"three COWDs in order", []vmdktest.Layer{inOrder(full(cowd)), inOrder(cowd), inOrder(cowd)}},
		{"two seSparse", []vmdktest.Layer{full(se), se}},
	} {
		b.Run(c.name, func(b *testing.B) {
			made, err := vmdktest.Chain{Seed: 1, Layers: c.layers}.Write(b.TempDir())
			if err != nil {
				b.Fatal(err)
			}
			d, err := Open(b.Context(), Folder(made.Folder), made.Name, Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer d.Close()
			b.SetBytes(d.Size())
			b.ReportAllocs()
			for b.Loop() {
				readThrough(b, d)
			}
		})
	}
}

func readThrough(b *testing.B, d *Disk) {
	const window = 2 << 20
	var next atomic.Int64
	var g errgroup.Group
	for range 2 {
		g.Go(func() error {
			p := disk.AlignedMemory(window)
			for {
				off := next.Add(window) - window
				if off >= d.Size() {
					return nil
				}
				if err := d.ReadAt(b.Context(), p[:min(window, d.Size()-off)], off); err != nil {
					return err
				}
			}
		})
	}
	if err := g.Wait(); err != nil {
		b.Fatal(err)
	}
}
