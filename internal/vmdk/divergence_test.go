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

// The existing readers (qemu, dissect, libvmdk, xen-orchestra) disagree in some cases. These tests
// cover the cases and their correct result. docs/formats/vmdk.md has the table.

func flatLayer(data float64) vmdktest.Layer {
	return vmdktest.Layer{Sectors: vmdktest.Odd, Data: data}
}

func chainOf(layers ...vmdktest.Layer) vmdktest.Chain {
	return vmdktest.Chain{Seed: 99, Layers: layers}
}

// checkReads opens d and compares its content. It requires a warning that contains want, or no warning if
// want is empty.
func checkReads(t *testing.T, d *vmdktest.Disk, want string) {
	t.Helper()
	src := openDisk(t, d.Folder, d.Name)
	if err := d.Want.Compare(t.Context(), src); err != nil {
		t.Error(err)
	}
	got := strings.Join(src.Warnings(), "; ")
	if want == "" && got != "" || !strings.Contains(got, want) {
		t.Errorf("warnings %q, want %q", got, want)
	}
}

// checkRefused opens d and requires an error of this kind that contains message and has a hint.
func checkRefused(t *testing.T, d *vmdktest.Disk, kind fault.Kind, message string) {
	t.Helper()
	src, err := vmdk.Open(t.Context(), vmdk.Folder(d.Folder), d.Name, vmdk.Options{})
	if err == nil {
		src.Close()
		t.Fatalf("Open succeeded, want an error of kind %v", kind)
	}
	if !fault.Is(err, kind) || fault.HintOf(err) == "" || !strings.Contains(err.Error(), message) {
		t.Errorf("got %v error %q with hint %q, want %v and %q", fault.KindOf(err), err, fault.HintOf(err), kind, message)
	}
}

// patchFile writes b into a file of d.
func patchFile(t *testing.T, d *vmdktest.Disk, file string, at int64, b []byte) {
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

// editDescriptor replaces text in a descriptor of d.
func editDescriptor(t *testing.T, d *vmdktest.Disk, file, old, with string) {
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

// dissect reads an unmapped grain from the parent.
func TestUnmappedGrainsHideTheParent(t *testing.T) {
	d := writeChain(t, chainOf(flatLayer(1), vmdktest.Layer{Format: vmdktest.SESparse, Unmapped: 0.5}))
	checkReads(t, d, "")
}

// dissect reads the tables without replaying the journal.
func TestDirtySESparseIsRefused(t *testing.T) {
	d := writeChain(t, chainOf(flatLayer(1), vmdktest.Layer{Format: vmdktest.SESparse, Data: 0.2}))
	patchFile(t, d, "disk-000001-sesparse.vmdk", 512+24, u64(1))
	checkRefused(t, d, fault.Conflict, "journal")
}

// qemu requires a descriptor for each of these extents.
func TestBareExtentsAreReadWithAWarning(t *testing.T) {
	for _, l := range []vmdktest.Layer{
		{Format: vmdktest.SESparse, Sectors: vmdktest.Odd, Data: 0.3, Zero: 0.1},
		{Format: vmdktest.COWD, Sectors: vmdktest.Odd, Data: 0.3, Zero: 0.1, Run: 9},
		{Format: vmdktest.Sparse, Sectors: vmdktest.Odd, Data: 0.3, Hosted: vmdktest.Hosted{Separate: true}},
	} {
		d := writeChain(t, chainOf(l))
		d.Name = map[vmdktest.Format]string{
			vmdktest.SESparse: "disk-sesparse.vmdk", vmdktest.COWD: "disk-delta.vmdk", vmdktest.Sparse: "disk-s001.vmdk",
		}[l.Format]
		checkReads(t, d, "has no descriptor")
	}
}

// qemu skips ZERO and NOACCESS extents, which shifts all later data. It refuses an offset of a
// VMFS extent, and it aborts on RDONLY. dissect ignores the offset of a FLAT extent.
func TestUnusualExtentLinesAreRead(t *testing.T) {
	layerOf := func(x ...vmdktest.Extent) vmdktest.Layer {
		l := flatLayer(0.9)
		l.Extents, l.Sectors = x, 0
		for _, e := range x {
			l.Sectors += e.Sectors
		}
		return l
	}
	for name, l := range map[string]vmdktest.Layer{
		"ZERO first":    layerOf(vmdktest.Extent{Sectors: 100, Type: "ZERO"}, vmdktest.Extent{Sectors: 5000}),
		"ZERO last":     layerOf(vmdktest.Extent{Sectors: 5000}, vmdktest.Extent{Sectors: 100, Type: "ZERO"}),
		"only ZERO":     layerOf(vmdktest.Extent{Sectors: 100, Type: "ZERO"}),
		"NOACCESS":      layerOf(vmdktest.Extent{Sectors: 5000}, vmdktest.Extent{Sectors: 100, Access: "NOACCESS"}, vmdktest.Extent{Sectors: 5000}),
		"RDONLY":        layerOf(vmdktest.Extent{Sectors: 5000, Access: "RDONLY"}),
		"VMFS offset":   layerOf(vmdktest.Extent{Sectors: 5000, Type: "VMFS", Offset: 3}),
		"FLAT offset":   layerOf(vmdktest.Extent{Sectors: 5000, Type: "FLAT", Offset: 77}),
		"many offsets":  layerOf(vmdktest.Extent{Sectors: 999, Offset: 1}, vmdktest.Extent{Sectors: 1, Offset: 9}, vmdktest.Extent{Sectors: 1000, Offset: 5}),
		"one of sector": layerOf(vmdktest.Extent{Sectors: 1}),
	} {
		t.Run(name, func(t *testing.T) { checkReads(t, writeChain(t, chainOf(l)), "") })
	}
}

// createType is informational. qemu refuses vmfsThin.
func TestEveryCreateTypeOfFlatDisks(t *testing.T) {
	for _, name := range []string{
		"vmfs", "vmfsThin", "vmfsPreallocated", "vmfsEagerZeroedThick", "monolithicFlat", "twoGbMaxExtentFlat",
		"2GbMaxExtentFlat", "custom", "VMFS", "somethingNew",
	} {
		l := flatLayer(0.7)
		l.Text.CreateType = name
		checkReads(t, writeChain(t, chainOf(l)), "")
	}
}

// dissect returns an empty disk and no error.
func TestRawDeviceMappingsAreRefused(t *testing.T) {
	for _, line := range []string{`VMFSRDM "disk-rdm.vmdk"`, `VMFSRDM "disk-rdmp.vmdk"`, `VMFSRAW "/vmfs/devices/disks/naa.6"`, `VMFS "vsan://52d1"`, `VMFS "vvol://1"`} {
		d := writeChain(t, chainOf(flatLayer(0.1)))
		editDescriptor(t, d, "disk.vmdk", `VMFS "disk-flat.vmdk"`, line)
		checkRefused(t, d, fault.Unsupported, "")
	}
}

// dissect fails at the end of every sparse disk whose last grain is partial.
func TestDiskSizesWithPartialGrain(t *testing.T) {
	for _, sectors := range []int64{1, 7, 127, 129, 65537, 32769} {
		for _, l := range []vmdktest.Layer{
			{Format: vmdktest.Sparse}, {Format: vmdktest.Sparse, Hosted: vmdktest.Hosted{ShortEnd: true}},
			{Format: vmdktest.Stream}, {Format: vmdktest.Stream, Hosted: vmdktest.Hosted{ShortEnd: true}},
			{Format: vmdktest.COWD}, {Format: vmdktest.SESparse},
		} {
			l.Sectors, l.Data = sectors, 1
			d := writeChain(t, chainOf(l))
			if err := d.Want.Compare(t.Context(), openDisk(t, d.Folder, d.Name)); err != nil {
				t.Errorf("format %d, %d sectors: %v", l.Format, sectors, err)
			}
		}
	}
}

// qemu opens the absolute path. dissect opens any file with the same base name.
func TestParentsByDatastorePath(t *testing.T) {
	delta := vmdktest.Layer{Format: vmdktest.COWD, Data: 0.2, Run: 5}
	delta.Text.Parent = "/vmfs/volumes/5f0c-11/web01/disk.vmdk"
	checkReads(t, writeChain(t, chainOf(flatLayer(1), delta)), "")

	d := writeChain(t, chainOf(flatLayer(1), delta))
	other := t.TempDir()
	for _, name := range []string{"disk.vmdk", "disk-flat.vmdk"} {
		if err := os.Rename(filepath.Join(d.Folder, name), filepath.Join(other, name)); err != nil {
			t.Fatal(err)
		}
	}
	checkRefused(t, d, fault.NotFound, "disk.vmdk")
	src, err := vmdk.Open(t.Context(), vmdk.Folder(d.Folder, other), d.Name, vmdk.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	if err := d.Want.Compare(t.Context(), src); err != nil {
		t.Error(err)
	}
}

// qemu reports "invalid argument" at the first read from the parent. Other readers report nothing.
func TestChangedParentIsDetectedAtOpen(t *testing.T) {
	d := writeChain(t, chainOf(flatLayer(1), vmdktest.Layer{Format: vmdktest.COWD, Data: 0.2, Run: 5, Text: vmdktest.Text{ParentCID: "12345678"}}))
	checkRefused(t, d, fault.Conflict, "12345678")
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

// qemu finds keys anywhere in the text, and searches for the parent in the first 10 KiB only.
func TestKeysAreReadFromTheirOwnLinesOnly(t *testing.T) {
	l := flatLayer(0.5)
	l.Text.More = "# parentCID=00000001 parentFileNameHint=\"other.vmdk\" isNativeSnapshot=\"yes\"\nddb.comment = \"CID=00000002\"\n"
	checkReads(t, writeChain(t, chainOf(l)), "")

	far := vmdktest.Layer{Format: vmdktest.COWD, Data: 0.2, Run: 5}
	d := writeChain(t, chainOf(flatLayer(1), far))
	padding := strings.Repeat("# "+strings.Repeat("x", 97)+"\n", 9000)
	editDescriptor(t, d, "disk-000001.vmdk", "# Disk DescriptorFile\n", "# Disk DescriptorFile\n"+padding)
	checkReads(t, d, "")
}

// An unknown version, flag or compression is refused, because it can change the meaning of the data.
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
		{"COWD version 3", []vmdktest.Layer{flatLayer(1), cowd}, "disk-000001-delta.vmdk", 4, u32(3), fault.Unsupported},
		{"seSparse 3.0", []vmdktest.Layer{flatLayer(1), se}, "disk-000001-sesparse.vmdk", 8, u64(3 << 32), fault.Unsupported},
		{"seSparse grain of 16 sectors", []vmdktest.Layer{flatLayer(1), se}, "disk-000001-sesparse.vmdk", 24, u64(16), fault.Unsupported},
		{"seSparse flag", []vmdktest.Layer{flatLayer(1), se}, "disk-000001-sesparse.vmdk", 40, u64(1), fault.Unsupported},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := writeChain(t, chainOf(c.layers...))
			patchFile(t, d, c.file, c.at, c.bytes)
			checkRefused(t, d, c.kind, "")
		})
	}
}

func TestNativeSnapshotsAndEncryptedDisksAreRefused(t *testing.T) {
	l := flatLayer(0.1)
	l.Text.Native = true
	checkRefused(t, writeChain(t, chainOf(l)), fault.Unsupported, "native")
	l = flatLayer(0.1)
	l.Text.DDB = "ddb.iofilters = \"vmwarevmcrypt\"\n"
	checkRefused(t, writeChain(t, chainOf(l)), fault.Unsupported, "encrypted")
}

// Copies often end in padding. qemu requires the footer to be in the last sectors.
func TestStreamsWithZerosAfterTheirEnd(t *testing.T) {
	for layout := vmdktest.AtEnd; layout <= vmdktest.Padded; layout++ {
		d := writeChain(t, chainOf(vmdktest.Layer{Format: vmdktest.Stream, Sectors: vmdktest.Odd, Data: 0.4, Layout: layout}))
		info, err := os.Stat(d.Path())
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(d.Path(), info.Size()+5*512); err != nil {
			t.Fatal(err)
		}
		checkReads(t, d, "")
		if err := receivePrefix(t.Context(), d.Path(), -1, d.Want); err != nil {
			t.Errorf("layout %d: %v", layout, err)
		}
	}
}

// Adler-32 is the only checksum in the formats. It detects a flipped bit in a grain.
func TestFlippedBitInAStreamIsDetected(t *testing.T) {
	d := writeChain(t, chainOf(vmdktest.Layer{Format: vmdktest.Stream, Sectors: 128, Data: 1}))
	whole, err := os.ReadFile(d.Path())
	if err != nil {
		t.Fatal(err)
	}
	const grain = 128 * 512 // offset of the first record
	packed := int64(binary.LittleEndian.Uint32(whole[grain+8:]))
	for at := int64(grain + 12); at < grain+12+packed; at += packed/9 + 1 {
		patchFile(t, d, d.Name, at, []byte{whole[at] ^ 0x10})
		if err := receivePrefix(t.Context(), d.Path(), -1, d.Want); err == nil {
			t.Errorf("changed byte %d of the stream: got no error", at)
		}
		if err := d.Want.Compare(t.Context(), openDisk(t, d.Folder, d.Name)); !fault.Is(err, fault.Corrupt) {
			t.Errorf("changed byte %d of the file: got %v, want a corrupt error", at, err)
		}
		patchFile(t, d, d.Name, at, whole[at:at+1])
	}
}

func TestLoopsAndDepthOfChains(t *testing.T) {
	d := writeChain(t, chainOf(flatLayer(1), vmdktest.Layer{Format: vmdktest.COWD, Data: 0.1, Run: 9}))
	editDescriptor(t, d, "disk-000001.vmdk", `parentFileNameHint="disk.vmdk"`, `parentFileNameHint="disk-000001.vmdk"`)
	editDescriptor(t, d, "disk-000001.vmdk", fmt.Sprintf("parentCID=%s", cidOf(t, d, "disk.vmdk")), "parentCID="+cidOf(t, d, "disk-000001.vmdk"))
	checkRefused(t, d, fault.Corrupt, "comes back")

	layers := []vmdktest.Layer{{Sectors: 64, Data: 1}}
	for range 40 { // ESXi allows 32
		layers = append(layers, vmdktest.Layer{Format: vmdktest.COWD, Data: 0.1})
	}
	checkReads(t, writeChain(t, chainOf(layers...)), "")
}

// cidOf returns the CID in a descriptor.
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
