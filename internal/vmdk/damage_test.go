package vmdk_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/vmdk"
	"github.com/decamp/decamp/internal/vmdk/vmdktest"
)

// qemu-img 7.2 pads descriptor files with NUL bytes to 512 bytes.
func TestPaddedDescriptorsAreRead(t *testing.T) {
	for _, pad := range []int{1, 300, 5000, 60000} {
		d := writeChain(t, chainOf(flatLayer(0.5), vmdktest.Layer{Format: vmdktest.COWD, Data: 0.2, Run: 5}))
		for _, name := range d.Names {
			path := filepath.Join(d.Folder, name)
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(path, info.Size()+int64(pad)); err != nil {
				t.Fatal(err)
			}
		}
		checkReads(t, d, "")
	}
}

// The header refers to a descriptor that is damaged. Without the descriptor the parent is unknown, and
// reads would return zeros instead of its data.
func TestLostEmbeddedDescriptorIsDamage(t *testing.T) {
	for name, damage := range map[string]struct {
		at    int64
		bytes []byte
	}{
		"first byte":        {512, []byte{0}},
		"all of it":         {512, make([]byte, 20*512)},
		"no sectors":        {36, u64(0)},
		"no offset":         {28, u64(0)},
		"beyond the file":   {28, u64(1 << 40)},
		"a byte in a line":  {512 + 30, []byte{0}},
		"no text, but data": {512, bytes.Repeat([]byte{0xff}, 512)},
	} {
		t.Run(name, func(t *testing.T) {
			delta := vmdktest.Layer{Format: vmdktest.Sparse, Data: 0.2, Run: 5}
			d := writeChain(t, chainOf(flatLayer(1), delta))
			patchFile(t, d, "disk-000001.vmdk", damage.at, damage.bytes)
			checkRefused(t, d, fault.Corrupt, "")
		})
	}
}

func TestLostDescriptorOfAStreamIsDamage(t *testing.T) {
	for name, damage := range map[string]struct {
		at    int64
		bytes []byte
	}{
		"first byte": {512, []byte{0}},
		"no sectors": {36, u64(0)},
	} {
		d := writeChain(t, chainOf(vmdktest.Layer{Format: vmdktest.Stream, Sectors: vmdktest.Odd, Data: 0.3}))
		patchFile(t, d, d.Name, damage.at, damage.bytes)
		f, err := os.Open(d.Path())
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := vmdk.ReadStream(t.Context(), f); !fault.Is(err, fault.Corrupt) || fault.HintOf(err) == "" {
			t.Errorf("%s: got %v (%s), want a corrupt error with a hint", name, err, fault.HintOf(err))
		}
	}
}

// The descriptor can be older than the disk: the disk may have been extended since.
func TestFlatFileLongerThanItsLineWarns(t *testing.T) {
	d := writeChain(t, chainOf(flatLayer(0.5)))
	path := filepath.Join(d.Folder, "disk-flat.vmdk")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, info.Size()+512); err != nil {
		t.Fatal(err)
	}
	checkReads(t, d, fmt.Sprintf("disk-flat.vmdk has %d bytes, disk.vmdk uses the first %d", info.Size()+512, info.Size()))

	// Two lines that together use the whole file cause no warning.
	l := flatLayer(0.9)
	l.Sectors, l.Extents = 0, []vmdktest.Extent{{Sectors: 100}}
	l.Sectors = 100
	d = writeChain(t, chainOf(l))
	editDescriptor(t, d, "disk.vmdk", `RW 100 VMFS "disk-flat.vmdk"`, "RW 60 VMFS \"disk-flat.vmdk\" 0\nRW 40 VMFS \"disk-flat.vmdk\" 60")
	checkReads(t, d, "")
}

func TestFileNamesWithDotSlash(t *testing.T) {
	d := writeChain(t, chainOf(flatLayer(1), vmdktest.Layer{Format: vmdktest.COWD, Data: 0.2, Run: 5}))
	editDescriptor(t, d, "disk.vmdk", `"disk-flat.vmdk"`, `"./disk-flat.vmdk"`)
	editDescriptor(t, d, "disk-000001.vmdk", `"disk-000001-delta.vmdk"`, `"././disk-000001-delta.vmdk"`)
	editDescriptor(t, d, "disk-000001.vmdk", `parentFileNameHint="disk.vmdk"`, `parentFileNameHint="./disk.vmdk"`)
	checkReads(t, d, "")

	for _, name := range []string{"./", ".//etc/passwd", "./../x", "./a/./b", "./vmfs/../../x", "./C:x"} {
		_, err := vmdk.ParseDescriptor([]byte("parentCID=ffffffff\nRW 8 VMFS \"" + name + "\"\n"))
		if !fault.Is(err, fault.Corrupt) {
			t.Errorf("name %q: got %v, want a corrupt error", name, err)
		}
	}
}

// Some writers omit the # before the comments between sections.
func TestSectionCommentsWithoutHash(t *testing.T) {
	d := writeChain(t, chainOf(flatLayer(0.5)))
	text, err := os.ReadFile(d.Path())
	if err != nil {
		t.Fatal(err)
	}
	bare := "Disk DescriptorFile\n" + string(text) + "\nThe Disk Data Base\n#DDB\n\nddb.adapterType = \"lsilogic\"\nExtent description\n the disk Data Base \n"
	if err := os.WriteFile(d.Path(), []byte(bare), 0o600); err != nil {
		t.Fatal(err)
	}
	checkReads(t, d, "")
	if _, err := vmdk.ParseDescriptor([]byte(strings.ReplaceAll(bare, "The Disk Data Base", "The Disk Data Base RW"))); !fault.Is(err, fault.Corrupt) {
		t.Errorf("unknown line: got %v, want a corrupt error", err)
	}
}

func TestStreamErrorNamesTheFormat(t *testing.T) {
	for head, want := range map[string]string{"QFI\xfb\x00\x00\x00\x03": "qcow2", "COWD": "VMDK", "\x1f\x8b\x08\x00": "gzip", "\x7fELF": "7f 45 4c 46"} {
		_, err := vmdk.ReadStream(t.Context(), bytes.NewReader(append([]byte(head), make([]byte, 4096)...)))
		if !fault.Is(err, fault.Unsupported) || !strings.Contains(err.Error(), want) || fault.HintOf(err) == "" {
			t.Errorf("%q: got %v (%s), want an error about %q", head, err, fault.HintOf(err), want)
		}
	}
}
