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

// What is here makes guests that have all that a conversion looks at, and would not boot.

const (
	release  = "6.1.0-31-amd64"
	rootUUID = "8d1a40a3-9a52-4b93-a2cc-5a4dd15c4d2b"
	initrd   = "boot/initrd.img-" + release
)

// A tree is files by path; one that ends in a slash is a folder.
type tree map[string]string

// linux is what a small Debian has, its root in fstab by spec.
func linux(spec string) tree {
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

// lay writes the tree into a folder.
func (f tree) lay(t testing.TB) string {
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

// run runs a tool, which scripts/setup.sh has installed.
func run(t testing.TB, name string, args ...string) string {
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

// sized makes an empty file of so many MiB.
func sized(t testing.TB, mib int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "part")
	if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, mib<<20)); err != nil {
		t.Fatal(err)
	}
	return path
}

// xfsOf makes an XFS, of the least size that mkfs makes.
func xfsOf(t testing.TB, f tree) string {
	t.Helper()
	path, dir := sized(t, 320), f.lay(t)
	var proto strings.Builder
	proto.WriteString("/none\n0 0\nd--755 0 0\n")
	protofile(t, &proto, dir)
	proto.WriteString("$\n")
	text := filepath.Join(t.TempDir(), "proto")
	if err := os.WriteFile(text, []byte(proto.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, "mkfs.xfs", "-q", "-m", "uuid="+rootUUID, "-p", text, path)
	return path
}

// protofile lists a folder for mkfs.xfs.
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

func btrfsOf(t testing.TB, f tree) string {
	t.Helper()
	path := sized(t, 160)
	run(t, "mkfs.btrfs", "-q", "-U", rootUUID, "--rootdir", f.lay(t), path)
	return path
}

func extOf(t testing.TB, f tree) string {
	t.Helper()
	path := sized(t, 40)
	run(t, "mke2fs", "-q", "-F", "-t", "ext4", "-U", rootUUID, "-E", "root_owner=0:0", "-d", f.lay(t), path)
	return path
}

const partAt = 1 << 20 // where the partition is

// diskOf makes a disk with one partition, which holds a file.
func diskOf(t testing.TB, part string) string {
	t.Helper()
	info, err := os.Stat(part)
	if err != nil {
		t.Fatal(err)
	}
	mbr := make([]byte, 512)
	mbr[510], mbr[511], mbr[450] = 0x55, 0xaa, 0x83
	binary.LittleEndian.PutUint32(mbr[454:], partAt/512)
	binary.LittleEndian.PutUint32(mbr[458:], uint32(info.Size()/512))
	path := sized(t, (partAt+info.Size())>>20)
	copyInto(t, path, bytes.NewReader(mbr), 0)
	f, err := os.Open(part)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	copyInto(t, path, f, partAt)
	return path
}

// copyInto writes what r has at an offset of a file; zeros stay holes.
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
	lvmStart  = 1 << 20 // of the first extent
	lvmExtent = 4 << 20
)

// lvmOf makes a physical volume of the group "vg-0" with one volume, "root", in two pieces
// whose order is not that on the disk.
func lvmOf(t testing.TB, part string) string {
	t.Helper()
	info, err := os.Stat(part)
	if err != nil {
		t.Fatal(err)
	}
	extents := info.Size() / lvmExtent
	path := sized(t, (lvmStart+(extents+2)*lvmExtent)>>20)
	const id = "AAAAAA-AAAA-AAAA-AAAA-AAAA-AAAA-AAAAAA"
	first := extents / 2
	text := fmt.Sprintf(`vg-0 { id = "BBBBBB-BBBB-BBBB-BBBB-BBBB-BBBB-BBBBBB" seqno = 1 status = ["RESIZEABLE", "READ", "WRITE"] extent_size = %d
physical_volumes { pv0 { id = "%s" status = ["ALLOCATABLE"] pe_start = %d pe_count = %d } }
logical_volumes { root { id = "CCCCCC-CCCC-CCCC-CCCC-CCCC-CCCC-CCCCCC" status = ["READ", "WRITE", "VISIBLE"] segment_count = 2
segment1 { start_extent = 0 extent_count = %d type = "striped" stripe_count = 1 stripes = ["pv0", %d] }
segment2 { start_extent = %d extent_count = %d type = "striped" stripe_count = 1 stripes = ["pv0", 0] } } } }
`, lvmExtent/512, id, lvmStart/512, extents+2, first, extents-first+1, first, extents-first) + "\x00"
	copyInto(t, path, bytes.NewReader(lvmHead(id, text, info.Size())), 0)
	f, err := os.Open(part)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	copyInto(t, path, io.NewSectionReader(f, 0, first*lvmExtent), lvmStart+(extents-first+1)*lvmExtent)
	copyInto(t, path, io.NewSectionReader(f, first*lvmExtent, info.Size()), lvmStart)
	return path
}

// outOfLVM takes the volume's content out of its physical volume again.
func outOfLVM(t testing.TB, pv string, size int64) string {
	t.Helper()
	path, extents := sized(t, size>>20), size/lvmExtent
	first := extents / 2
	f, err := os.Open(pv)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	copyInto(t, path, io.NewSectionReader(f, lvmStart+(extents-first+1)*lvmExtent, first*lvmExtent), 0)
	copyInto(t, path, io.NewSectionReader(f, lvmStart, (extents-first)*lvmExtent), first*lvmExtent)
	return path
}

// lvmHead is the label and the metadata area of a physical volume.
func lvmHead(id, text string, size int64) []byte {
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
	le.PutUint64(label[72:], lvmStart) // the data; a pair of zeros ends each list
	le.PutUint64(label[104:], area)
	le.PutUint64(label[112:], lvmStart-area)
	le.PutUint32(label[16:], sum(label[20:]))
	m := head[area:][:header]
	copy(m[4:], " LVM2 x[5A%r0N*>")
	le.PutUint32(m[20:], 1)
	le.PutUint64(m[24:], area)
	le.PutUint64(m[32:], lvmStart-area)
	le.PutUint64(m[40:], header)
	le.PutUint64(m[48:], uint64(len(text)))
	le.PutUint32(m[56:], sum([]byte(text)))
	le.PutUint32(m, sum(m[4:]))
	copy(head[area+header:], text)
	return head
}

// layered opens images as disks to be converted.
func layered(t testing.TB, images ...string) []convert.Disk {
	t.Helper()
	return layeredWithin(t, 256<<20, images...)
}

// layeredWithin has layers of limit bytes.
func layeredWithin(t testing.TB, limit int64, images ...string) []convert.Disk {
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

// put writes what was changed onto the images.
func put(t testing.TB, disks []convert.Disk, images ...string) {
	t.Helper()
	for i, image := range images {
		f, err := os.OpenFile(image, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(disks[i].Overlay.ApplyTo(context.Background(), onto{f}), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// cut takes the partition out of a disk.
func cut(t testing.TB, image string) string {
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
	path := sized(t, (info.Size()-partAt)>>20)
	copyInto(t, path, io.NewSectionReader(f, partAt, info.Size()), 0)
	return path
}

// held is a file's content as decamp reads it out of a file system.
func held(t testing.TB, kind guest.FileSystem, part, path string) string {
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

// ourAppliance runs the program that the tests built, on the kernel that setup.sh unpacked.
func ourAppliance(t testing.TB) *appliance.Appliance {
	t.Helper()
	return appliance.New(appliance.Options{Kernel: kernelImage(t), Program: decamp})
}

func kernelImage(t testing.TB) string {
	t.Helper()
	images, err := filepath.Glob("../../build/kernel/boot/vmlinuz-*")
	if err != nil || len(images) != 1 {
		t.Fatal("no kernel in build/kernel: run scripts/setup.sh test")
	}
	return images[0]
}

// changed lists the paths that a conversion changed.
func changed(r convert.Result) (out []string) {
	for _, c := range r.Changes {
		out = append(out, c.Path)
	}
	slices.Sort(out)
	return out
}

// below moves a tree into a folder.
func (f tree) below(dir string) tree {
	out := tree{}
	for path, text := range f {
		out[dir+path] = text
	}
	return out
}
