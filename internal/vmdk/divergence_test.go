package vmdk_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/vmdk"
	"github.com/decamp/decamp/internal/vmdk/vmdktest"
)

// The readers that are there (qemu, dissect, libvmdk, xen-orchestra) disagree in places.
// These are the places, each with what is right: docs/formats/vmdk.md has the table.

func flat(data float64) vmdktest.Layer {
	return vmdktest.Layer{Sectors: vmdktest.Odd, Data: data}
}

func chainOf(layers ...vmdktest.Layer) vmdktest.Chain {
	return vmdktest.Chain{Seed: 99, Layers: layers}
}

// readRight opens d with a warning that contains warns, "" for none at all, and compares.
func readRight(t *testing.T, d *vmdktest.Disk, warns string) {
	t.Helper()
	src := open(t, d.Folder, d.Name)
	if err := d.Want.Compare(t.Context(), src); err != nil {
		t.Error(err)
	}
	got := strings.Join(src.Warnings(), "; ")
	if warns == "" && got != "" || !strings.Contains(got, warns) {
		t.Errorf("warnings %q, want %q", got, warns)
	}
}

// refused opens d and demands this kind of error, with a remedy.
func refused(t *testing.T, d *vmdktest.Disk, kind fault.Kind, says string) {
	t.Helper()
	src, err := vmdk.Open(t.Context(), vmdk.Folder(d.Folder), d.Name, vmdk.Options{})
	if err == nil {
		src.Close()
		t.Fatal("it was opened")
	}
	if !fault.Is(err, kind) || fault.HintOf(err) == "" || !strings.Contains(err.Error(), says) {
		t.Errorf("got %v error %q with remedy %q, want %v and %q", fault.KindOf(err), err, fault.HintOf(err), kind, says)
	}
}

// patch writes b into a file of d.
func patch(t *testing.T, d *vmdktest.Disk, file string, at int64, b []byte) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(d.Folder, file), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
}

// edit replaces text in a descriptor of d.
func edit(t *testing.T, d *vmdktest.Disk, file, old, with string) {
	t.Helper()
	path := filepath.Join(d.Folder, file)
	text, err := os.ReadFile(path)
	if err != nil || !bytes.Contains(text, []byte(old)) {
		t.Fatalf("no %q in %s: %v", old, path, err)
	}
	if err := os.WriteFile(path, bytes.ReplaceAll(text, []byte(old), []byte(with)), 0o600); err != nil {
		t.Fatal(err)
	}
}

func u32(n uint32) []byte { return binary.LittleEndian.AppendUint32(nil, n) }
func u64(n uint64) []byte { return binary.LittleEndian.AppendUint64(nil, n) }

// dissect lets an unmapped grain fall through to the parent.
func TestUnmappedGrainsHideTheParent(t *testing.T) {
	d := write(t, chainOf(flat(1), vmdktest.Layer{Format: vmdktest.SESparse, Unmapped: 0.5}))
	readRight(t, d, "")
}

// dissect reads tables that the journal would have to correct first.
func TestDirtySESparseIsRefused(t *testing.T) {
	d := write(t, chainOf(flat(1), vmdktest.Layer{Format: vmdktest.SESparse, Data: 0.2}))
	patch(t, d, "disk-000001-sesparse.vmdk", 512+24, u64(1))
	refused(t, d, fault.Conflict, "journal")
}

// qemu wants a descriptor for each.
func TestBareExtentsAreReadWithAWarning(t *testing.T) {
	for _, l := range []vmdktest.Layer{
		{Format: vmdktest.SESparse, Sectors: vmdktest.Odd, Data: 0.3, Zero: 0.1},
		{Format: vmdktest.COWD, Sectors: vmdktest.Odd, Data: 0.3, Zero: 0.1, Run: 9},
		{Format: vmdktest.Sparse, Sectors: vmdktest.Odd, Data: 0.3, Hosted: vmdktest.Hosted{Separate: true}},
	} {
		d := write(t, chainOf(l))
		d.Name = map[vmdktest.Format]string{
			vmdktest.SESparse: "disk-sesparse.vmdk", vmdktest.COWD: "disk-delta.vmdk", vmdktest.Sparse: "disk-s001.vmdk",
		}[l.Format]
		readRight(t, d, "has no descriptor")
	}
}

// qemu drops ZERO and NOACCESS extents, which moves all that follows; an offset for VMFS
// is an error to it, and one for FLAT is ignored by dissect; RDONLY makes qemu abort.
func TestExtentLinesThatOthersMisread(t *testing.T) {
	some := func(x ...vmdktest.Extent) vmdktest.Layer {
		l := flat(0.9)
		l.Extents, l.Sectors = x, 0
		for _, e := range x {
			l.Sectors += e.Sectors
		}
		return l
	}
	for name, l := range map[string]vmdktest.Layer{
		"ZERO first":    some(vmdktest.Extent{Sectors: 100, Type: "ZERO"}, vmdktest.Extent{Sectors: 5000}),
		"ZERO last":     some(vmdktest.Extent{Sectors: 5000}, vmdktest.Extent{Sectors: 100, Type: "ZERO"}),
		"only ZERO":     some(vmdktest.Extent{Sectors: 100, Type: "ZERO"}),
		"NOACCESS":      some(vmdktest.Extent{Sectors: 5000}, vmdktest.Extent{Sectors: 100, Access: "NOACCESS"}, vmdktest.Extent{Sectors: 5000}),
		"RDONLY":        some(vmdktest.Extent{Sectors: 5000, Access: "RDONLY"}),
		"VMFS offset":   some(vmdktest.Extent{Sectors: 5000, Type: "VMFS", Offset: 3}),
		"FLAT offset":   some(vmdktest.Extent{Sectors: 5000, Type: "FLAT", Offset: 77}),
		"many offsets":  some(vmdktest.Extent{Sectors: 999, Offset: 1}, vmdktest.Extent{Sectors: 1, Offset: 9}, vmdktest.Extent{Sectors: 1000, Offset: 5}),
		"one of sector": some(vmdktest.Extent{Sectors: 1}),
	} {
		t.Run(name, func(t *testing.T) { readRight(t, write(t, chainOf(l)), "") })
	}
}

// qemu refuses vmfsThin; createType is advice.
func TestEveryCreateTypeOfFlatDisks(t *testing.T) {
	for _, name := range []string{
		"vmfs", "vmfsThin", "vmfsPreallocated", "vmfsEagerZeroedThick", "monolithicFlat", "twoGbMaxExtentFlat",
		"2GbMaxExtentFlat", "custom", "VMFS", "somethingNew",
	} {
		l := flat(0.7)
		l.Text.CreateType = name
		readRight(t, write(t, chainOf(l)), "")
	}
}

// dissect gives an empty disk and no error.
func TestRawDeviceMappingsAreRefused(t *testing.T) {
	for _, line := range []string{`VMFSRDM "disk-rdm.vmdk"`, `VMFSRDM "disk-rdmp.vmdk"`, `VMFSRAW "/vmfs/devices/disks/naa.6"`, `VMFS "vsan://52d1"`, `VMFS "vvol://1"`} {
		d := write(t, chainOf(flat(0.1)))
		edit(t, d, "disk.vmdk", `VMFS "disk-flat.vmdk"`, line)
		refused(t, d, fault.Unsupported, "")
	}
}

// dissect fails at the end of every sparse disk that fills no grain.
func TestSizesThatFillNoGrain(t *testing.T) {
	for _, sectors := range []int64{1, 7, 127, 129, 65537, 32769} {
		for _, l := range []vmdktest.Layer{
			{Format: vmdktest.Sparse}, {Format: vmdktest.Sparse, Hosted: vmdktest.Hosted{ShortEnd: true}},
			{Format: vmdktest.Stream}, {Format: vmdktest.Stream, Hosted: vmdktest.Hosted{ShortEnd: true}},
			{Format: vmdktest.COWD}, {Format: vmdktest.SESparse},
		} {
			l.Sectors, l.Data = sectors, 1
			d := write(t, chainOf(l))
			if err := d.Want.Compare(t.Context(), open(t, d.Folder, d.Name)); err != nil {
				t.Errorf("format %d, %d sectors: %v", l.Format, sectors, err)
			}
		}
	}
}

// qemu opens the absolute path; dissect takes any file of the last name.
func TestParentsByDatastorePath(t *testing.T) {
	delta := vmdktest.Layer{Format: vmdktest.COWD, Data: 0.2, Run: 5}
	delta.Text.Parent = "/vmfs/volumes/5f0c-11/web01/disk.vmdk"
	readRight(t, write(t, chainOf(flat(1), delta)), "")

	d := write(t, chainOf(flat(1), delta))
	other := t.TempDir()
	for _, name := range []string{"disk.vmdk", "disk-flat.vmdk"} {
		if err := os.Rename(filepath.Join(d.Folder, name), filepath.Join(other, name)); err != nil {
			t.Fatal(err)
		}
	}
	refused(t, d, fault.NotFound, "disk.vmdk")
	src, err := vmdk.Open(t.Context(), vmdk.Folder(d.Folder, other), d.Name, vmdk.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	if err := d.Want.Compare(t.Context(), src); err != nil {
		t.Error(err)
	}
}

// qemu tells "invalid argument" at the first read that falls through, others nothing.
func TestChangedParentIsNoticedWhenOpened(t *testing.T) {
	d := write(t, chainOf(flat(1), vmdktest.Layer{Format: vmdktest.COWD, Data: 0.2, Run: 5, Text: vmdktest.Text{ParentCID: "12345678"}}))
	refused(t, d, fault.Conflict, "12345678")
	src, err := vmdk.Open(t.Context(), vmdk.Folder(d.Folder), d.Name, vmdk.Options{IgnoreCID: true})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	if err := d.Want.Compare(t.Context(), src); err != nil {
		t.Error(err)
	}
	if len(src.Warnings()) != 1 {
		t.Errorf("warnings %q", src.Warnings())
	}
}

// qemu finds keys anywhere in the text, and looks for the parent in the first 10 KiB only.
func TestKeysAreFoundInTheirLinesAlone(t *testing.T) {
	l := flat(0.5)
	l.Text.More = "# parentCID=00000001 parentFileNameHint=\"other.vmdk\" isNativeSnapshot=\"yes\"\nddb.comment = \"CID=00000002\"\n"
	readRight(t, write(t, chainOf(l)), "")

	far := vmdktest.Layer{Format: vmdktest.COWD, Data: 0.2, Run: 5}
	d := write(t, chainOf(flat(1), far))
	padding := strings.Repeat("# "+strings.Repeat("x", 97)+"\n", 9000)
	edit(t, d, "disk-000001.vmdk", "# Disk DescriptorFile\n", "# Disk DescriptorFile\n"+padding)
	readRight(t, d, "")
}

// What the file says of itself must be known, or nothing of it can be.
func TestUnknownFeaturesAreRefused(t *testing.T) {
	sparse := vmdktest.Layer{Format: vmdktest.Sparse, Sectors: vmdktest.Odd, Data: 0.1}
	stream := vmdktest.Layer{Format: vmdktest.Stream, Sectors: vmdktest.Odd, Data: 0.1}
	cowd := vmdktest.Layer{Format: vmdktest.COWD, Data: 0.1}
	se := vmdktest.Layer{Format: vmdktest.SESparse, Data: 0.1}
	for _, c := range []struct {
		name   string
		layers []vmdktest.Layer
		file   string
		at     int64
		bytes  []byte
		kind   fault.Kind
	}{
		{"sparse version 4", []vmdktest.Layer{sparse}, "disk.vmdk", 4, u32(4), fault.Unsupported},
		{"unknown incompatible flag", []vmdktest.Layer{sparse}, "disk.vmdk", 8, u32(0x40001), fault.Unsupported},
		{"compressed by flag alone", []vmdktest.Layer{sparse}, "disk.vmdk", 8, u32(0x10001), fault.Unsupported},
		{"compressed by algorithm alone", []vmdktest.Layer{sparse}, "disk.vmdk", 77, []byte{1, 0}, fault.Unsupported},
		{"unknown compression", []vmdktest.Layer{stream}, "disk.vmdk", 77, []byte{2, 0}, fault.Unsupported},
		{"compressed without markers", []vmdktest.Layer{stream}, "disk.vmdk", 8, u32(0x10001), fault.Unsupported},
		{"mangled by a text transfer", []vmdktest.Layer{sparse}, "disk.vmdk", 73, []byte("\n \n\n"), fault.Corrupt},
		{"COWD version 3", []vmdktest.Layer{flat(1), cowd}, "disk-000001-delta.vmdk", 4, u32(3), fault.Unsupported},
		{"seSparse 3.0", []vmdktest.Layer{flat(1), se}, "disk-000001-sesparse.vmdk", 8, u64(3 << 32), fault.Unsupported},
		{"seSparse grain of 16 sectors", []vmdktest.Layer{flat(1), se}, "disk-000001-sesparse.vmdk", 24, u64(16), fault.Unsupported},
		{"seSparse flag", []vmdktest.Layer{flat(1), se}, "disk-000001-sesparse.vmdk", 40, u64(1), fault.Unsupported},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := write(t, chainOf(c.layers...))
			patch(t, d, c.file, c.at, c.bytes)
			refused(t, d, c.kind, "")
		})
	}
}

func TestNativeSnapshotsAndEncryptedDisksAreRefused(t *testing.T) {
	l := flat(0.1)
	l.Text.Native = true
	refused(t, write(t, chainOf(l)), fault.Unsupported, "native")
	l = flat(0.1)
	l.Text.DDB = "ddb.iofilters = \"vmwarevmcrypt\"\n"
	refused(t, write(t, chainOf(l)), fault.Unsupported, "encrypted")
}

// qemu wants the footer in the last sectors exactly; copies often end in padding.
func TestStreamsWithZerosBehindTheirEnd(t *testing.T) {
	for layout := vmdktest.AtEnd; layout <= vmdktest.Padded; layout++ {
		d := write(t, chainOf(vmdktest.Layer{Format: vmdktest.Stream, Sectors: vmdktest.Odd, Data: 0.4, Layout: layout}))
		info, err := os.Stat(d.Path())
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(d.Path(), info.Size()+5*512); err != nil {
			t.Fatal(err)
		}
		readRight(t, d, "")
		if err := receive(t.Context(), d.Path(), -1, d.Want); err != nil {
			t.Errorf("layout %d: %v", layout, err)
		}
	}
}

// Adler-32 is the only check that the formats have: a flipped bit in a grain must show.
func TestFlippedBitInAStreamIsNoticed(t *testing.T) {
	d := write(t, chainOf(vmdktest.Layer{Format: vmdktest.Stream, Sectors: 128, Data: 1}))
	whole, err := os.ReadFile(d.Path())
	if err != nil {
		t.Fatal(err)
	}
	const grain = 128 * 512 // the first record is there
	packed := int64(binary.LittleEndian.Uint32(whole[grain+8:]))
	for at := int64(grain + 12); at < grain+12+packed; at += packed/9 + 1 {
		patch(t, d, d.Name, at, []byte{whole[at] ^ 0x10})
		if err := receive(t.Context(), d.Path(), -1, d.Want); err == nil {
			t.Errorf("byte %d of the stream was changed, and nobody noticed", at)
		}
		if err := d.Want.Compare(t.Context(), open(t, d.Folder, d.Name)); !fault.Is(err, fault.Corrupt) {
			t.Errorf("byte %d of the file was changed: %v", at, err)
		}
		patch(t, d, d.Name, at, whole[at:at+1])
	}
}

func TestLoopsAndDepthOfChains(t *testing.T) {
	d := write(t, chainOf(flat(1), vmdktest.Layer{Format: vmdktest.COWD, Data: 0.1, Run: 9}))
	edit(t, d, "disk-000001.vmdk", `parentFileNameHint="disk.vmdk"`, `parentFileNameHint="disk-000001.vmdk"`)
	edit(t, d, "disk-000001.vmdk", fmt.Sprintf("parentCID=%s", cidOf(t, d, "disk.vmdk")), "parentCID="+cidOf(t, d, "disk-000001.vmdk"))
	refused(t, d, fault.Corrupt, "comes back")

	layers := []vmdktest.Layer{{Sectors: 64, Data: 1}}
	for range 40 { // ESXi allows 32
		layers = append(layers, vmdktest.Layer{Format: vmdktest.COWD, Data: 0.1})
	}
	readRight(t, write(t, chainOf(layers...)), "")
}

// cidOf is the CID that a descriptor says.
func cidOf(t *testing.T, d *vmdktest.Disk, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(d.Folder, name))
	if err != nil {
		t.Fatal(err)
	}
	_, after, ok := strings.Cut(string(text), "\nCID=")
	if !ok || len(after) < 8 {
		t.Fatalf("no CID in %s", name)
	}
	return after[:8]
}
