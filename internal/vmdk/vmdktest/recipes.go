package vmdktest

// Odd is a disk size in sectors that is no multiple of any grain size.
const Odd = 12443

// A Recipe is a chain with a name for a subtest.
type Recipe struct {
	Name  string // name of the subtest
	Chain Chain  // layers to write

	// why qemu-img refuses or misreads this disk; empty if its result must be the same
	Unread string
}

// Recipes returns chains of all formats and layouts, of a few MiB each. All are valid, and must read as
// their Overlay.
func Recipes() []Recipe {
	return append(append(baseRecipes(), streamRecipes()...), chainRecipes()...)
}

// baseRecipes returns disks without a parent.
func baseRecipes() []Recipe {
	full := Layer{Sectors: Odd, Data: 0.6, Zero: 0.2}
	flat := func(x ...Extent) Layer { l := full; l.Extents = x; return l }
	return []Recipe{
		{Name: "vmfs", Chain: newChain(1, full)},
		{Name: "flat in pieces", Chain: newChain(2, flat(Extent{Sectors: 8192, Offset: 64}, Extent{Sectors: Odd - 8192}))},
		{Name: "monolithicFlat", Chain: newChain(3, withText(flat(Extent{Sectors: Odd, Type: "FLAT"}), Text{CreateType: "monolithicFlat", CRLF: true}))},
		{Name: "flat with a hole", Chain: newChain(4, flat(Extent{Sectors: 8192}, Extent{Sectors: 4096, Type: "ZERO"}, Extent{Sectors: Odd - 12288})),
			Unread: "drops ZERO extents, which shifts those behind"},
		{Name: "NOACCESS", Chain: newChain(5, flat(Extent{Sectors: 8192}, Extent{Sectors: 4096, Access: "NOACCESS"}, Extent{Sectors: Odd - 12288})),
			Unread: "drops NOACCESS extents"},
		{Name: "RDONLY", Chain: newChain(6, flat(Extent{Sectors: Odd, Access: "RDONLY"})), Unread: "aborts on an assertion"},
		{Name: "vmfs with an offset", Chain: newChain(7, withText(flat(Extent{Sectors: Odd, Offset: 8}), Text{Offsets: true})),
			Unread: "invalid extent line"},
		{Name: "sparse v1", Chain: newChain(10, hostedLayer(Hosted{}))},
		{Name: "sparse v2, zeroed grains", Chain: newChain(11, hostedLayer(Hosted{Version: 2, Zeroed: true}))},
		{Name: "sparse v3, redundant", Chain: newChain(12, hostedLayer(Hosted{Version: 3, Redundant: true, AllTables: true}))},
		{Name: "sparse, ends with the disk", Chain: newChain(13, hostedLayer(Hosted{ShortEnd: true}))},
		{Name: "sparse in order", Chain: newChain(14, Layer{Format: Sparse, Sectors: 1 << 16, Data: 0.3, Run: 20, InOrder: true})},
		{Name: "sparse, grain 8 KiB", Chain: newChain(15, Layer{Format: Sparse, Sectors: Odd, Grain: 16, Data: 0.5})},
		{Name: "sparse in pieces", Chain: newChain(16, Layer{Format: Sparse, Data: 0.5, Sectors: Odd,
			Extents: []Extent{{Sectors: 8192}, {Sectors: Odd - 8192}}})},
	}
}

// streamRecipes returns streamOptimized disks in the layouts of all known writers.
func streamRecipes() []Recipe {
	l := func(layout Layout, h Hosted) Layer {
		return Layer{Format: Stream, Sectors: 1<<16 + 77, Data: 0.2, Run: 10, Layout: layout, Hosted: h}
	}
	return []Recipe{
		{Name: "stream of ESXi", Chain: newChain(20, l(AtEnd, Hosted{}))},
		{Name: "stream of ESXi, short last grain", Chain: newChain(21, withSectors(withData(l(AtEnd, Hosted{ShortEnd: true}), 1), Odd))},
		{Name: "stream of Workstation", Chain: newChain(22, l(UpFront, Hosted{}))},
		{Name: "stream of a converter", Chain: newChain(23, l(Both, Hosted{}))},
		{Name: "stream of qemu-img", Chain: newChain(24, l(Padded, Hosted{}))},
		{Name: "stream of qemu-img -W", Chain: newChain(26, l(Scattered, Hosted{}))},
		{Name: "stream of an empty disk", Chain: newChain(25, withData(l(AtEnd, Hosted{}), 0))},
	}
}

// chainRecipes returns disks with one or more deltas.
func chainRecipes() []Recipe {
	base := Layer{Sectors: Odd, Data: 0.5, Run: 3}
	cowd := Layer{Format: COWD, Data: 0.3, Zero: 0.1, Run: 5}
	se := Layer{Format: SESparse, Data: 0.3, Zero: 0.1, Unmapped: 0.1, Run: 2}
	return []Recipe{
		{Name: "COWD on flat", Chain: newChain(30, base, cowd)},
		{Name: "three COWDs, grains of a sector", Chain: newChain(31, base, withRun(cowd, 1), withRun(cowd, 1), withRun(cowd, 1))},
		{Name: "COWD, grains of 8 sectors", Chain: newChain(32, base, Layer{Format: COWD, Grain: 8, Data: 0.4})},
		{Name: "COWD, zeroed grains of 8 sectors", Chain: newChain(42, base, Layer{Format: COWD, Grain: 8, Data: 0.4, Zero: 0.1}),
			Unread: "takes a zeroed grain for the one at sector 1, where the directory is"},
		{Name: "two seSparse", Chain: newChain(33, base, se, se)},
		{Name: "seSparse over several tables", Chain: newChain(34, withSectors(base, 3<<15+9), se, se)},
		{Name: "COWD on sparse", Chain: newChain(35, hostedLayer(Hosted{Zeroed: true}), withRun(cowd, 40))},
		{Name: "sparse on sparse", Chain: newChain(36, hostedLayer(Hosted{}), withSectors(hostedLayer(Hosted{Zeroed: true}), 0))},
		{Name: "mixed grains", Chain: newChain(37, hostedLayer(Hosted{}), se, withRun(cowd, 40), Layer{Format: Sparse, Grain: 16, Data: 0.1})},
		{Name: "grown after a snapshot", Chain: newChain(38, base, cowd, withSectors(cowd, Odd+5000))},
		{Name: "grown seSparse", Chain: newChain(39, base, withSectors(se, Odd+40000), se)},
		{Name: "delta on a stream", Chain: newChain(40, Layer{Format: Stream, Sectors: Odd, Data: 0.5}, withRun(cowd, 40))},
		{Name: "deltas in pieces", Chain: newChain(41, base,
			Layer{Format: COWD, Data: 0.4, Zero: 0.1, Extents: []Extent{{Sectors: 8192}, {Sectors: Odd - 8192}}})},
		{Name: "pieces that fill no grain", Chain: newChain(43, base,
			Layer{Format: SESparse, Data: 0.6, Zero: 0.1, Extents: []Extent{{Sectors: 5260}, {Sectors: 77}, {Sectors: Odd - 5337}}}),
			Unread: "goes on in the last grain of a piece where the next one begins"},
	}
}

// newChain returns a chain of layers from the base up.
func newChain(seed uint64, layers ...Layer) Chain { return Chain{Seed: seed, Layers: layers} }

// hostedLayer returns a hosted sparse layer with layout h.
func hostedLayer(h Hosted) Layer {
	return Layer{Format: Sparse, Sectors: Odd + 1<<15, Data: 0.4, Zero: 0.2, Run: 4, Hosted: h}
}

// withText returns l with another descriptor.
func withText(l Layer, t Text) Layer { l.Text = t; return l }

// withData returns l with another share of grains with data.
func withData(l Layer, share float64) Layer { l.Data = share; return l }

// withRun returns l with another average run of grains.
func withRun(l Layer, grains int) Layer { l.Run = grains; return l }

// withSectors returns l with another size. A layer of size 0 has that of the layer below.
func withSectors(l Layer, sectors int64) Layer { l.Sectors = sectors; return l }
