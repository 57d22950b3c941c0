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

// snapshot returns the files of a chain: a flat base of 5000 sectors of x, and miniCOWD as its child.
func snapshot() memFiles {
	return memFiles{
		"base.vmdk":        descriptorText(7, NoParent, "", `RW 5000 VMFS "base-flat.vmdk"`),
		"base-flat.vmdk":   bytes.Repeat([]byte{'x'}, 5000*disk.SectorSize),
		"child.vmdk":       descriptorText(8, 7, "base.vmdk", `RW 5000 VMFSSPARSE "child-delta.vmdk"`),
		"child-delta.vmdk": miniCOWD(),
	}
}

// snapshotContent returns the content of child.vmdk of snapshot.
func snapshotContent() []byte {
	b := bytes.Repeat([]byte{'x'}, 5000*disk.SectorSize)
	fillBytes(b[:disk.SectorSize], 'a')
	clear(b[disk.SectorSize : 2*disk.SectorSize])
	fillBytes(b[4999*disk.SectorSize:], 'b')
	return b
}

// withFiles returns a copy of m with the files of by added or replaced.
func withFiles(m, by memFiles) memFiles {
	out := maps.Clone(m)
	maps.Copy(out, by)
	return out
}

func TestAbsentGrainsAreReadFromTheParent(t *testing.T) {
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
	m["base.vmdk"] = descriptorText(7, NoParent, "", `RW 3000 VMFS "base-flat.vmdk"`)
	want := snapshotContent()
	clear(want[3000*disk.SectorSize : 4999*disk.SectorSize])
	if got, _ := readAll(t, m, "child.vmdk"); !bytes.Equal(got, want) {
		t.Error("content differs past the end of the parent")
	}
}

// The child truncated the disk. Data of the grandparent past the end of that child stays hidden.
func TestDataPastTruncatedParentIsHidden(t *testing.T) {
	m := snapshot()
	small := make([]byte, 37*disk.SectorSize)
	copy(small, miniCOWD())
	putUints(small, 12, uint32(4096))
	putUints(small, 5*disk.SectorSize, uint32(0), uint32(0))
	putUints(small, 4*disk.SectorSize, uint32(5), uint32(0))
	m["small.vmdk"] = descriptorText(9, 7, "base.vmdk", `RW 4096 VMFSSPARSE "small-delta.vmdk"`)
	m["small-delta.vmdk"] = small
	m["child.vmdk"] = descriptorText(8, 9, "small.vmdk", `RW 5000 VMFSSPARSE "child-delta.vmdk"`)
	want := snapshotContent()
	clear(want[4096*disk.SectorSize : 4999*disk.SectorSize])
	if got, _ := readAll(t, m, "child.vmdk"); !bytes.Equal(got, want) {
		t.Error("content differs")
	}
}

func TestExtentSmallerOrLargerThanItsLine(t *testing.T) {
	for line, size := range map[string]int{`RW 4000 VMFSSPARSE "child-delta.vmdk"`: 4000, `RW 6000 VMFSSPARSE "child-delta.vmdk"`: 6000} {
		m := withFiles(snapshot(), memFiles{"child.vmdk": descriptorText(8, 7, "base.vmdk", line)})
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

func TestRefusedParents(t *testing.T) {
	extent := `RW 5000 VMFSSPARSE "child-delta.vmdk"`
	for name, c := range map[string]struct {
		change memFiles
		kind   fault.Kind
		want   string
	}{
		"other CID":      {memFiles{"child.vmdk": descriptorText(8, 6, "base.vmdk", extent)}, fault.Conflict, "CID 00000007"},
		"itself":         {memFiles{"child.vmdk": descriptorText(8, 8, "child.vmdk", extent)}, fault.Corrupt, "comes back"},
		"not named":      {memFiles{"child.vmdk": descriptorText(8, 7, "", extent)}, fault.Corrupt, "does not name it"},
		"missing":        {memFiles{"child.vmdk": descriptorText(8, 7, "gone.vmdk", extent)}, fault.NotFound, "gone.vmdk"},
		"parent folder":  {memFiles{"child.vmdk": descriptorText(8, 7, "../base.vmdk", extent)}, fault.Corrupt, "folder"},
		"object":         {memFiles{"child.vmdk": descriptorText(8, 7, "vsan://52d1", extent)}, fault.Unsupported, "object"},
		"absolute":       {memFiles{"child.vmdk": descriptorText(8, 7, "/etc/passwd", extent)}, fault.Corrupt, "absolute"},
		"outside store":  {memFiles{"child.vmdk": descriptorText(8, 7, "/vmfs/volumes/../../etc/passwd", extent)}, fault.Corrupt, "folder"},
		"data file":      {memFiles{"child.vmdk": descriptorText(8, 7, "base-flat.vmdk", extent)}, fault.Corrupt, "neither a descriptor"},
		"flat too short": {memFiles{"base.vmdk": descriptorText(7, NoParent, "", `RW 5001 VMFS "base-flat.vmdk"`)}, fault.Corrupt, "descriptor uses"},
		"RDM base":       {memFiles{"base.vmdk": descriptorText(7, NoParent, "", `RW 5000 VMFSRDM "base-rdm.vmdk"`)}, fault.Unsupported, "LUN"},
		"vSAN base":      {memFiles{"base.vmdk": descriptorText(7, NoParent, "", `RW 5000 VMFS "vsan://1"`)}, fault.Unsupported, "vsan"},
		"not sparse":     {memFiles{"child-delta.vmdk": []byte("hello")}, fault.Corrupt, "none of their signatures"},
	} {
		m := withFiles(snapshot(), c.change)
		if len(m["base-flat.vmdk"]) < MaxDescriptor {
			t.Fatal("the flat file is small enough for a descriptor")
		}
		err := openRead(t, m, "child.vmdk")
		if err == nil || fault.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.want) || fault.HintOf(err) == "" {
			t.Errorf("%s: got %v (%v, hint %q), want %q", name, err, fault.KindOf(err), fault.HintOf(err), c.want)
		}
	}
}

func TestIgnoreCIDReadsWithAWarning(t *testing.T) {
	m := withFiles(snapshot(), memFiles{"base.vmdk": descriptorText(99, NoParent, "", `RW 5000 VMFS "base-flat.vmdk"`)})
	d, err := Open(t.Context(), m, "child.vmdk", Options{IgnoreCID: true})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if w := d.Warnings(); len(w) != 1 || !strings.Contains(w[0], "was written after") {
		t.Errorf("warnings %q", w)
	}
}

func TestChainDepthIsLimited(t *testing.T) {
	for depth, ok := range map[int]bool{maxDepth: true, maxDepth + 1: false} {
		m := memFiles{"0": descriptorText(0, NoParent, "", `RW 1 ZERO`)}
		for i := 1; i < depth; i++ {
			m[fmt.Sprint(i)] = descriptorText(CID(i), CID(i-1), fmt.Sprint(i-1), `RW 5000 VMFSSPARSE "d"`)
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
	linked := descriptorText(8, 7, "/vmfs/volumes/ds/gold/base.vmdk", extent)
	s := snapshot()
	for name, m := range map[string]memFiles{
		"original path": {"/vmfs/volumes/ds/gold/base.vmdk": s["base.vmdk"], "/vmfs/volumes/ds/gold/base-flat.vmdk": s["base-flat.vmdk"]},
		"same folder":   {"vm/base.vmdk": s["base.vmdk"], "vm/base-flat.vmdk": s["base-flat.vmdk"]},
	} {
		m["vm/child.vmdk"], m["vm/child-delta.vmdk"] = linked, s["child-delta.vmdk"]
		if got, _ := readAll(t, m, "vm/child.vmdk"); !bytes.Equal(got, snapshotContent()) {
			t.Errorf("%s: content differs", name)
		}
	}
}

func TestGrandparentOfMovedParentIsFound(t *testing.T) {
	s := snapshot()
	m := memFiles{
		"vm/top.vmdk": descriptorText(9, 8, "/vmfs/volumes/ds/x/child.vmdk", `RW 5000 ZERO`), "vm/child.vmdk": descriptorText(8, 7, "/vmfs/volumes/ds/y/base.vmdk", `RW 5000 VMFSSPARSE "child-delta.vmdk"`),
		"vm/child-delta.vmdk": s["child-delta.vmdk"], "vm/base.vmdk": s["base.vmdk"], "vm/base-flat.vmdk": s["base-flat.vmdk"],
	}
	_, d := readAll(t, m, "vm/top.vmdk")
	if l := d.Layers(); len(l) != 3 || l[2].Name != "vm/base.vmdk" {
		t.Errorf("layers %+v", l)
	}
}

func TestParentWithoutADescriptorCannotBeChecked(t *testing.T) {
	m := snapshot()
	m["child.vmdk"] = descriptorText(8, 7, "bare", `RW 63 ZERO`)
	m["bare"] = setNewlines(miniSparse(7))
	_, d := readAll(t, m, "child.vmdk")
	if w := d.Warnings(); len(w) != 2 || !strings.Contains(strings.Join(w, ";"), "cannot check that it is the parent of") {
		t.Errorf("warnings %q", w)
	}
}

func TestRenamedFileWithItsDescriptorInside(t *testing.T) {
	b := setNewlines(miniSparse(7))
	descriptor := descriptorText(1, NoParent, "", `RW 63 SPARSE "old name.vmdk"`)
	putUints(b, 28, uint64(len(b)/disk.SectorSize), uint64(2))
	b = append(b, append(descriptor, 0)...)
	b = append(b, bytes.Repeat([]byte("left over\x01"), 100)...)
	got, d := readAll(t, memFiles{"new.vmdk": b}, "new.vmdk")
	if !bytes.Equal(got, miniContent()) || len(d.Warnings()) != 0 || d.Layers()[0].CID != 1 {
		t.Errorf("warnings %q, layers %+v", d.Warnings(), d.Layers())
	}
}

func TestRandomReadsInChainOfPieces(t *testing.T) {
	m := snapshot()
	m["child.vmdk"] = descriptorText(8, 7, "base.vmdk", `RW 63 SPARSE "s"`, `RW 1 ZERO`, `RW 4936 VMFSSPARSE "child-delta.vmdk"`)
	m["s"] = setNewlines(miniSparse(7))
	whole, d := readAll(t, m, "child.vmdk")
	rnd := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		off := rnd.Int64N(d.Size())
		p := make([]byte, 1+rnd.Int64N(min(d.Size()-off, 70000)))
		if err := d.ReadAt(t.Context(), p, off); err != nil || !bytes.Equal(p, whole[off:off+int64(len(p))]) {
			t.Fatalf("%d bytes at %d differ, error %v", len(p), off, err)
		}
	}
	if whole[63*512] != 0 || whole[64*512] != 'a' || whole[0] != 'b' || whole[miniGrain] != 'x' {
		t.Error("the pieces are at the wrong offsets")
	}
}
