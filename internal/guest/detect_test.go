package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/rawfile"
	tinyguest "github.com/decamp/decamp/test/guest"
)

// findTool returns the path of a tool. If the tool is missing, it skips the test.
func findTool(t *testing.T, tool string) string {
	t.Helper()
	for _, dir := range []string{"", "/usr/sbin", "/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, tool)); err == nil {
			return path
		}
	}
	t.Skipf("no %s: run scripts/setup.sh test", tool)
	return ""
}

func runTool(t *testing.T, stdin, tool string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(findTool(t, tool), args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %q: %v", tool, args, err)
	}
	return out
}

// blankDisk creates an empty disk of mib MiB and returns its path.
func blankDisk(t *testing.T, mib int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "disk.raw")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, mib<<20); err != nil {
		t.Fatal(err)
	}
	return path
}

func detectFile(t *testing.T, path string) Report {
	t.Helper()
	src, err := rawfile.OpenSource(path, rawfile.SourceOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	r, err := Detect(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestDetectsTheTestGuests(t *testing.T) {
	want := map[tinyguest.Name]struct {
		table Table
		boot  Boot
		fs    []FileSystem
	}{
		tinyguest.BIOS:     {MBR, Boot{MBRCode: true}, []FileSystem{Ext4}},
		tinyguest.NoVirtio: {MBR, Boot{MBRCode: true}, []FileSystem{Ext4}},
		tinyguest.UEFI:     {GPT, Boot{ESP: true, EFIFallback: true}, []FileSystem{FAT, Ext4}},
	}
	for name, w := range want {
		image := tinyguest.Image(t, name)
		r := detectFile(t, image)
		if r.OS != (OS{ID: tinyguest.OSID, Name: tinyguest.OSName, Version: "1"}) {
			t.Errorf("%s: OS %+v", name, r.OS)
		}
		if r.Table != w.table || r.Boot != w.boot || len(r.Warnings) != 0 {
			t.Errorf("%s: table %s, boot %+v, warnings %v", name, r.Table, r.Boot, r.Warnings)
		}
		var kinds []FileSystem
		for _, p := range r.Partitions {
			kinds = append(kinds, p.FileSystem)
		}
		if !slices.Equal(kinds, w.fs) || r.Partitions[len(w.fs)-1].FSUUID != tinyguest.RootUUID {
			t.Errorf("%s: partitions %+v", name, r.Partitions)
		}
		compareWithSfdisk(t, image, r)
	}
}

// sfdiskTable is the output of sfdisk -J.
type sfdiskTable struct {
	PartitionTable struct {
		Label      string
		Partitions []struct {
			Node        string
			Start, Size int64
			Type, UUID  string
			Name        string
			Bootable    bool
		}
	}
}

// compareWithSfdisk compares a report with the table that sfdisk reads from the same disk.
func compareWithSfdisk(t *testing.T, path string, r Report) {
	t.Helper()
	var want sfdiskTable
	if err := json.Unmarshal(runTool(t, "", "sfdisk", "-J", path), &want); err != nil {
		t.Fatal(err)
	}
	if label := map[Table]string{MBR: "dos", GPT: "gpt"}[r.Table]; label != want.PartitionTable.Label {
		t.Errorf("%s: table %q, sfdisk reads %q", path, label, want.PartitionTable.Label)
	}
	if len(r.Partitions) != len(want.PartitionTable.Partitions) {
		t.Fatalf("%s: %d partitions, sfdisk reads %d", path, len(r.Partitions), len(want.PartitionTable.Partitions))
	}
	for i, w := range want.PartitionTable.Partitions {
		got := r.Partitions[i]
		kind := got.Type
		if r.Table == MBR {
			kind = strings.TrimPrefix(kind, "0") // sfdisk prints no leading zero
		}
		if got.Off != w.Start*512 || got.Len != w.Size*512 || got.Name != w.Name || !strings.EqualFold(kind, w.Type) {
			t.Errorf("%s: partition %+v, sfdisk reads %+v", path, got, w)
		}
		if w.Node != fmt.Sprintf("%s%d", path, got.Number) || r.Table == GPT && !strings.EqualFold(got.UUID, w.UUID) {
			t.Errorf("%s: partition %+v, sfdisk reads %+v", path, got, w)
		}
		if r.Table == MBR && got.Active != w.Bootable {
			t.Errorf("%s: partition %d active: %v, sfdisk reads %v", path, got.Number, got.Active, w.Bootable)
		}
	}
}

func TestTablesOfSfdisk(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	scripts := map[string]string{
		"primaries": "label: dos\nsize=4M, type=7, bootable\nsize=4M, type=83\nsize=4M, type=82\n",
		"logical":   "label: dos\n1: size=4M, type=83\n2: size=20M, type=5\n5: size=4M, type=83\n6: size=4M, type=8e\n7: size=4M, type=7\n",
		"lba":       "label: dos\n1: size=4M, type=83\n3: size=12M, type=f\n5: size=4M, type=83\n",
		"gpt":       "label: gpt\nsize=4M, type=uefi, name=\"EFI system\"\nsize=8M, type=linux, name=\"größe 北\"\n",
		"gpt gaps":  "label: gpt\n3: size=4M, type=linux\n7: size=4M, type=swap\n",
		"gpt small": "label: gpt\ntable-length: 4\nsize=4M, type=linux\n",
	}
	for name, script := range scripts {
		t.Run(name, func(t *testing.T) {
			path := blankDisk(t, 40)
			runTool(t, script, "sfdisk", "-q", path)
			r := detectFile(t, path)
			compareWithSfdisk(t, path, r)
			if len(r.Warnings) != 0 {
				t.Errorf("warnings %v", r.Warnings)
			}
		})
	}
}

func TestFileSystemsMatchBlkid(t *testing.T) {
	made := map[string][]string{
		"ext2":  {"mke2fs", "-q", "-t", "ext2"},
		"ext3":  {"mke2fs", "-q", "-t", "ext3"},
		"ext4":  {"mke2fs", "-q", "-t", "ext4"},
		"fat":   {"mkfs.fat"},
		"fat32": {"mkfs.fat", "-F", "32"},
		"swap":  {"mkswap"},
	}
	for name, command := range made {
		t.Run(name, func(t *testing.T) {
			path := blankDisk(t, 40)
			runTool(t, "", command[0], append(command[1:], path)...)
			want := strings.TrimSpace(string(runTool(t, "", "blkid", "-p", "-s", "TYPE", "-o", "value", path)))
			r := detectFile(t, path)
			if string(r.WholeDisk) != want || r.Table != None {
				t.Errorf("table %s, file system %q, blkid reads %q", r.Table, r.WholeDisk, want)
			}
		})
	}
}

// These signatures are from the documentation, because not every machine has tools for these file systems.
func TestFileSystemSignatures(t *testing.T) {
	for text, want := range map[string]struct {
		fs  FileSystem
		off int
	}{
		"XFSB":              {XFS, 0},
		"LUKS\xba\xbe":      {LUKS, 0},
		"\xebX\x90-FVE-FS-": {BitLocker, 0},
		"\xebR\x90NTFS    ": {NTFS, 0},
		"_BHRfS_M":          {Btrfs, 0x10040},
		"LVM2 001":          {LVM2, 512 + 24},
	} {
		head := make([]byte, headLen)
		copy(head[want.off:], text)
		if got, _ := identifyFS(head); got != want.fs {
			t.Errorf("%q at %d: %q, want %q", text, want.off, got, want.fs)
		}
		if got, _ := identifyFS(head[:want.off+len(text)-1]); got != Unknown {
			t.Errorf("%q truncated: got %q, want %q", text, got, Unknown)
		}
	}
}

func TestEncryptedAndDynamicDisksAreReported(t *testing.T) {
	path := blankDisk(t, 16)
	runTool(t, "label: dos\nsize=4M, type=83\nsize=4M, type=42\n", "sfdisk", "-q", path)
	patchFile(t, path, 1<<20, "LUKS\xba\xbe")
	codes := warningCodes(detectFile(t, path))
	if !slices.Equal(codes, []string{"encrypted", "dynamic-disk"}) {
		t.Errorf("warnings %v", codes)
	}
}

func TestDamagedTables(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	const gpt = "label: gpt\nsize=4M, type=linux\nsize=4M, type=linux\n"
	const size = 16 << 20
	tests := []struct {
		name   string
		damage func(t *testing.T, path string)
		parts  int
		want   []string
	}{
		{"primary header", func(t *testing.T, path string) { patchFile(t, path, 512+40, "x") }, 2, []string{"gpt-primary"}},
		{"primary entries", func(t *testing.T, path string) { patchFile(t, path, 1024+32, "x") }, 2, []string{"gpt-primary"}},
		{"backup header", func(t *testing.T, path string) { patchFile(t, path, size-512, "x") }, 2, []string{"gpt-backup"}},
		{"both", func(t *testing.T, path string) { patchFile(t, path, 512, "x"); patchFile(t, path, size-512, "x") }, 0, []string{"gpt-primary", "gpt-backup"}},
		{"disk grown", func(t *testing.T, path string) {
			if err := os.Truncate(path, size+4<<20); err != nil {
				t.Fatal(err)
			}
		}, 2, []string{"gpt-backup"}},
		{"disk cut", func(t *testing.T, path string) {
			if err := os.Truncate(path, 6<<20); err != nil {
				t.Fatal(err)
			}
		}, 2, []string{"gpt-backup", "partition-outside"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := blankDisk(t, size>>20)
			runTool(t, gpt, "sfdisk", "-q", path)
			tt.damage(t, path)
			r := detectFile(t, path)
			if codes := warningCodes(r); len(r.Partitions) != tt.parts || !slices.Equal(codes, tt.want) {
				t.Errorf("%d partitions, warnings %v; want %d and %v", len(r.Partitions), codes, tt.parts, tt.want)
			}
		})
	}
}

func TestCyclicLogicalPartitions(t *testing.T) {
	path := blankDisk(t, 40)
	runTool(t, "label: dos\n1: size=30M, type=5\n5: size=4M, type=83\n6: size=4M, type=83\n", "sfdisk", "-q", path)
	second := detectFile(t, path).Partitions[2].Off - 1<<20 // its boot record, one MiB before the partition
	back := []byte{4: 0x05, 12: 1, 15: 0}                   // entry that refers to the first record
	patchFile(t, path, second+446+16, string(back))
	if codes := warningCodes(detectFile(t, path)); !slices.Equal(codes, []string{"logical-partitions"}) {
		t.Errorf("warnings %v", codes)
	}
}

func TestEmptyDisk(t *testing.T) {
	r := detectFile(t, blankDisk(t, 1))
	if r.Table != None || r.WholeDisk != Unknown || len(r.Warnings) != 0 || r.Boot != (Boot{}) {
		t.Errorf("report %+v", r)
	}
}

func patchFile(t *testing.T, path string, off int64, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte(text), off); err != nil {
		t.Fatal(err)
	}
}

func warningCodes(r Report) []string {
	var codes []string
	for _, w := range r.Warnings {
		codes = append(codes, w.Code)
	}
	return codes
}

// brokenDisk is a disk whose reads fail from an offset on.
type brokenDisk struct {
	disk.Source
	from int64
}

var errBroken = errors.New("the datastore is gone")

func (b brokenDisk) ReadAt(ctx context.Context, p []byte, off int64) error {
	if off+int64(len(p)) > b.from {
		return errBroken
	}
	return b.Source.ReadAt(ctx, p, off)
}

// If a disk cannot be read, Detect returns an error. A report without contents would look like an empty disk.
func TestReadErrorsAreErrors(t *testing.T) {
	path := blankDisk(t, 16)
	runTool(t, "label: gpt\nsize=4M, type=linux\n", "sfdisk", "-q", path)
	src, err := rawfile.OpenSource(path, rawfile.SourceOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	for _, from := range []int64{0, 512, 1 << 20, 15 << 20} {
		if _, err := Detect(t.Context(), brokenDisk{src, from}); !errors.Is(err, errBroken) {
			t.Errorf("reads fail from byte %d on: got %v, want %v", from, err, errBroken)
		}
	}
}

func TestParseOSRelease(t *testing.T) {
	tests := map[string]OS{
		"ID=debian\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nVERSION_ID=\"12\"\n": {"debian", "Debian GNU/Linux 12 (bookworm)", "12"},
		"# ID=no\nNAME='It''s'\nID=x\r\n":                                                {"x", "It''s", ""},
		"NAME=\"a \\\"b\\\" \\$c\"":                                                      {"linux", `a "b" $c`, ""},
		"ID=\"\nnonsense\n=":                                                             {"\"", "", ""},
		"":                                                                               {},
	}
	for text, want := range tests {
		if got := parseOSRelease(text); got != want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
}
