package ldm

import (
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/guest/budget/budgettest"
	"github.com/decamp/decamp/internal/guest/ldm/ldmtest"
)

// testVolumes returns the volumes of a group: one of each layout.
func testVolumes() []ldmtest.Volume {
	part := func(disk int, start, size int64) ldmtest.Part {
		return ldmtest.Part{Disk: disk, Start: start, Size: size}
	}
	type parts = []ldmtest.Part
	type components = []ldmtest.Component
	return []ldmtest.Volume{
		{Name: "Volume1", Hint: "E:", Components: components{{Kind: 2, Parts: parts{part(0, 0, 2048)}}}},
		{Name: "Volume2", Hint: "F:", Components: components{{Kind: 2, Parts: parts{part(0, 2048, 512)}}, {Kind: 2, Parts: parts{part(1, 0, 512)}}}},
		{Name: "Volume3", Hint: "G:", Components: components{{Kind: 2, Parts: parts{part(0, 4096, 512), part(1, 512, 256)}}}},
		{Name: "Stripe1", Hint: "H:", Components: components{{Kind: 1, Parts: parts{part(0, 8192, 512), part(1, 1024, 512)}}}},
		{Name: "Raid1", Components: components{{Kind: 3, Parts: parts{part(0, 9216, 512), part(1, 2048, 512), part(2, 0, 512)}}}},
		{Name: "Volume4", Hint: "J:", Components: components{{Kind: 2, Parts: parts{part(2, 512, 512)}}}},
	}
}

// diskLayout returns the layout of a disk.
func diskLayout(number int) ldmtest.Disk {
	return ldmtest.Disk{Number: number, Head: 6, Data: 63, Base: 14336}
}

// newImage returns a disk of the group, 8 MiB, with the partition table of a dynamic disk.
func newImage(number int) []byte {
	b := make([]byte, 8<<20)
	line := b[446:]
	line[4], line[8], line[12], line[13] = 0x42, 63, 0, 0x37
	b[510], b[511] = 0x55, 0xaa
	ldmtest.Write(b, diskLayout(number), testVolumes())
	return b
}

func readVolumes(t testing.TB, b []byte) []Volume {
	t.Helper()
	h, ok := Find(budgettest.Reader(t, bytes.NewReader(b)), 6*sectorSize, sectorSize)
	if !ok || h.Group != ldmtest.Group {
		t.Fatalf("header %+v, %v", h, ok)
	}
	all, err := h.Volumes(budgettest.Reader(t, bytes.NewReader(b)), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestVolumes(t *testing.T) {
	const s = sectorSize
	for number, want := range [][]Volume{
		{
			{Name: "Raid1", Layout: RAID5, Size: 1024 * s, Pieces: 3},
			{Name: "Stripe1", Hint: "H:", Layout: Striped, Size: 1024 * s, Pieces: 2},
			{Name: "Volume1", Hint: "E:", Layout: Simple, Size: 2048 * s, Pieces: 1, Whole: Piece{63 * s, 2048 * s}},
			{Name: "Volume2", Hint: "F:", Layout: Mirrored, Size: 512 * s, Pieces: 2, Whole: Piece{2111 * s, 512 * s}},
			{Name: "Volume3", Hint: "G:", Layout: Spanned, Size: 768 * s, Pieces: 2},
		},
		{
			{Name: "Raid1", Layout: RAID5, Size: 1024 * s, Pieces: 3},
			{Name: "Stripe1", Hint: "H:", Layout: Striped, Size: 1024 * s, Pieces: 2},
			{Name: "Volume2", Hint: "F:", Layout: Mirrored, Size: 512 * s, Pieces: 2, Whole: Piece{63 * s, 512 * s}},
			{Name: "Volume3", Hint: "G:", Layout: Spanned, Size: 768 * s, Pieces: 2},
		},
		{
			{Name: "Raid1", Layout: RAID5, Size: 1024 * s, Pieces: 3},
			{Name: "Volume4", Hint: "J:", Layout: Simple, Size: 512 * s, Pieces: 1, Whole: Piece{575 * s, 512 * s}},
		},
		nil,
	} {
		if got := readVolumes(t, newImage(number)); !slices.Equal(got, want) {
			t.Errorf("disk %d:\n%+v, want\n%+v", number, got, want)
		}
	}
}

// ldmtool finds the same volumes on the disks.
func TestVolumesMatchLdmtool(t *testing.T) {
	tool, err := exec.LookPath("ldmtool")
	if err != nil {
		t.Skip("no ldmtool: run scripts/setup.sh test")
	}
	var commands strings.Builder
	for number := range 3 {
		path := filepath.Join(t.TempDir(), "disk.raw")
		if err := os.WriteFile(path, newImage(number), 0o600); err != nil {
			t.Fatal(err)
		}
		commands.WriteString("scan " + path + "\n")
	}
	layouts := map[string]string{"Volume1": "simple", "Volume2": "mirrored", "Volume3": "spanned", "Stripe1": "striped", "Raid1": "RAID5", "Volume4": "simple"}
	for name := range layouts {
		commands.WriteString("show volume " + ldmtest.GroupID + " " + name + "\n")
	}
	cmd := exec.Command(tool)
	cmd.Stdin = strings.NewReader(commands.String() + "quit\n")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("ldmtool: %v: %s", err, out)
	}
	flat := strings.Join(strings.Fields(string(out)), "")
	for name, layout := range layouts {
		if !strings.Contains(flat, `{"name":"`+name+`","guid":"00000000-0000-0000-0000-000000000000","type":"`+layout+`"`) {
			t.Errorf("ldmtool does not report %s as %s:\n%s", name, layout, out)
		}
	}
}

func TestDamage(t *testing.T) {
	sound := newImage(0)
	base := int(diskLayout(0).Base) * sectorSize
	for name, damage := range map[string]func(b []byte){
		"no database":  func(b []byte) { b[base+17*sectorSize] = 'x' },
		"outside":      func(b []byte) { b[6*sectorSize+0x12d] = 1 },
		"blocks":       func(b []byte) { b[base+17*sectorSize+11] = 7 },
		"beyond":       func(b []byte) { b[base+17*sectorSize+12] = 0xff },
		"long numbers": func(b []byte) { b[base+18*sectorSize+9*recordBlockSize+16+8] = 200 },
	} {
		b := bytes.Clone(sound)
		damage(b)
		h, ok := Find(budgettest.Reader(t, bytes.NewReader(b)), 6*sectorSize, sectorSize)
		if !ok {
			t.Fatalf("%s: no header", name)
		}
		if all, err := h.Volumes(budgettest.Reader(t, bytes.NewReader(b)), int64(len(b))); err == nil {
			t.Errorf("%s: got volumes %+v, want an error", name, all)
		}
	}
	sound[6*sectorSize]++
	if h, ok := Find(budgettest.Reader(t, bytes.NewReader(sound)), 6*sectorSize, sectorSize); ok {
		t.Errorf("Find accepts a damaged header: %+v", h)
	}
	if _, ok := Find(budgettest.Reader(t, bytes.NewReader(sound)), int64(len(sound)), sectorSize); ok {
		t.Error("Find accepts a header past the end")
	}
}

const recordBlockSize = 128

func TestFlippedBits(t *testing.T) {
	sound := newImage(0)
	base := int(diskLayout(0).Base) * sectorSize
	r := rand.New(rand.NewPCG(1, 2))
	want := readVolumes(t, sound)
	changed := 0
	const rounds = 1000
	for range rounds {
		b := bytes.Clone(sound[base : base+32*sectorSize])
		b[17*sectorSize+r.IntN(8*sectorSize)] ^= 1 << r.IntN(8)
		records, err := parseDatabase(b)
		if err != nil {
			changed++
			continue
		}
		h, _ := parseHeader(sound[6*sectorSize : 7*sectorSize])
		if !slices.Equal(h.joinVolumes(records), want) {
			changed++
		}
	}
	if changed < rounds/20 {
		t.Errorf("%d of %d flips changed the result, want at least %d", changed, rounds, rounds/20)
	}
}

// FuzzDatabase patches a database and the header before it.
func FuzzDatabase(f *testing.F) {
	sound := newImage(0)
	base := int(diskLayout(0).Base) * sectorSize
	sound = slices.Concat(sound[6*sectorSize:7*sectorSize], sound[base:base+32*sectorSize])
	f.Add(sectorSize+17*sectorSize+4, []byte{0xff, 0xff, 0xff, 0xff})
	f.Add(0x11b, bytes.Repeat([]byte{0xff}, 16))
	f.Add(sectorSize+18*sectorSize+16+8, []byte{255})
	f.Fuzz(func(t *testing.T, at int, patch []byte) {
		if at < 0 || at >= len(sound) {
			return
		}
		b := bytes.Clone(sound)
		copy(b[at:], patch)
		h, ok := parseHeader(b[:sectorSize])
		if !ok {
			return
		}
		records, err := parseDatabase(b[sectorSize:])
		if err != nil {
			return
		}
		for _, v := range h.joinVolumes(records) {
			if v.Size < 0 || v.Whole.Len < 0 || v.Whole.Off < 0 {
				t.Errorf("volume with a negative size or offset: %+v", v)
			}
		}
	})
}
