package lvm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/guest/budget"
	"github.com/decamp/decamp/internal/guest/budget/budgettest"
	"github.com/decamp/decamp/internal/guest/tree/treetest"
)

// testImages returns the two PVs of testdata/make.sh.
func testImages(t testing.TB) [2][]byte {
	t.Helper()
	var both [2][]byte
	for n := range both {
		both[n] = treetest.Unpacked(t, fmt.Sprintf("testdata/pv%d.img.gz", n))
	}
	return both
}

func assembleGroup(t testing.TB, images ...[]byte) Group {
	t.Helper()
	var pvs []PV
	for _, img := range images {
		pv, err := ReadPV(budgettest.Reader(t, bytes.NewReader(img)))
		if err != nil {
			t.Fatal(err)
		}
		pvs = append(pvs, pv)
	}
	groups := Assemble(pvs)
	if len(groups) != 1 {
		t.Fatalf("%d groups", len(groups))
	}
	return groups[0]
}

func TestVolumesMatchLVM2(t *testing.T) {
	both := testImages(t)
	for _, order := range [][][]byte{{both[0], both[1]}, {both[1], both[0]}} {
		g := assembleGroup(t, order...)
		if g.Name != "decamptest" || g.PVs != 2 || len(g.Missing) != 0 || len(g.Volumes) != 3 {
			t.Fatalf("group %+v", g)
		}
		for _, want := range []struct {
			name, kind string
			size       int64
		}{{"root", "linear", 32 * 256 << 10}, {"between", "linear", 2 * 256 << 10}, {"striped", "striped", 8 * 256 << 10}} {
			v := g.Volumes[map[string]int{"root": 0, "between": 1, "striped": 2}[want.name]]
			if v.Name != want.name || v.Kind != want.kind || v.Size != want.size {
				t.Errorf("volume %s, %s of %d bytes; want %+v", v.Name, v.Kind, v.Size, want)
			}
			if want.name == "between" {
				continue
			}
			r, err := v.Open()
			if err != nil {
				t.Fatal(err)
			}
			checkNumberedBlocks(t, r, v)
		}
	}
}

// checkNumberedBlocks reads a volume in pieces that are not aligned to blocks. It requires the name and the number of
// each block.
func checkNumberedBlocks(t *testing.T, r io.ReaderAt, v Volume) {
	t.Helper()
	var want bytes.Buffer
	for b := range v.Size / 4096 {
		for range 256 {
			fmt.Fprintf(&want, "%-8s%07d\n", v.Name, b)
		}
	}
	for _, piece := range []int64{1000, 70000, v.Size} {
		got := make([]byte, 0, v.Size)
		for off := int64(0); off < v.Size; off += piece {
			p := make([]byte, min(piece, v.Size-off))
			if _, err := r.ReadAt(p, off); err != nil {
				t.Fatalf("%s at %d: %v", v.Name, off, err)
			}
			got = append(got, p...)
		}
		if !bytes.Equal(got, want.Bytes()) {
			t.Errorf("content of %s differs when read in pieces of %d", v.Name, piece)
		}
	}
	if _, err := r.ReadAt(make([]byte, 2), v.Size-1); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("reading past the end of %s: got %v, want %v", v.Name, err, io.ErrUnexpectedEOF)
	}
}

func TestMissingPhysicalVolume(t *testing.T) {
	g := assembleGroup(t, testImages(t)[0])
	if len(g.Missing) != 1 || g.Missing[0] != "pv1" {
		t.Errorf("missing %q", g.Missing)
	}
	if _, err := g.Volumes[1].Open(); err != nil {
		t.Errorf("volume between, which is on the existing PV: %v", err)
	}
	if _, err := g.Volumes[0].Open(); err == nil || !strings.Contains(err.Error(), "pv1") {
		t.Errorf("volume root: got %v, want an error about pv1", err)
	}
}

// The newest metadata of the PVs is used.
func TestNewestMetadataIsUsed(t *testing.T) {
	both := testImages(t)
	var pvs []PV
	for _, img := range both {
		pv, err := ReadPV(budgettest.Reader(t, bytes.NewReader(img)))
		if err != nil {
			t.Fatal(err)
		}
		pvs = append(pvs, pv)
	}
	old := newText()
	old.values["id"] = pvs[1].group.values["id"]
	old.values["seqno"] = []string{"1"}
	pvs[1].group = old
	if g := Assemble(pvs)[0]; len(g.Volumes) != 3 {
		t.Errorf("got %d volumes, want 3", len(g.Volumes))
	}
}

func TestDamage(t *testing.T) {
	img := testImages(t)[0]
	for name, at := range map[string]int{"label": 512 + 33, "area": 4096 + 20, "magic": 4096 + 8} {
		bad := bytes.Clone(img)
		bad[at] ^= 1
		if _, err := ReadPV(budgettest.Reader(t, bytes.NewReader(bad))); err == nil {
			t.Errorf("ReadPV accepts a damaged %s", name)
		}
	}
	if _, err := ReadPV(budgettest.Reader(t, bytes.NewReader(make([]byte, 4096)))); err == nil || !strings.Contains(err.Error(), "no LVM2 label") {
		t.Errorf("zeros: got %v, want an error about the label", err)
	}
}

const description = `# made by hand
vg { id = "a-b" seqno = 7 extent_size = 8 status = ["READ", "WRITE"]
 physical_volumes { pv0 { id = "PV-0" pe_start = 8 } }
 logical_volumes {
  thin { id = "1" status = ["READ", "VISIBLE"]
   segment1 { start_extent = 0 extent_count = 2 type = "thin" thin_pool = "p" } }
  p { id = "2" status = ["READ"] segment1 { start_extent = 0 extent_count = 2 type = "thin-pool" } }
  gap { id = "3" status = ["VISIBLE"]
   segment1 { start_extent = 5 extent_count = 2 type = "striped" stripe_count = 1 stripes = ["pv0", 0] } }
  huge { id = "4" status = ["VISIBLE"]
   segment1 { start_extent = 0 extent_count = 99999999999 type = "striped" stripe_count = 1 stripes = ["pv0", 0] } }
  wrapped { id = "5" status = ["VISIBLE"]
   segment1 { start_extent = 0 extent_count = 4 type = "striped" stripe_count = 2 stripe_size = 36028797018963976 stripes = ["pv0", 0, "pv0", 2] } }
 }
}`

func TestUnsupportedVolumeKinds(t *testing.T) {
	all, err := parseText(budgettest.New(t), description)
	if err != nil {
		t.Fatal(err)
	}
	g := all.sections["vg"].toGroup(nil)
	kinds := map[string]string{"thin": "thin", "gap": "damaged", "huge": "damaged", "wrapped": "damaged"} // the stripe size of the last volume is 2^64+4096 bytes
	if len(g.Volumes) != len(kinds) {
		t.Fatalf("volumes %+v", g.Volumes)
	}
	for _, v := range g.Volumes {
		if v.Kind != kinds[v.Name] {
			t.Errorf("%s: %q, want %q", v.Name, v.Kind, kinds[v.Name])
		}
		if _, err := v.Open(); err == nil || !strings.Contains(err.Error(), v.Kind) {
			t.Errorf("%s: %v", v.Name, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, s := range []string{"a {", "a = [1, 2", `a = "b`, "a b", "= 1", strings.Repeat("a {", 20)} {
		if _, err := parseText(budgettest.New(t), s); err == nil {
			t.Errorf("parseText accepts %q", s)
		}
	}
}

// FuzzGroup parses fuzzed descriptions directly. Checksums prevent FuzzReadPV from reaching them.
func FuzzGroup(f *testing.F) {
	f.Add(description)
	f.Add(`vg { id="x" extent_size=1 physical_volumes{a{id="PV" pe_start=0}} logical_volumes{l{status=["VISIBLE"]s{start_extent=0 extent_count=4 type="striped" stripe_size=1 stripes=["a",0,"a",9]}}}}`)
	f.Fuzz(func(t *testing.T, s string) {
		b := budgettest.New(t)
		all, err := parseText(b, s)
		if most := int64(len(s)); b.Used().Peak > sectionMemory*most || b.Used().Steps > 16+8*most { // maximum cost per byte
			t.Errorf("%d bytes cost %+v", most, b.Used())
		}
		if err != nil {
			return
		}
		for _, name := range all.order {
			g := all.sections[name].toGroup(map[string]budget.Reader{"PV": budgettest.Reader(t, bytes.NewReader(make([]byte, 4096)))})
			for _, v := range g.Volumes {
				r, err := v.Open()
				if err != nil {
					continue
				}
				_, _ = r.ReadAt(make([]byte, min(v.Size, 8192)), 0)
				_, _ = r.ReadAt(make([]byte, min(v.Size, 512)), v.Size-min(v.Size, 512))
			}
		}
	})
}

// FuzzReadPV patches a real PV and reads it.
func FuzzReadPV(f *testing.F) {
	img := testImages(f)[0][:128<<10]
	f.Add(512, []byte("LABELONE"))
	f.Add(4096+40, []byte{0xff, 0xff})
	f.Fuzz(func(t *testing.T, at int, patch []byte) {
		if at < 0 || at >= len(img) {
			return
		}
		bad := bytes.Clone(img)
		copy(bad[at:], patch)
		b := budgettest.New(t)
		defer budgettest.Charged(t, b)()
		if pv, err := ReadPV(b.Reader(bytes.NewReader(bad))); err == nil {
			Assemble([]PV{pv, pv})
		}
	})
}

// image is a writable PV.
type image []byte

func (m image) ReadAt(p []byte, off int64) (int, error) {
	return bytes.NewReader(m).ReadAt(p, off)
}

func (m image) WriteAt(p []byte, off int64) (int, error) { return copy(m[off:], p), nil }

// Data that is written to a volume reads back, in pieces of any size. The other volumes of the group do not
// change.
func TestVolumesAreWritten(t *testing.T) {
	both := testImages(t)
	first, err := ReadPV(budgettest.ReadWriter(t, image(both[0])))
	if err != nil {
		t.Fatal(err)
	}
	second, err := ReadPV(budgettest.ReadWriter(t, image(both[1])))
	if err != nil {
		t.Fatal(err)
	}
	g := Assemble([]PV{first, second})[0]
	root, striped := g.Volumes[0], g.Volumes[2]
	for _, v := range []Volume{root, striped} {
		d, err := v.OpenForWriting()
		if err != nil {
			t.Fatal(err)
		}
		want := bytes.Repeat([]byte("decamp "), int(v.Size/7)+1)[:v.Size]
		const piece = 70001 // crosses blocks, stripes, extents and PVs
		for off := 0; off < len(want); off += piece {
			if _, err := d.WriteAt(want[off:min(len(want), off+piece)], int64(off)); err != nil {
				t.Fatal(err)
			}
		}
		got := make([]byte, v.Size)
		if _, err := d.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
			t.Errorf("content of %s differs from the written data: %v", v.Name, err)
		}
		if _, err := d.WriteAt([]byte{1, 2}, d.Size()-1); err == nil {
			t.Errorf("writing past the end of %s succeeds", v.Name)
		}
		if v.Name == root.Name {
			checkNumberedBlocks(t, openVolume(t, striped), striped)
		}
	}
}

func openVolume(t *testing.T, v Volume) io.ReaderAt {
	t.Helper()
	r, err := v.Open()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A volume that has snapshots or is read-only can be read, but not written.
func TestUnwritableVolumes(t *testing.T) {
	group := func(status, more string) string {
		return `vg { id = "x" seqno = 1 status = ["READ", "WRITE"] extent_size = 8 physical_volumes { pv0 { id = "y" pe_start = 8 } }
logical_volumes { root { status = ["VISIBLE", ` + status + `] segment1 { start_extent = 0 extent_count = 1 type = "striped" stripes = ["pv0", 0] } } ` + more + `} }`
	}
	const snapshot = `snapshot0 { status = ["READ"] segment1 { start_extent = 0 extent_count = 1 type = "snapshot" origin = "root" cow_store = "old" } } `
	for name, c := range map[string]struct {
		text string
		r    budget.Reader
		want string
	}{
		"plain":          {group(`"READ", "WRITE"`, ""), budgettest.ReadWriter(t, image{}), ""},
		"snapshot of it": {group(`"READ", "WRITE"`, snapshot), budgettest.ReadWriter(t, image{}), "snapshots"},
		"read-only":      {group(`"READ"`, ""), budgettest.ReadWriter(t, image{}), "read-only"},
		"PV only read":   {group(`"READ", "WRITE"`, ""), budgettest.Reader(t, bytes.NewReader(nil)), "only for reading"},
	} {
		parsed, err := parseText(budgettest.New(t), c.text)
		if err != nil {
			t.Fatal(err)
		}
		g := parsed.sections["vg"].toGroup(map[string]budget.Reader{"y": c.r})
		if _, err := g.Volumes[0].Open(); err != nil {
			t.Errorf("%s: Open: %v", name, err)
		}
		_, err = g.Volumes[0].OpenForWriting()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
