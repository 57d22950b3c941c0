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

// qemu-img 7.2 fills the file of a descriptor up to 512 bytes with NUL bytes.
func TestPaddedDescriptorsAreRead(t *testing.T) {
	for _, pad := range []int{1, 300, 5000, 60000} {
		d := write(t, chainOf(flat(0.5), vmdktest.Layer{Format: vmdktest.COWD, Data: 0.2, Run: 5}))
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
		readRight(t, d, "")
	}
}

// A header that names a descriptor which is gone: without it the parent would be missing, and
// zeros would be read instead.
func TestLostEmbeddedDescriptorIsDamage(t *testing.T) {
	for name, damage := range map[string]struct {
		at    int64
		bytes []byte
	}{
		"first byte":        {512, []byte{0}},
		"all of it":         {512, make([]byte, 20*512)},
		"no sectors":        {36, u64(0)},
		"no place":          {28, u64(0)},
		"beyond the file":   {28, u64(1 << 40)},
		"a byte in a line":  {512 + 30, []byte{0}},
		"no text, but data": {512, bytes.Repeat([]byte{0xff}, 512)},
	} {
		t.Run(name, func(t *testing.T) {
			delta := vmdktest.Layer{Format: vmdktest.Sparse, Data: 0.2, Run: 5}
			d := write(t, chainOf(flat(1), delta))
			patch(t, d, "disk-000001.vmdk", damage.at, damage.bytes)
			refused(t, d, fault.Corrupt, "")
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
		d := write(t, chainOf(vmdktest.Layer{Format: vmdktest.Stream, Sectors: vmdktest.Odd, Data: 0.3}))
		patch(t, d, d.Name, damage.at, damage.bytes)
		f, err := os.Open(d.Path())
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := vmdk.ReadStream(t.Context(), f); !fault.Is(err, fault.Corrupt) || fault.HintOf(err) == "" {
			t.Errorf("%s: %v (%s)", name, err, fault.HintOf(err))
		}
	}
}

// The descriptor may be an older one, of a disk that was extended since.
func TestFlatFileLongerThanItsLineWarns(t *testing.T) {
	d := write(t, chainOf(flat(0.5)))
	path := filepath.Join(d.Folder, "disk-flat.vmdk")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, info.Size()+512); err != nil {
		t.Fatal(err)
	}
	readRight(t, d, fmt.Sprintf("disk-flat.vmdk has %d bytes, disk.vmdk uses the first %d", info.Size()+512, info.Size()))

	// Two lines that use all of one file are right.
	l := flat(0.9)
	l.Sectors, l.Extents = 0, []vmdktest.Extent{{Sectors: 100}}
	l.Sectors = 100
	d = write(t, chainOf(l))
	edit(t, d, "disk.vmdk", `RW 100 VMFS "disk-flat.vmdk"`, "RW 60 VMFS \"disk-flat.vmdk\" 0\nRW 40 VMFS \"disk-flat.vmdk\" 60")
	readRight(t, d, "")
}

func TestNamesThatBeginWithDotSlash(t *testing.T) {
	d := write(t, chainOf(flat(1), vmdktest.Layer{Format: vmdktest.COWD, Data: 0.2, Run: 5}))
	edit(t, d, "disk.vmdk", `"disk-flat.vmdk"`, `"./disk-flat.vmdk"`)
	edit(t, d, "disk-000001.vmdk", `"disk-000001-delta.vmdk"`, `"././disk-000001-delta.vmdk"`)
	edit(t, d, "disk-000001.vmdk", `parentFileNameHint="disk.vmdk"`, `parentFileNameHint="./disk.vmdk"`)
	readRight(t, d, "")

	for _, name := range []string{"./", ".//etc/passwd", "./../x", "./a/./b", "./vmfs/../../x", "./C:x"} {
		_, err := vmdk.ParseDescriptor([]byte("parentCID=ffffffff\nRW 8 VMFS \"" + name + "\"\n"))
		if !fault.Is(err, fault.Corrupt) {
			t.Errorf("%q was let through: %v", name, err)
		}
	}
}

// Some writers leave out the # before the comments between sections.
func TestSectionsWithoutTheirSign(t *testing.T) {
	d := write(t, chainOf(flat(0.5)))
	text, err := os.ReadFile(d.Path())
	if err != nil {
		t.Fatal(err)
	}
	bare := "Disk DescriptorFile\n" + string(text) + "\nThe Disk Data Base\n#DDB\n\nddb.adapterType = \"lsilogic\"\nExtent description\n the disk Data Base \n"
	if err := os.WriteFile(d.Path(), []byte(bare), 0o600); err != nil {
		t.Fatal(err)
	}
	readRight(t, d, "")
	if _, err := vmdk.ParseDescriptor([]byte(strings.ReplaceAll(bare, "The Disk Data Base", "The Disk Data Base RW"))); !fault.Is(err, fault.Corrupt) {
		t.Errorf("an unknown line was dropped: %v", err)
	}
}

func TestStreamOfAnotherFormatIsNamed(t *testing.T) {
	for head, want := range map[string]string{"QFI\xfb\x00\x00\x00\x03": "qcow2", "COWD": "VMDK", "\x1f\x8b\x08\x00": "gzip", "\x7fELF": "7f 45 4c 46"} {
		_, err := vmdk.ReadStream(t.Context(), bytes.NewReader(append([]byte(head), make([]byte, 4096)...)))
		if !fault.Is(err, fault.Unsupported) || !strings.Contains(err.Error(), want) || fault.HintOf(err) == "" {
			t.Errorf("%q: %v (%s)", head, err, fault.HintOf(err))
		}
	}
}
