package vmdktest

// Odd is a disk size in sectors that fills no grain: the size that finds bugs.
const Odd = 20443

// A Recipe is a chain with a name for a subtest.
type Recipe struct {
	Name  string
	Chain Chain

	// Unread says why qemu-img is no judge of this one: it refuses or misreads it. Empty
	// where it must agree.
	Unread string
}

// Recipes returns chains of every flavour, in sizes of a few MiB. All of them are right
// by the published layouts; a reader reads each as its Overlay says.
func Recipes() []Recipe {
	return append(append(bases(), streams()...), chains()...)
}

// bases are the disks without a parent.
func bases() []Recipe {
	full := Layer{Sectors: Odd, Data: 0.6, Zero: 0.2}
	flat := func(x ...Extent) Layer { l := full; l.Extents = x; return l }
	return []Recipe{
		{Name: "vmfs", Chain: of(1, full)},
		{Name: "flat in pieces", Chain: of(2, flat(Extent{Sectors: 8192, Offset: 64}, Extent{Sectors: Odd - 8192}))},
		{Name: "monolithicFlat", Chain: of(3, withText(flat(Extent{Sectors: Odd, Type: "FLAT"}), Text{CreateType: "monolithicFlat", CRLF: true}))},
		{Name: "flat with a hole", Chain: of(4, flat(Extent{Sectors: 8192}, Extent{Sectors: 4096, Type: "ZERO"}, Extent{Sectors: Odd - 12288})),
			Unread: "drops ZERO extents, which shifts those behind"},
		{Name: "NOACCESS", Chain: of(5, flat(Extent{Sectors: 8192}, Extent{Sectors: 4096, Access: "NOACCESS"}, Extent{Sectors: Odd - 12288})),
			Unread: "drops NOACCESS extents"},
		{Name: "RDONLY", Chain: of(6, flat(Extent{Sectors: Odd, Access: "RDONLY"})), Unread: "aborts on an assertion"},
		{Name: "vmfs with an offset", Chain: of(7, withText(flat(Extent{Sectors: Odd, Offset: 8}), Text{Offsets: true})),
			Unread: "invalid extent line"},
		{Name: "sparse v1", Chain: of(10, hostedLayer(Hosted{}))},
		{Name: "sparse v2, zeroed grains", Chain: of(11, hostedLayer(Hosted{Version: 2, Zeroed: true}))},
		{Name: "sparse v3, redundant", Chain: of(12, hostedLayer(Hosted{Version: 3, Redundant: true, AllTables: true}))},
		{Name: "sparse, ends with the disk", Chain: of(13, hostedLayer(Hosted{ShortEnd: true}))},
		{Name: "sparse in order", Chain: of(14, Layer{Format: Sparse, Sectors: 1 << 16, Data: 0.3, Run: 20, InOrder: true})},
		{Name: "sparse, grain 8 KiB", Chain: of(15, Layer{Format: Sparse, Sectors: Odd, Grain: 16, Data: 0.5})},
		{Name: "sparse in pieces", Chain: of(16, Layer{Format: Sparse, Data: 0.5, Sectors: Odd,
			Extents: []Extent{{Sectors: 8192}, {Sectors: Odd - 8192}}})},
	}
}

func streams() []Recipe {
	l := func(layout Layout, h Hosted) Layer {
		return Layer{Format: Stream, Sectors: 1<<16 + 77, Data: 0.2, Run: 10, Layout: layout, Hosted: h}
	}
	return []Recipe{
		{Name: "stream of ESXi", Chain: of(20, l(AtEnd, Hosted{}))},
		{Name: "stream of ESXi, short last grain", Chain: of(21, withData(l(AtEnd, Hosted{ShortEnd: true}), 1))},
		{Name: "stream of Workstation", Chain: of(22, l(UpFront, Hosted{}))},
		{Name: "stream of a converter", Chain: of(23, l(Both, Hosted{}))},
		{Name: "stream of qemu-img", Chain: of(24, l(Padded, Hosted{}))},
		{Name: "stream of qemu-img -W", Chain: of(26, l(Scattered, Hosted{}))},
		{Name: "stream of an empty disk", Chain: of(25, withData(l(AtEnd, Hosted{}), 0))},
	}
}

func chains() []Recipe {
	base := Layer{Sectors: Odd, Data: 0.5, Run: 3}
	cowd := Layer{Format: COWD, Data: 0.3, Zero: 0.1, Run: 5}
	se := Layer{Format: SESparse, Data: 0.3, Zero: 0.1, Unmapped: 0.1, Run: 2}
	grown := func(l Layer, sectors int64) Layer { l.Sectors = sectors; return l }
	return []Recipe{
		{Name: "COWD on flat", Chain: of(30, base, cowd)},
		{Name: "three COWDs, grains of a sector", Chain: of(31, base, withRun(cowd, 1), withRun(cowd, 1), withRun(cowd, 1))},
		{Name: "COWD, grains of 8 sectors", Chain: of(32, base, Layer{Format: COWD, Grain: 8, Data: 0.4})},
		{Name: "COWD, zeroed grains of 8 sectors", Chain: of(42, base, Layer{Format: COWD, Grain: 8, Data: 0.4, Zero: 0.1}),
			Unread: "takes a zeroed grain for the one at sector 1, where the directory is"},
		{Name: "two seSparse", Chain: of(33, base, se, se)},
		{Name: "seSparse over several tables", Chain: of(34, grown(base, 3<<15+9), se, se)},
		{Name: "COWD on sparse", Chain: of(35, hostedLayer(Hosted{Zeroed: true}), cowd)},
		{Name: "sparse on sparse", Chain: of(36, hostedLayer(Hosted{}), withoutSectors(hostedLayer(Hosted{Zeroed: true})))},
		{Name: "mixed grains", Chain: of(37, hostedLayer(Hosted{}), se, cowd, Layer{Format: Sparse, Grain: 16, Data: 0.1})},
		{Name: "grown after a snapshot", Chain: of(38, base, cowd, grown(cowd, Odd+5000))},
		{Name: "grown seSparse", Chain: of(39, base, grown(se, Odd+40000), se)},
		{Name: "delta on a stream", Chain: of(40, Layer{Format: Stream, Sectors: Odd, Data: 0.5}, cowd)},
		{Name: "deltas in pieces", Chain: of(41, base,
			Layer{Format: COWD, Data: 0.4, Zero: 0.1, Extents: []Extent{{Sectors: 8192}, {Sectors: Odd - 8192}}})},
		{Name: "pieces that fill no grain", Chain: of(43, base,
			Layer{Format: SESparse, Data: 0.6, Zero: 0.1, Extents: []Extent{{Sectors: 5260}, {Sectors: 77}, {Sectors: Odd - 5337}}}),
			Unread: "goes on in the last grain of a piece where the next one begins"},
	}
}

func of(seed uint64, layers ...Layer) Chain { return Chain{Seed: seed, Layers: layers} }

func hostedLayer(h Hosted) Layer {
	return Layer{Format: Sparse, Sectors: Odd + 1<<15, Data: 0.4, Zero: 0.2, Run: 4, Hosted: h}
}

func withText(l Layer, t Text) Layer        { l.Text = t; return l }
func withData(l Layer, share float64) Layer { l.Data = share; return l }
func withRun(l Layer, grains int) Layer     { l.Run = grains; return l }
func withoutSectors(l Layer) Layer          { l.Sectors = 0; return l }
