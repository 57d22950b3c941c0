package vmdk

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

// snapshot is a chain: a flat base of 5000 sectors of x, and miniCOWD on it.
func snapshot() memory {
	return memory{
		"base.vmdk":        text(7, NoParent, "", `RW 5000 VMFS "base-flat.vmdk"`),
		"base-flat.vmdk":   bytes.Repeat([]byte{'x'}, 5000*disk.SectorSize),
		"child.vmdk":       text(8, 7, "base.vmdk", `RW 5000 VMFSSPARSE "child-delta.vmdk"`),
		"child-delta.vmdk": miniCOWD(),
	}
}

// snapshotContent is what its child holds.
func snapshotContent() []byte {
	b := bytes.Repeat([]byte{'x'}, 5000*disk.SectorSize)
	fill(b[:disk.SectorSize], 'a')
	clear(b[disk.SectorSize : 2*disk.SectorSize])
	fill(b[4999*disk.SectorSize:], 'b')
	return b
}

// change returns the files of m with some replaced.
func change(m, by memory) memory {
	out := maps.Clone(m)
	maps.Copy(out, by)
	return out
}

func TestChainFallsThroughWhatIsAbsent(t *testing.T) {
	got, d := readAll(t, snapshot(), "child.vmdk")
	if !bytes.Equal(got, snapshotContent()) {
		t.Error("content differs")
	}
	layers := d.Layers()
	if len(layers) != 2 || layers[0].Format != FormatCOWD || layers[1].Format != FormatFlat || layers[0].CID != 8 || layers[1].CID != 7 {
		t.Errorf("layers %+v", layers)
	}
	if w := d.Warnings(); len(w) != 0 {
		t.Errorf("warnings %q", w)
	}
	if names := d.Files(); len(names) != 2 || names[0] != "child-delta.vmdk" || names[1] != "base-flat.vmdk" {
		t.Errorf("files %q", names)
	}
}

func TestDiskExtendedAfterASnapshot(t *testing.T) {
	m := snapshot()
	m["base.vmdk"] = text(7, NoParent, "", `RW 3000 VMFS "base-flat.vmdk"`)
	want := snapshotContent()
	clear(want[3000*disk.SectorSize : 4999*disk.SectorSize])
	if got, _ := readAll(t, m, "child.vmdk"); !bytes.Equal(got, want) {
		t.Error("behind the parent's end: content differs")
	}
}

// What a grandparent has behind its child's end was cut off then: it must not come back.
func TestGrandparentIsHiddenBehindItsChildsEnd(t *testing.T) {
	m := snapshot()
	small := make([]byte, 37*disk.SectorSize)
	copy(small, miniCOWD())
	put(small, 12, uint32(4096))
	put(small, 5*disk.SectorSize, uint32(0), uint32(0))
	put(small, 4*disk.SectorSize, uint32(5), uint32(0))
	m["small.vmdk"] = text(9, 7, "base.vmdk", `RW 4096 VMFSSPARSE "small-delta.vmdk"`)
	m["small-delta.vmdk"] = small
	m["child.vmdk"] = text(8, 9, "small.vmdk", `RW 5000 VMFSSPARSE "child-delta.vmdk"`)
	want := snapshotContent()
	clear(want[4096*disk.SectorSize : 4999*disk.SectorSize])
	if got, _ := readAll(t, m, "child.vmdk"); !bytes.Equal(got, want) {
		t.Error("content differs")
	}
}

func TestExtentSmallerOrLargerThanItsLine(t *testing.T) {
	for line, size := range map[string]int{`RW 4000 VMFSSPARSE "child-delta.vmdk"`: 4000, `RW 6000 VMFSSPARSE "child-delta.vmdk"`: 6000} {
		m := change(snapshot(), memory{"child.vmdk": text(8, 7, "base.vmdk", line)})
		want := append(snapshotContent(), make([]byte, 1000*disk.SectorSize)...)[:size*disk.SectorSize]
		got, d := readAll(t, m, "child.vmdk")
		if !bytes.Equal(got, want) {
			t.Errorf("%s: content differs", line)
		}
		if w := d.Warnings(); len(w) != 1 || !strings.Contains(w[0], "its descriptor has") {
			t.Errorf("%s: warnings %q", line, w)
		}
	}
}

func TestParentsThatAreRefused(t *testing.T) {
	extent := `RW 5000 VMFSSPARSE "child-delta.vmdk"`
	for name, c := range map[string]struct {
		change memory
		kind   fault.Kind
		want   string
	}{
		"other CID":      {memory{"child.vmdk": text(8, 6, "base.vmdk", extent)}, fault.Conflict, "CID 00000007"},
		"itself":         {memory{"child.vmdk": text(8, 8, "child.vmdk", extent)}, fault.Corrupt, "comes back"},
		"not named":      {memory{"child.vmdk": text(8, 7, "", extent)}, fault.Corrupt, "does not name it"},
		"not there":      {memory{"child.vmdk": text(8, 7, "gone.vmdk", extent)}, fault.NotFound, "gone.vmdk"},
		"above":          {memory{"child.vmdk": text(8, 7, "../base.vmdk", extent)}, fault.Corrupt, "folder"},
		"object":         {memory{"child.vmdk": text(8, 7, "vsan://52d1", extent)}, fault.Unsupported, "object"},
		"absolute":       {memory{"child.vmdk": text(8, 7, "/etc/passwd", extent)}, fault.Corrupt, "absolute"},
		"out of a store": {memory{"child.vmdk": text(8, 7, "/vmfs/volumes/../../etc/passwd", extent)}, fault.Corrupt, "folder"},
		"data file":      {memory{"child.vmdk": text(8, 7, "base-flat.vmdk", extent)}, fault.Corrupt, "neither a descriptor"},
		"flat too short": {memory{"base.vmdk": text(7, NoParent, "", `RW 5001 VMFS "base-flat.vmdk"`)}, fault.Corrupt, "descriptor uses"},
		"RDM base":       {memory{"base.vmdk": text(7, NoParent, "", `RW 5000 VMFSRDM "base-rdm.vmdk"`)}, fault.Unsupported, "LUN"},
		"vSAN base":      {memory{"base.vmdk": text(7, NoParent, "", `RW 5000 VMFS "vsan://1"`)}, fault.Unsupported, "vsan"},
		"no sparse file": {memory{"child-delta.vmdk": []byte("hello")}, fault.Corrupt, "none of their signatures"},
	} {
		m := change(snapshot(), c.change)
		if len(m["base-flat.vmdk"]) < MaxDescriptor {
			t.Fatal("the flat file could be a descriptor")
		}
		err := openRead(t, m, "child.vmdk")
		if err == nil || fault.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.want) || fault.HintOf(err) == "" {
			t.Errorf("%s: got %v (%v, hint %q), want %q", name, err, fault.KindOf(err), fault.HintOf(err), c.want)
		}
	}
}

func TestIgnoreCIDReadsWithAWarning(t *testing.T) {
	m := change(snapshot(), memory{"base.vmdk": text(99, NoParent, "", `RW 5000 VMFS "base-flat.vmdk"`)})
	d, err := Open(t.Context(), m, "child.vmdk", Options{IgnoreCID: true})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if w := d.Warnings(); len(w) != 1 || !strings.Contains(w[0], "was written after") {
		t.Errorf("warnings %q", w)
	}
}

func TestChainsHaveABound(t *testing.T) {
	for depth, ok := range map[int]bool{maxDepth: true, maxDepth + 1: false} {
		m := memory{"0": text(0, NoParent, "", `RW 1 ZERO`)}
		for i := 1; i < depth; i++ {
			m[fmt.Sprint(i)] = text(CID(i), CID(i-1), fmt.Sprint(i-1), `RW 5000 VMFSSPARSE "d"`)
		}
		m["d"] = miniCOWD()
		err := openRead(t, m, fmt.Sprint(depth-1))
		if ok != (err == nil) || !ok && !strings.Contains(err.Error(), "longer than 64") {
			t.Errorf("%d layers: %v", depth, err)
		}
	}
}

func TestParentOfAnotherDatastore(t *testing.T) {
	extent := `RW 5000 VMFSSPARSE "child-delta.vmdk"`
	linked := text(8, 7, "/vmfs/volumes/ds/gold/base.vmdk", extent)
	s := snapshot()
	for name, m := range map[string]memory{
		"where it was": {"/vmfs/volumes/ds/gold/base.vmdk": s["base.vmdk"], "/vmfs/volumes/ds/gold/base-flat.vmdk": s["base-flat.vmdk"]},
		"beside":       {"vm/base.vmdk": s["base.vmdk"], "vm/base-flat.vmdk": s["base-flat.vmdk"]},
	} {
		m["vm/child.vmdk"], m["vm/child-delta.vmdk"] = linked, s["child-delta.vmdk"]
		if got, _ := readAll(t, m, "vm/child.vmdk"); !bytes.Equal(got, snapshotContent()) {
			t.Errorf("%s: content differs", name)
		}
	}
}

func TestGrandparentBesideAParentThatWasMoved(t *testing.T) {
	s := snapshot()
	m := memory{
		"vm/top.vmdk": text(9, 8, "/vmfs/volumes/ds/x/child.vmdk", `RW 5000 ZERO`), "vm/child.vmdk": text(8, 7, "/vmfs/volumes/ds/y/base.vmdk", `RW 5000 VMFSSPARSE "child-delta.vmdk"`),
		"vm/child-delta.vmdk": s["child-delta.vmdk"], "vm/base.vmdk": s["base.vmdk"], "vm/base-flat.vmdk": s["base-flat.vmdk"],
	}
	_, d := readAll(t, m, "vm/top.vmdk")
	if l := d.Layers(); len(l) != 3 || l[2].Name != "vm/base.vmdk" {
		t.Errorf("layers %+v", l)
	}
}

func TestParentWithoutADescriptorCannotBeChecked(t *testing.T) {
	m := snapshot()
	m["child.vmdk"] = text(8, 7, "bare", `RW 63 ZERO`)
	m["bare"] = setNewlines(miniSparse(7))
	_, d := readAll(t, m, "child.vmdk")
	if w := d.Warnings(); len(w) != 2 || !strings.Contains(strings.Join(w, ";"), "cannot check that it is the parent of") {
		t.Errorf("warnings %q", w)
	}
}

func TestRenamedFileWithItsDescriptorInside(t *testing.T) {
	b := setNewlines(miniSparse(7))
	descriptor := text(1, NoParent, "", `RW 63 SPARSE "old name.vmdk"`)
	put(b, 28, uint64(len(b)/disk.SectorSize), uint64(2))
	b = append(b, append(descriptor, 0)...)
	b = append(b, bytes.Repeat([]byte("left over\x01"), 100)...)
	got, d := readAll(t, memory{"new.vmdk": b}, "new.vmdk")
	if !bytes.Equal(got, miniContent()) || len(d.Warnings()) != 0 || d.Layers()[0].CID != 1 {
		t.Errorf("warnings %q, layers %+v", d.Warnings(), d.Layers())
	}
}

func TestReadsAnywhereInAChainOfPieces(t *testing.T) {
	m := snapshot()
	m["child.vmdk"] = text(8, 7, "base.vmdk", `RW 63 SPARSE "s"`, `RW 1 ZERO`, `RW 4936 VMFSSPARSE "child-delta.vmdk"`)
	m["s"] = setNewlines(miniSparse(7))
	whole, d := readAll(t, m, "child.vmdk")
	rnd := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		off := rnd.Int64N(d.Size())
		p := make([]byte, 1+rnd.Int64N(min(d.Size()-off, 70000)))
		if err := d.ReadAt(t.Context(), p, off); err != nil || !bytes.Equal(p, whole[off:off+int64(len(p))]) {
			t.Fatalf("%d bytes at %d differ, %v", len(p), off, err)
		}
	}
	if whole[63*512] != 0 || whole[64*512] != 'a' || whole[0] != 'b' || whole[miniGrain] != 'x' {
		t.Error("the pieces are not where they belong")
	}
}
