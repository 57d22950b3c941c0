package vmdk

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

func TestHandMadeFiles(t *testing.T) {
	for name, c := range map[string]struct {
		file, want []byte
		format     Format
		grain      int64
	}{
		"sparse":              {miniSparse(7), miniContent(), FormatSparse, miniGrain},
		"sparse, truncated":   {miniSparse(7)[:8*disk.SectorSize+3*miniGrain-disk.SectorSize], miniContent(), FormatSparse, miniGrain},
		"COWD":                {miniCOWD(), miniCOWDContent(), FormatCOWD, disk.SectorSize},
		"seSparse":            {miniSESparse(), miniSESparseContent(), FormatSESparse, 4096},
		"seSparse, truncated": {miniSESparse()[:192*disk.SectorSize+4096+4096], miniSESparseContent(), FormatSESparse, 4096},
	} {
		c.file = setNewlines(c.file)
		got, d := readAll(t, memFiles{"x.vmdk": c.file}, "x.vmdk")
		if !bytes.Equal(got, c.want) {
			t.Errorf("%s: content differs", name)
		}
		if l := d.Layers()[0]; l.Format != c.format || l.Grain != c.grain || l.Size != int64(len(c.want)) {
			t.Errorf("%s: layer %+v", name, l)
		}
		if w := d.Warnings(); len(w) != 1 || !strings.Contains(w[0], "no descriptor") {
			t.Errorf("%s: warnings %q", name, w)
		}
	}
}

// The last grain of a file can be truncated. Its missing part is zeros, also next to a grain that is
// complete.
func TestReadsPastTheEndOfTheFile(t *testing.T) {
	b := setNewlines(miniSparse(7))
	b = b[:len(b)-miniGrain/2]
	putUints(b, 6*disk.SectorSize, uint32(16), uint32(24), uint32(24)) // grains 4 to 7: b, c, c, c
	putUints(b, 6*disk.SectorSize+12, uint32(24))
	d, err := Open(t.Context(), memFiles{"x": b}, "x", Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for off := int64(4 * miniGrain); off < d.Size(); off += disk.SectorSize {
		p := make([]byte, d.Size()-off)
		if err := d.ReadAt(t.Context(), p, off); err != nil {
			t.Fatal(err)
		}
		for i, got := range p {
			at, want := off+int64(i), byte('c')
			switch {
			case at < 5*miniGrain:
				want = 'b'
			case at%miniGrain >= miniGrain/2:
				want = 0
			}
			if got != want {
				t.Fatalf("from %d: byte %d is %q, want %q", off, at, got, want)
			}
		}
	}
}

// setNewlines adds the newline characters that flag 1 of a sparse header announces.
func setNewlines(b []byte) []byte {
	if string(b[:4]) == "KDMV" {
		copy(b[73:], "\n \r\n")
	}
	return b
}

func TestRunsDistinguishZeroFromAbsent(t *testing.T) {
	d, err := Open(t.Context(), memFiles{"x": miniSESparse()}, "x", Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var got []Run
	err = d.Runs(t.Context(), disk.Range{Off: 100, Len: 20000}, func(r Run) bool { got = append(got, r); return true })
	want := []Run{
		{Range: disk.Range{Off: 100, Len: 3996}, Kind: Data, At: 192*512 + 4096 + 100},
		{Range: disk.Range{Off: 4096, Len: 8192}, Kind: Zero},
		{Range: disk.Range{Off: 12288, Len: 7812}},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestRefusedFiles(t *testing.T) {
	sparse, cowd, se := setNewlines(miniSparse(7)), miniCOWD(), miniSESparse()
	const unsupported, corrupt, conflict = fault.Unsupported, fault.Corrupt, fault.Conflict
	for name, c := range map[string]struct {
		file []byte
		kind fault.Kind
		want string
	}{
		"sparse: version 4":               {patched(sparse, 4, uint32(4)), unsupported, "version 4"},
		"sparse: version 0":               {patched(sparse, 4, uint32(0)), unsupported, "version 0"},
		"sparse: unknown flag":            {patched(sparse, 8, uint32(0x40007)), unsupported, "flags 0x40007"},
		"sparse: compressed by flag":      {patched(sparse, 8, uint32(0x10007)), unsupported, "contradict"},
		"sparse: compressed by number":    {patched(sparse, 77, uint32(1)), unsupported, "contradict"},
		"sparse: transferred as text":     {patched(sparse, 73, uint32(0x0a0a200a)), corrupt, "as text"},
		"sparse: no capacity":             {patched(sparse, 12, uint64(0)), corrupt, "capacity"},
		"sparse: absurd capacity":         {patched(sparse, 12, uint64(1<<63)), corrupt, "capacity"},
		"sparse: grain":                   {patched(sparse, 20, uint64(12)), corrupt, "grain size"},
		"sparse: giant grain":             {patched(sparse, 20, uint64(1<<22)), corrupt, "grain size"},
		"sparse: table":                   {patched(sparse, 44, uint32(513)), corrupt, "513 entries"},
		"sparse: empty table":             {patched(sparse, 44, uint32(0)), corrupt, "0 entries"},
		"sparse: directory at the end":    {patched(sparse, 56, uint64(1<<64-1)), corrupt, "directory is at the end"},
		"sparse: directory out of file":   {patched(patched(sparse, 8, uint32(5)), 56, uint64(999)), corrupt, "directory ends"},
		"sparse: directory in the header": {patched(sparse, 56, uint64(0)), corrupt, "directory cannot be"},
		"sparse: descriptor too long":     {patched(sparse, 28, uint64(1), uint64(1<<20)), corrupt, "descriptor has"},
		"sparse: only a header":           {sparse[:100], corrupt, "no header"},
		"sparse: grain 1, no flag":        {patched(sparse, 8, uint32(3)), corrupt, "sector 1"},
		"COWD: Workstation 3":             {patched(cowd, 4, uint32(3)), unsupported, "Workstation 3"},
		"COWD: version 2":                 {patched(cowd, 4, uint32(2)), unsupported, "version 2"},
		"COWD: empty":                     {patched(cowd, 12, uint32(0)), corrupt, "no sectors"},
		"COWD: grain":                     {patched(cowd, 16, uint32(0)), corrupt, "offset 16"},
		"COWD: directory too short":       {patched(cowd, 24, uint32(1)), corrupt, "directory has 1"},
		"COWD: directory out of file":     {patched(cowd, 20, uint32(1<<31)), corrupt, "directory ends"},
		"COWD: table out of file":         {patched(cowd, 4*512, uint32(1<<31)), corrupt, "it ends at"},
		"COWD: grain out of file":         {patched(cowd, 5*512, uint32(71)), corrupt, "sector 71"},
		"COWD: grain in the header":       {patched(cowd, 5*512, uint32(2)), corrupt, "sector 2"},
		"COWD: only a header":             {cowd[:100], corrupt, "no COWD header"},
		"seSparse: version":               {patched(se, 8, uint64(0x200000002)), unsupported, "version"},
		"seSparse: grain":                 {patched(se, 24, uint64(16)), unsupported, "grain size"},
		"seSparse: table":                 {patched(se, 32, uint64(128)), unsupported, "grain table size"},
		"seSparse: flags":                 {patched(se, 40, uint64(1)), unsupported, "flags"},
		"seSparse: reserved":              {patched(se, 72, uint64(1)), unsupported, "reserved field 4"},
		"seSparse: padding":               {patched(se, 208, uint64(1)), unsupported, "not known"},
		"seSparse: absurd capacity":       {patched(se, 16, uint64(1<<60)), corrupt, "offset 16"},
		"seSparse: more than 64 TiB":      {patched(se, 16, uint64(1<<37+1)), corrupt, "more than ESXi"},
		"seSparse: no grains":             {patched(se, 192, uint64(0)), corrupt, "offset 192"},
		"seSparse: directory":             {patched(se, 128, uint64(1<<20)), corrupt, "directory ends"},
		"seSparse: volatile header":       {patched(se, 512, uint64(5)), corrupt, "volatile header"},
		"seSparse: dirty journal":         {patched(se, 512+24, uint64(1)), conflict, "journal"},
		"seSparse: directory entry":       {patched(se, 3*512, uint64(0x2000000000000001)), corrupt, "entry 0 of the directory"},
		"seSparse: table out of file":     {patched(se, 3*512, uint64(0x1000000000000007)), corrupt, "it ends at"},
		"seSparse: grain type":            {patched(se, 68*512, uint64(0x4000000000000000)), corrupt, "grain 0 of table 0"},
		"seSparse: absent with number":    {patched(se, 68*512, uint64(5)), corrupt, "grain 0 of table 0"},
		"seSparse: grain out of file":     {patched(se, 68*512, uint64(0x3002000000000000)), corrupt, "grain 0 of table 0"},
		"seSparse: grain far away":        {patched(se, 68*512, uint64(0x3fffffffffffffff)), corrupt, "grain 0 of table 0"},
		"seSparse: only a header":         {se[:100], corrupt, "no seSparse header"},
		"flat file":                       {make([]byte, MaxDescriptor+1), corrupt, "neither a descriptor nor"},
	} {
		err := openRead(t, memFiles{"x": c.file}, "x")
		if err == nil || fault.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.want) || fault.HintOf(err) == "" {
			t.Errorf("%s: got %v (%v, hint %q), want %q", name, err, fault.KindOf(err), fault.HintOf(err), c.want)
		}
	}
}

func TestDamagedTablesAreReadFromTheirCopies(t *testing.T) {
	whole := setNewlines(miniSparse(7))
	for name, c := range map[string]struct {
		file []byte
		want string // part of the warning
	}{
		"directory out of file": {patched(whole, 56, uint64(1<<30)), "directory cannot be read"},
		"directory entry":       {patched(whole, 2*512, uint32(1<<31)), "directory is damaged"},
		"directory of zeros":    {patched(whole, 2*512, uint32(0), uint32(0)), "directory is damaged"},
		"table of zeros":        {patched(whole, 5*512, uint32(0), uint32(0), uint32(0), uint32(0)), "table is damaged"},
		"table":                 {patched(whole, 5*512, uint32(1<<31)), "table is damaged"},
	} {
		got, d := readAll(t, memFiles{"x": c.file}, "x")
		if !bytes.Equal(got, miniContent()) {
			t.Errorf("%s: content differs", name)
		}
		if w := d.Warnings(); len(w) != 2 || !strings.Contains(w[1], c.want) {
			t.Errorf("%s: warnings %q", name, w)
		}
		without := patched(c.file, 8, uint32(5)) // no redundant copy
		if err := openRead(t, memFiles{"x": without}, "x"); !fault.Is(err, fault.Corrupt) && !strings.HasSuffix(name, "of zeros") {
			t.Errorf("%s, no copy: %v", name, err)
		}
		both := patched(patched(c.file, 512, uint32(1<<31)), 3*512, uint32(1<<31)) // the copy is damaged too
		if err := openRead(t, memFiles{"x": both}, "x"); !fault.Is(err, fault.Corrupt) && !strings.HasSuffix(name, "of zeros") {
			t.Errorf("%s, copy damaged: %v", name, err)
		}
	}
}
