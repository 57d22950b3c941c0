package convert

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/convert"
	"github.com/decamp/decamp/internal/convert/appliance"
	"github.com/decamp/decamp/internal/convert/overlay"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/rawfile"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/guest/budget/budgettest"
	"github.com/decamp/decamp/internal/guest/initramfs"
)

// This file creates guests with the files that a conversion reads. They cannot boot.

const (
	release  = "6.1.0-31-amd64"
	rootUUID = "8d1a40a3-9a52-4b93-a2cc-5a4dd15c4d2b"
	initrd   = "boot/initrd.img-" + release
)

// A tree maps paths to file contents. A path that ends in a slash is a folder.
type tree map[string]string

// newDebian returns the files of a small Debian. Its fstab has the root device spec.
func newDebian(spec string) tree {
	var w initramfs.Writer
	w.File("conf/modules", []byte("vmw_pvscsi\n"))
	w.File("conf/initramfs.conf", []byte("MODULES=dep\n"))
	w.File("scripts/init-top/ORDER", nil)
	modules := "lib/modules/" + release + "/"
	out := tree{
		"etc/fstab":                   spec + " / auto defaults 0 1\n",
		"etc/os-release":              "ID=debian\nNAME=Debian\n",
		"etc/initramfs-tools/modules": "# none\n",
		"etc/systemd/network/":        "",
		"boot/vmlinuz-" + release:     "kernel",
		"usr/lib/systemd/systemd":     "\x7fELF",
		initrd:                        string(w.Bytes()),
		modules + "modules.alias":     "alias virtio:d00000002v* virtio_blk\n",
	}
	var dep strings.Builder
	for _, name := range []string{"virtio_pci", "virtio_blk", "virtio_scsi", "virtio_net", "sd_mod"} {
		out[modules+"kernel/"+name+".ko"] = "\x7fELF" + name
		fmt.Fprintf(&dep, "kernel/%s.ko:\n", name)
	}
	out[modules+"modules.dep"] = dep.String()
	return out
}

// writeTo writes the tree to a new folder and returns its path.
func (f tree) writeTo(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range f {
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if strings.HasSuffix(name, "/") {
			err = errors.Join(err, os.MkdirAll(path, 0o755))
		} else {
			err = errors.Join(err, os.WriteFile(path, []byte(text), 0o644))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// runTool runs a tool that scripts/setup.sh installs, and returns its output.
func runTool(t testing.TB, name string, args ...string) string {
	t.Helper()
	for _, dir := range []string{"", "/usr/sbin", "/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput()
			if err != nil {
				t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
			}
			return string(out)
		}
	}
	t.Fatalf("no %s: run scripts/setup.sh test", name)
	return ""
}

// emptyFile creates a sparse file of that many MiB.
func emptyFile(t testing.TB, mib int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "part")
	if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, mib<<20)); err != nil {
		t.Fatal(err)
	}
	return path
}

// newXFS creates an XFS of the minimum size.
func newXFS(t testing.TB, f tree) string {
	t.Helper()
	path, dir := emptyFile(t, 320), f.writeTo(t)
	var proto strings.Builder
	proto.WriteString("/none\n0 0\nd--755 0 0\n")
	protofile(t, &proto, dir)
	proto.WriteString("$\n")
	text := filepath.Join(t.TempDir(), "proto")
	if err := os.WriteFile(text, []byte(proto.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	runTool(t, "mkfs.xfs", "-q", "-m", "uuid="+rootUUID, "-p", text, path)
	return path
}

// protofile writes the content of a folder to out in the format of mkfs.xfs -p.
func protofile(t testing.TB, out *strings.Builder, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if !e.IsDir() {
			fmt.Fprintf(out, "%s ---644 0 0 %s\n", e.Name(), path)
			continue
		}
		fmt.Fprintf(out, "%s d--755 0 0\n", e.Name())
		protofile(t, out, path)
		out.WriteString("$\n")
	}
}

func newBtrfs(t testing.TB, f tree) string {
	t.Helper()
	path := emptyFile(t, 160)
	runTool(t, "mkfs.btrfs", "-q", "-U", rootUUID, "--rootdir", f.writeTo(t), path)
	return path
}

func newExt4(t testing.TB, f tree) string {
	t.Helper()
	path := emptyFile(t, 40)
	runTool(t, "mke2fs", "-q", "-F", "-t", "ext4", "-U", rootUUID, "-E", "root_owner=0:0", "-d", f.writeTo(t), path)
	return path
}

const partitionOffset = 1 << 20 // offset of the partition in bytes

// newDisk creates a disk with one partition, which contains the file part.
func newDisk(t testing.TB, part string) string {
	t.Helper()
	info, err := os.Stat(part)
	if err != nil {
		t.Fatal(err)
	}
	mbr := make([]byte, 512)
	mbr[510], mbr[511], mbr[450] = 0x55, 0xaa, 0x83
	binary.LittleEndian.PutUint32(mbr[454:], partitionOffset/512)
	binary.LittleEndian.PutUint32(mbr[458:], uint32(info.Size()/512))
	path := emptyFile(t, (partitionOffset+info.Size())>>20)
	copyInto(t, path, bytes.NewReader(mbr), 0)
	f, err := os.Open(part)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	copyInto(t, path, f, partitionOffset)
	return path
}

// copyInto copies r to a file at an offset. Blocks of zeros stay holes.
func copyInto(t testing.TB, path string, r io.Reader, off int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	block, none := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, err := io.ReadFull(r, block)
		if !bytes.Equal(block[:n], none[:n]) {
			if _, err := f.WriteAt(block[:n], off); err != nil {
				t.Fatal(err)
			}
		}
		if off += int64(n); err != nil {
			return
		}
	}
}

const (
	lvmDataOffset = 1 << 20 // offset of the first extent
	lvmExtent     = 4 << 20
)

// newLVM creates a physical volume of the group "vg-0". The volume "root" contains part and has two segments, which are
// in reverse order on the disk.
func newLVM(t testing.TB, part string) string {
	t.Helper()
	info, err := os.Stat(part)
	if err != nil {
		t.Fatal(err)
	}
	extents := info.Size() / lvmExtent
	path := emptyFile(t, (lvmDataOffset+(extents+2)*lvmExtent)>>20)
	const id = "AAAAAA-AAAA-AAAA-AAAA-AAAA-AAAA-AAAAAA"
	first := extents / 2
	text := fmt.Sprintf(`vg-0 { id = "BBBBBB-BBBB-BBBB-BBBB-BBBB-BBBB-BBBBBB" seqno = 1 status = ["RESIZEABLE", "READ", "WRITE"] extent_size = %d
physical_volumes { pv0 { id = "%s" status = ["ALLOCATABLE"] pe_start = %d pe_count = %d } }
logical_volumes { root { id = "CCCCCC-CCCC-CCCC-CCCC-CCCC-CCCC-CCCCCC" status = ["READ", "WRITE", "VISIBLE"] segment_count = 2
segment1 { start_extent = 0 extent_count = %d type = "striped" stripe_count = 1 stripes = ["pv0", %d] }
segment2 { start_extent = %d extent_count = %d type = "striped" stripe_count = 1 stripes = ["pv0", 0] } } } }
`, lvmExtent/512, id, lvmDataOffset/512, extents+2, first, extents-first+1, first, extents-first) + "\x00"
	copyInto(t, path, bytes.NewReader(lvmHeader(id, text, info.Size())), 0)
	f, err := os.Open(part)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	copyInto(t, path, io.NewSectionReader(f, 0, first*lvmExtent), lvmDataOffset+(extents-first+1)*lvmExtent)
	copyInto(t, path, io.NewSectionReader(f, first*lvmExtent, info.Size()), lvmDataOffset)
	return path
}

// extractLVM copies the content of the volume from its physical volume to a file.
func extractLVM(t testing.TB, pv string, size int64) string {
	t.Helper()
	path, extents := emptyFile(t, size>>20), size/lvmExtent
	first := extents / 2
	f, err := os.Open(pv)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	copyInto(t, path, io.NewSectionReader(f, lvmDataOffset+(extents-first+1)*lvmExtent, first*lvmExtent), 0)
	copyInto(t, path, io.NewSectionReader(f, lvmDataOffset, (extents-first)*lvmExtent), first*lvmExtent)
	return path
}

// lvmHeader returns the label and the metadata area of a physical volume.
func lvmHeader(id, text string, size int64) []byte {
	const area, header = 4096, 512
	sum := func(p []byte) uint32 { return ^crc32.Update(^uint32(0xf597a6cf), crc32.IEEETable, p) }
	le := binary.LittleEndian
	head := make([]byte, area+header+len(text))
	label := head[512:1024]
	copy(label, "LABELONE")
	le.PutUint64(label[8:], 1)
	le.PutUint32(label[20:], 32)
	copy(label[24:], "LVM2 001")
	copy(label[32:], strings.ReplaceAll(id, "-", ""))
	le.PutUint64(label[64:], uint64(size))
	le.PutUint64(label[72:], lvmDataOffset) // data area; a pair of zeros ends each list
	le.PutUint64(label[104:], area)
	le.PutUint64(label[112:], lvmDataOffset-area)
	le.PutUint32(label[16:], sum(label[20:]))
	m := head[area:][:header]
	copy(m[4:], " LVM2 x[5A%r0N*>")
	le.PutUint32(m[20:], 1)
	le.PutUint64(m[24:], area)
	le.PutUint64(m[32:], lvmDataOffset-area)
	le.PutUint64(m[40:], header)
	le.PutUint64(m[48:], uint64(len(text)))
	le.PutUint32(m[56:], sum([]byte(text)))
	le.PutUint32(m, sum(m[4:]))
	copy(head[area+header:], text)
	return head
}

// openDisks opens images as disks for a conversion.
func openDisks(t testing.TB, images ...string) []convert.Disk {
	t.Helper()
	return openDisksWithLimit(t, 256<<20, images...)
}

// openDisksWithLimit is like openDisks, with overlays of at most limit bytes.
func openDisksWithLimit(t testing.TB, limit int64, images ...string) []convert.Disk {
	t.Helper()
	var srcs []disk.Source
	var disks []convert.Disk
	for _, image := range images {
		src, err := rawfile.OpenSource(image, rawfile.SourceOptions{})
		if err != nil {
			t.Fatal(err)
		}
		o := overlay.New(src, limit)
		t.Cleanup(func() { o.Close() })
		srcs, disks = append(srcs, o), append(disks, convert.Disk{Overlay: o})
	}
	reports, err := guest.DetectAll(t.Context(), srcs)
	if err != nil {
		t.Fatal(err)
	}
	for i := range disks {
		disks[i].Report = reports[i]
	}
	return disks
}

// applyChanges writes the changes in the overlays to the images.
func applyChanges(t testing.TB, disks []convert.Disk, images ...string) {
	t.Helper()
	for i, image := range images {
		f, err := os.OpenFile(image, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(disks[i].Overlay.ApplyTo(context.Background(), fileWriter{f}), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// extractPartition copies the partition of a disk to a file.
func extractPartition(t testing.TB, image string) string {
	t.Helper()
	f, err := os.Open(image)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	path := emptyFile(t, (info.Size()-partitionOffset)>>20)
	copyInto(t, path, io.NewSectionReader(f, partitionOffset, info.Size()), 0)
	return path
}

// readGuestFile reads a file from a file system with package guest.
func readGuestFile(t testing.TB, kind guest.FileSystem, part, path string) string {
	t.Helper()
	f, err := os.Open(part)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	files, err := guest.OpenTree(kind, budgettest.Reader(t, f))
	if err != nil {
		t.Fatal(err)
	}
	data, err := files.ReadFile(path, 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// newAppliance returns an appliance with the decamp of the tests and the kernel that setup.sh unpacked.
func newAppliance(t testing.TB) *appliance.Appliance {
	t.Helper()
	return appliance.New(appliance.Options{Kernel: kernelImage(t), Program: decampBinary})
}

func kernelImage(t testing.TB) string {
	t.Helper()
	images, err := filepath.Glob("../../build/kernel/boot/vmlinuz-*")
	if err != nil || len(images) != 1 {
		t.Fatal("no kernel in build/kernel: run scripts/setup.sh test")
	}
	return images[0]
}

// changedPaths returns the sorted paths that a conversion changed.
func changedPaths(r convert.Result) (out []string) {
	for _, c := range r.Changes {
		out = append(out, c.Path)
	}
	slices.Sort(out)
	return out
}

// inFolder returns the tree with dir before each path.
func (f tree) inFolder(dir string) tree {
	out := tree{}
	for path, text := range f {
		out[dir+path] = text
	}
	return out
}
