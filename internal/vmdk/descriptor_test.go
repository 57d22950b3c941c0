package vmdk

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

// base is a descriptor without extents. Tests append extent lines to it.
const base = "version=1\nCID=fffffffe\nparentCID=ffffffff\ncreateType=\"vmfs\"\n"

func parseFile(t *testing.T, name string) *Descriptor {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	d, err := ParseDescriptor(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDescriptorOfESXi(t *testing.T) {
	d := parseFile(t, "vmfs.vmdk")
	if d.CID != 0xfffffffe || d.IsDelta() || d.CreateType != "vmfs" || d.Version != 1 {
		t.Errorf("header: %+v", d)
	}
	if d.ChangeTrack != "web 01-ctk.vmdk" || d.DDB["thinprovisioned"] != "1" || d.DDB["adaptertype"] != "lsilogic" {
		t.Errorf("change track %q, ddb %v", d.ChangeTrack, d.DDB)
	}
	pieces, err := d.Flat()
	want := []Piece{{Range: disk.Range{Len: 16 << 30}, File: "web 01-flat.vmdk"}}
	if err != nil || !reflect.DeepEqual(pieces, want) || d.Size() != 16<<30 {
		t.Errorf("pieces %v of %d bytes, %v", pieces, d.Size(), err)
	}
}

func TestQuotesInsideAName(t *testing.T) {
	for line, want := range map[string]ExtentLine{
		`RW 8 VMFS "the "old" box-flat.vmdk"`:    {File: `the "old" box-flat.vmdk`},
		`RW 8 VMFS "it's "quoted"-flat.vmdk"`:    {File: `it's "quoted"-flat.vmdk`},
		`RW 8 VMFS ""2" 3rd-flat.vmdk"`:          {File: `"2" 3rd-flat.vmdk`},
		`RW 8 FLAT "the "old" box-f001.vmdk" 16`: {File: `the "old" box-f001.vmdk`, Offset: 16 * disk.SectorSize},
	} {
		d, err := ParseDescriptor([]byte(base + line))
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if x := d.Extents[0]; x.File != want.File || x.Offset != want.Offset {
			t.Errorf("%s: file %q at %d", line, x.File, x.Offset)
		}
	}
}

func TestPiecesConcatenate(t *testing.T) {
	pieces, err := parseFile(t, "twogb.vmdk").Flat()
	want := []Piece{
		{Range: disk.Range{Off: 0, Len: 2 << 30}, File: "twogb-f001.vmdk"},
		{Range: disk.Range{Off: 2 << 30, Len: 1 << 20}},
		{Range: disk.Range{Off: 2<<30 + 1<<20, Len: 1 << 30}, File: "twogb-f002.vmdk", Offset: 64 << 10},
	}
	if err != nil || !reflect.DeepEqual(pieces, want) {
		t.Errorf("got %v, %v", pieces, err)
	}
}

func TestEmbeddedDescriptorWithCRLFAndPadding(t *testing.T) {
	d := parseFile(t, "stream.vmdk")
	x := d.Extents[0]
	if d.CreateType != "streamOptimized" || x.Access != ReadOnly || x.Type != Sparse || x.Line != 8 {
		t.Errorf("type %q, extent %+v", d.CreateType, x)
	}
}

func TestDeltaKeepsItsParent(t *testing.T) {
	d := parseFile(t, "delta.vmdk")
	if !d.IsDelta() || d.ParentCID != 0xfffffffe || d.ParentFile != "/vmfs/volumes/5f0c-11/web01/web01.vmdk" {
		t.Errorf("descriptor %+v, want a delta of web01.vmdk", d)
	}
}

func TestDescriptorVariantsAreAccepted(t *testing.T) {
	for name, text := range map[string]string{
		"keys in capitals":       "VERSION=1\nPARENTCID=FFFFFFFF\nrw 8 vmfs \"x-flat.vmdk\"\n",
		"offset for VMFS":        base + `RW 8 VMFS "x-flat.vmdk" 0`,
		"tabs":                   base + "RW\t8\tVMFS\t\"x-flat.vmdk\"",
		"short CID":              "CID=1f\nparentCID=ffffffff\nRW 8 VMFS \"x-flat.vmdk\"",
		"same entry twice":       base + base + `RW 8 VMFS "x-flat.vmdk"`,
		"partition id":           base + `RW 8 FLAT "x-flat.vmdk" 0 partitionUUID device`,
		"UTF-8 name":             base + `RW 8 VMFS "büro-flat.vmdk"`,
		"ASCII name, other code": base + "encoding=\"GBK\"\nRW 8 VMFS \"x-flat.vmdk\"",
		"byte order mark":        "\ufeff" + base + `RW 8 VMFS "x-flat.vmdk"`,
		"absolute name":          base + `RW 8 VMFS "/vmfs/volumes/ds 1/web01/x-flat.vmdk"`,
		"zeros with a file":      base + `RW 8 ZERO "../x" 5`,
		"old text after a NUL":   base + "RW 8 VMFS \"x-flat.vmdk\"\n\x00rsion = \"4\"\n\x00\x00",
		"colon in a name":        base + `RW 8 VMFS "web:01-flat.vmdk"`,
	} {
		d, err := ParseDescriptor([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, err := d.Flat(); err != nil || d.Size() != 4096 {
			t.Errorf("%s: %d bytes, %v", name, d.Size(), err)
		}
	}
}

func TestNamesInOtherEncodings(t *testing.T) {
	for encoding, c := range map[string]struct{ bytes, want string }{
		"windows-1252": {"b\xfcro \x80.vmdk", "büro €.vmdk"},
		"GBK":          {"\xc4\xe3\xba\xc3\x81\x5c.vmdk", "你好乗.vmdk"},
		"Big5":         {"\xa7\x41\xa6\x6e\xa5\x5c.vmdk", "你好功.vmdk"},
		"Shift_JIS":    {"\x83\x5c\x83\x74\x83\x67.vmdk", "ソフト.vmdk"},
		"UTF-8":        {"büro.vmdk", "büro.vmdk"},
	} {
		text := base + "encoding=\"" + encoding + "\"\nparentFileNameHint=\"" + c.bytes + "\"\nRW 8 VMFS \"" + c.bytes + "\""
		d, err := ParseDescriptor([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", encoding, err)
			continue
		}
		if d.Extents[0].File != c.want || d.ParentFile != c.want {
			t.Errorf("%s: file %q, parent %q, want %q", encoding, d.Extents[0].File, d.ParentFile, c.want)
		}
	}
}

func TestRefusedDescriptors(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want string // part of the error
	}{
		"too large":          {strings.Repeat("#", MaxDescriptor+1), "more than"},
		"binary":             {"KDMV\x01\x00\x00\x00\x03", "offset 4: this is not text"},
		"no extents":         {base, "no extent line"},
		"empty":              {"", "no extent line"},
		"unknown line":       {base + "RX 8 VMFS \"x\"", "line 5"},
		"length":             {base + `RW 0 VMFS "x"`, "line 5: \"0\" is not a length"},
		"length too large":   {base + `RW 9223372036854775807 VMFS "x"`, "not a length"},
		"sum too large":      {base + "RW 18014398509481983 ZERO\nRW 18014398509481983 ZERO", "line 6"},
		"negative offset":    {base + `RW 8 FLAT "x" -1`, "not an offset"},
		"no file":            {base + "RW 8 VMFS", "without a file"},
		"no quotes":          {base + "RW 8 VMFS x", "no quotes"},
		"half quotes":        {base + `RW 8 VMFS "x`, "no quotes"},
		"CID":                {"CID=xyz\n", "line 1: cid"},
		"two parents":        {"parentCID=1\nparentCID=2\n", "line 2: parentcid"},
		"name not UTF-8":     {base + "RW 8 VMFS \"b\xfcro\"", "not in UTF-8"},
		"version":            {"version=9\nRW 8 VMFS \"x\"", "version 9"},
		"absolute":           {base + `RW 8 VMFS "/etc/shadow"`, "absolute"},
		"parent folder":      {base + `RW 8 VMFS "../other/x-flat.vmdk"`, "folder"},
		"parent in between":  {base + `RW 8 VMFS "a/../../x"`, "folder"},
		"empty part":         {base + `RW 8 VMFS "a//x"`, "folder"},
		"drive":              {base + `RW 8 FLAT "C:x.vmdk"`, "drive"},
		"backslash":          {base + `RW 8 FLAT "..\x.vmdk"`, "backslash"},
		"scheme":             {base + `RW 8 VMFS "http://x/y"`, "scheme"},
		"tab in a name":      {base + "RW 8 VMFS \"a\tb\"", "control"},
		"newline in a name":  {base + "RW 8 VMFS \"a\nb\"", "quotes"},
		"NUL in a name":      {base + "RW 8 VMFS \"a\x00b\"\n", "not text"},
		"name not GBK":       {base + "encoding=\"GBK\"\nRW 8 VMFS \"\xff\xff\"", "not in GBK"},
		"unknown encoding":   {base + "encoding=\"KOI7\"\nRW 8 VMFS \"\xc4\"", "encoding \"KOI7\""},
		"parent not UTF-8":   {"parentCID=1\nparentFileNameHint=\"b\xfc\"\nRW 8 VMFS \"x\"", "not in UTF-8"},
		"datastore and out":  {base + `RW 8 VMFS "/vmfs/volumes/../../etc/shadow"`, "folder"},
		"datastore itself":   {base + `RW 8 VMFS "/vmfs/volumes/"`, "folder"},
		"escape in the text": {base + "# \x1b[2J\nRW 8 VMFS \"x\"", "0x1b"},
	} {
		_, err := ParseDescriptor([]byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
			continue
		}
		checkFault(t, name, err)
	}
}

func TestNonFlatDisksAreDescribed(t *testing.T) {
	ext := func(line string) string { return base + line }
	for name, c := range map[string]struct{ text, want string }{
		"delta":           {"parentCID=00000001\nparentFileNameHint=\"p.vmdk\"\nRW 8 VMFSSPARSE \"d\"", `delta on "p.vmdk"`},
		"hint only":       {"parentFileNameHint=\"p.vmdk\"\nRW 8 VMFS \"d\"", "delta"},
		"native snapshot": {"isNativeSnapshot=\"yes\"\nRW 8 VMFS \"x\"", "native"},
		"virtual RDM":     {ext(`RW 8 VMFSRDM "x-rdm.vmdk"`), "LUN"},
		"raw device":      {ext(`RW 8 VMFSRAW "/vmfs/devices/disks/naa.1"`), "LUN"},
		"device":          {ext(`RW 8 FLAT "/dev/sda" 0`), "device /dev/sda"},
		"device of ESXi":  {ext(`RW 8 VMFS "/vmfs/devices/disks/naa.1"`), "device /vmfs"},
		"Windows device":  {ext(`RW 8 FLAT "\\.\PhysicalDrive0" 63`), "device"},
		"vSAN":            {ext(`RW 8 VMFS "vsan://52d1"`), "vsan://52d1"},
		"vVol":            {ext(`RW 8 VMFS "vvol://52d1"`), "object"},
		"vSAN delta":      {ext(`RW 8 VSANSPARSE "vsan://52d1"`), "vSAN"},
		"sparse":          {ext(`RW 8 SPARSE "x.vmdk"`), "not flat"},
		"seSparse":        {ext(`RW 8 SESPARSE "x.vmdk"`), "not flat"},
		"unknown":         {ext(`RW 8 FANCY "x.vmdk"`), "FANCY"},
		"encrypted":       {ext("RW 8 VMFS \"x\"\nddb.iofilters = \"vmwarevmcrypt\""), "encrypted"},
	} {
		d, err := ParseDescriptor([]byte(c.text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		_, err = d.Flat()
		if err == nil || !strings.Contains(err.Error(), c.want) || !fault.Is(err, fault.Unsupported) {
			t.Errorf("%s: got %v (%v), want %q", name, err, fault.KindOf(err), c.want)
			continue
		}
		checkFault(t, name, err)
	}
}

// checkFault requires the kind corrupt or unsupported, and a hint.
func checkFault(t *testing.T, name string, err error) {
	t.Helper()
	if k := fault.KindOf(err); k != fault.Corrupt && k != fault.Unsupported {
		t.Errorf("%s: kind %v", name, k)
	}
	if fault.HintOf(err) == "" {
		t.Errorf("%s: no hint in %v", name, err)
	}
}

func FuzzParseDescriptor(f *testing.F) {
	seeds, err := filepath.Glob("testdata/*.vmdk")
	if err != nil || len(seeds) == 0 {
		f.Fatalf("seeds: %v, %v", seeds, err)
	}
	for _, name := range seeds {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(base + `RW 8 VMFS "../../etc/shadow"`))
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := ParseDescriptor(text)
		if err != nil {
			checkFault(t, "parse", err)
			return
		}
		checkParsed(t, d)
	})
}

// checkParsed checks the properties that hold for every accepted descriptor. It shares no code
// with the parser.
func checkParsed(t *testing.T, d *Descriptor) {
	t.Helper()
	for _, x := range d.Extents {
		if x.File == "" {
			continue
		}
		inDatastore, _ := strings.CutPrefix(x.File, "/vmfs/volumes/")
		if !filepath.IsLocal(inDatastore) || !utf8.ValidString(x.File) || filepath.Clean(x.File) != x.File {
			t.Errorf("file name %q was accepted", x.File)
		}
	}
	pieces, err := d.Flat()
	if err != nil {
		checkFault(t, "flat", err)
		return
	}
	var end int64
	for _, p := range pieces {
		if p.Off != end || p.Len <= 0 || p.Offset < 0 || p.Offset+p.Len < p.Offset {
			t.Errorf("piece %+v follows offset %d", p, end)
		}
		end = p.End()
	}
	if end != d.Size() {
		t.Errorf("pieces end at %d, want the disk size %d", end, d.Size())
	}
}
