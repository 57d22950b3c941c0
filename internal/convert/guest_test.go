package convert

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/convert/overlay"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/guest/budget/budgettest"
	"github.com/decamp/decamp/internal/guest/initramfs"
)

// findTool returns the path of a program. It also searches the sbin folders, which are often not in PATH.
func findTool(t testing.TB, name string) string {
	t.Helper()
	for _, dir := range []string{"", "/usr/sbin", "/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path
		}
	}
	t.Fatalf("no %s: run scripts/setup.sh test", name)
	return ""
}

// pipe runs a program with data as its input and returns the output.
func pipe(t testing.TB, data []byte, name string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(findTool(t, name), args...)
	cmd.Stdin = bytes.NewReader(data)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return out
}

const (
	rootUUID = "8d1a40a3-9a52-4b93-a2cc-5a4dd15c4d2b"
	bootUUID = "0b6a2d36-61a9-4b86-8f04-3e1b7c0d5e11"
	swapUUID = "11112222-3333-4444-5555-666677778888"
	release  = "6.1.0-31-amd64"
)

// files holds the content of the files of a guest, by path. Content that begins with "-> " is the target of a link.
type files map[string]string

// and returns the files of both. A file of more replaces one of f.
func (f files) and(more files) files {
	out := files{}
	for _, each := range []files{f, more} {
		for path, text := range each {
			out[path] = text
		}
	}
	return out
}

// writeFolder writes the files to a new folder.
func (f files) writeFolder(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range f {
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if target, ok := strings.CutPrefix(text, "-> "); ok {
			err = errors.Join(err, os.Symlink(target, path))
		} else {
			err = errors.Join(err, os.WriteFile(path, []byte(text), 0o644))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// part is a partition of the disk of a guest.
type part struct {
	files files
	uuid  string
	size  int64  // size in MiB
	args  string // arguments of mke2fs, or "swap" for a swap partition
}

// memory is a disk in memory.
type memory struct{ data []byte }

func (m memory) Size() int64       { return int64(len(m.data)) }
func (m memory) Hints() disk.Hints { return disk.Hints{} }
func (m memory) Close() error      { return nil }

func (m memory) ReadAt(_ context.Context, p []byte, off int64) error {
	_, err := io.ReadFull(io.NewSectionReader(bytes.NewReader(m.data), off, int64(len(p))), p)
	return err
}

func (m memory) Extents(_ context.Context, r disk.Range) ([]disk.Extent, error) {
	return []disk.Extent{{Range: r}}, nil
}

func (m memory) WriteAt(_ context.Context, p []byte, off int64) error {
	copy(m.data[off:], p)
	return nil
}

// makeDisk returns a disk with partitions, each aligned to 1 MiB.
func makeDisk(t testing.TB, parts ...part) memory {
	t.Helper()
	mbr := make([]byte, 1<<20)
	mbr[510], mbr[511] = 0x55, 0xaa
	out := mbr
	for i, p := range parts {
		entry := mbr[446+16*i:]
		entry[4] = 0x83
		binary.LittleEndian.PutUint32(entry[8:], uint32(len(out)/512))
		binary.LittleEndian.PutUint32(entry[12:], uint32(p.size<<20/512))
		out = append(out, p.image(t)...)
		mbr = out[:1<<20]
	}
	return memory{out}
}

func (p part) image(t testing.TB) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "part")
	if p.args == "swap" {
		data := make([]byte, p.size<<20)
		copy(data[4086:], "SWAPSPACE2")
		for i, c := range strings.Split(strings.ReplaceAll(swapUUID, "-", ""), "") {
			var nibble byte
			fmt.Sscanf(c, "%x", &nibble)
			data[0x40c+i/2] |= nibble << (4 * (1 - i%2))
		}
		return data
	}
	args := append(strings.Fields(p.args), "-q", "-F", "-U", p.uuid, "-E", "root_owner=0:0", "-d", p.files.writeFolder(t), path, fmt.Sprintf("%dM", p.size))
	if out, err := exec.Command(findTool(t, "mke2fs"), args...).CombinedOutput(); err != nil {
		t.Fatalf("mke2fs: %v: %s", err, out)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// convertOn runs LinuxAppend on overlays of the disks. If it succeeds, convertOn applies them to the disks.
func convertOn(t testing.TB, o Options, disks ...memory) (Result, error) {
	t.Helper()
	o.Now = func() time.Time { return time.Unix(1_900_000_000, 0) }
	var in []Disk
	for _, d := range disks {
		layer := overlay.New(d, 256<<20)
		report, err := guest.Detect(t.Context(), layer)
		if err != nil {
			t.Fatal(err)
		}
		in = append(in, Disk{layer, report})
	}
	result, err := LinuxAppend(t.Context(), in, o)
	for i, d := range in {
		if err != nil && len(d.Overlay.Changed()) > 0 {
			t.Errorf("LinuxAppend failed (%v), but changed disk %d", err, i)
		}
		if putErr := d.Overlay.ApplyTo(t.Context(), disks[i]); putErr != nil {
			t.Fatal(putErr)
		}
	}
	return result, err
}

// partAt writes a partition of a disk to a file and returns its path. It requires that e2fsck finds no errors.
func partAt(t testing.TB, d memory, offMiB, sizeMiB int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "part")
	if err := os.WriteFile(path, d.data[offMiB<<20:(offMiB+sizeMiB)<<20], 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(findTool(t, "e2fsck"), "-fn", path).CombinedOutput(); err != nil {
		t.Fatalf("e2fsck -fn: %v: %s", err, out)
	}
	return path
}

// catFile returns the content of a file in an ext image, as debugfs reads it.
func catFile(t testing.TB, image, path string) string {
	t.Helper()
	out, err := exec.Command(findTool(t, "debugfs"), "-R", fmt.Sprintf("cat %q", path), image).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// unpackInitramfs returns the files of all archives of an initramfs.
func unpackInitramfs(t testing.TB, data string) files {
	t.Helper()
	out := files{}
	for _, p := range splitAppended([]byte(data)) {
		_, err := initramfs.Walk(budgettest.New(t), bytes.NewReader(p), func(name string, body io.Reader) error {
			text, err := io.ReadAll(body)
			out[name] = string(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// newInitramfs returns an uncompressed initramfs with files.
func newInitramfs(f files) []byte {
	var w initramfs.Writer
	for name, text := range f {
		w.File(name, []byte(text))
	}
	return w.Bytes()
}

// moduleContent returns the content of the named module.
func moduleContent(name string) string { return "\x7fELF" + name }

// kernelFiles returns the modules of a kernel of a distribution, with the given suffix, and their indexes.
func kernelFiles(t testing.TB, suffix string, pack ...string) files {
	t.Helper()
	dep := map[string]string{
		"kernel/drivers/virtio/virtio": "", "kernel/drivers/virtio/virtio_ring": "",
		"kernel/drivers/virtio/virtio_pci":  "kernel/drivers/virtio/virtio_ring kernel/drivers/virtio/virtio",
		"kernel/drivers/block/virtio_blk":   "kernel/drivers/virtio/virtio_ring kernel/drivers/virtio/virtio",
		"kernel/drivers/net/virtio_net":     "kernel/drivers/net/net-failover kernel/drivers/virtio/virtio_ring kernel/drivers/virtio/virtio",
		"kernel/drivers/net/net-failover":   "",
		"kernel/drivers/scsi/virtio_scsi":   "kernel/drivers/scsi/scsi_mod kernel/drivers/virtio/virtio_ring kernel/drivers/virtio/virtio",
		"kernel/drivers/scsi/scsi_mod":      "",
		"kernel/drivers/scsi/sd_mod":        "kernel/drivers/scsi/scsi_mod",
		"kernel/drivers/scsi/vmw_pvscsi":    "kernel/drivers/scsi/scsi_mod",
		"kernel/drivers/net/other-hardware": "",
	}
	out, dir := files{}, "lib/modules/"+release+"/"
	var index strings.Builder
	for file, needs := range dep {
		text := []byte(moduleContent(file))
		if pack != nil {
			text = pipe(t, text, pack[0], pack[1:]...)
		}
		out[dir+file+suffix] = string(text)
		fmt.Fprintf(&index, "%s%s:", file, suffix)
		for _, n := range strings.Fields(needs) {
			fmt.Fprintf(&index, " %s%s", n, suffix)
		}
		index.WriteString("\n")
	}
	out[dir+"modules.dep"] = index.String()
	out[dir+"modules.alias"] = "alias virtio:d00000002v* virtio_blk\n"
	out[dir+"modules.alias.bin"] = "the guest's own"
	out[dir+"modules.builtin"] = "kernel/fs/ext4/ext4.ko\n"
	return out
}
