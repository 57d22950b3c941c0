package differential

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	govmomi "github.com/vmware/govmomi/vmdk"
)

// A writer creates an image of a disk and returns its path. It may also change the disk.
type writer struct {
	name   string
	format string // vmdk or qcow2
	write  func(ctx context.Context, r *rand.Rand, d disk, folder string) (path string, err error)
}

var (
	adapters   = []string{"ide", "buslogic", "lsilogic", "legacyESX"}
	subformats = []string{"monolithicSparse", "monolithicFlat", "twoGbMaxExtentSparse", "twoGbMaxExtentFlat", "streamOptimized"}
)

// writers returns all writers.
func writers() (all []writer) {
	for _, sub := range subformats {
		all = append(all, writer{"qemu-img " + sub, "vmdk", func(ctx context.Context, r *rand.Rand, d disk, folder string) (string, error) {
			return qemuVMDK(ctx, r, sub, d.path, folder, imageName(r, sub))
		}})
	}
	all = append(all,
		writer{"qemu-img streamOptimized -W", "vmdk", func(ctx context.Context, r *rand.Rand, d disk, folder string) (string, error) {
			return qemuImage(ctx, d.path, filepath.Join(folder, "disk.vmdk"), "-W", "-m", "16", "-O", "vmdk", "-o", "subformat=streamOptimized")
		}},
		writer{"qemu-img sparse chain", "vmdk", sparseChain},
		writer{"VMDKstream", "vmdk", func(ctx context.Context, r *rand.Rand, d disk, folder string) (string, error) {
			out := filepath.Join(folder, imageName(r, "streamOptimized"))
			return out, runCommand(ctx, "/usr/bin/python3", "-c", "import sys, VMDKstream; VMDKstream.convert_to_stream(sys.argv[1], sys.argv[2])", d.path, out)
		}},
		writer{"govmomi", "vmdk", govmomiStream},
		writer{"qemu-img", "qcow2", func(ctx context.Context, r *rand.Rand, d disk, folder string) (string, error) {
			out := filepath.Join(folder, []string{"disk.qcow2", "disk.img", "disk.raw", "disk.vmdk"}[r.IntN(4)])
			return qemuImage(ctx, d.path, out, append([]string{"-O", "qcow2"}, qcow2Options(r, true)...)...)
		}},
		writer{"qemu-img chain", "qcow2", qcow2Chain},
	)
	return all
}

// imageName returns a file name. Sometimes its extension is that of another format.
func imageName(r *rand.Rand, subformat string) string {
	if subformat != "monolithicSparse" && subformat != "streamOptimized" {
		return "disk.vmdk" // the names of the other files depend on it
	}
	return []string{"disk.vmdk", "disk.vmdk", "disk.img", "disk.raw", "disk.qcow2", "disk"}[r.IntN(6)]
}

func runCommand(ctx context.Context, name string, args ...string) error {
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// qemuImage converts a raw file to an image with qemu-img.
func qemuImage(ctx context.Context, raw, out string, args ...string) (string, error) {
	return out, runCommand(ctx, "qemu-img", append(append([]string{"convert", "-f", "raw"}, args...), raw, out)...)
}

// qemuVMDK converts a raw file to a VMDK with qemu-img, with random options that the subformat supports.
func qemuVMDK(ctx context.Context, r *rand.Rand, subformat, raw, folder, name string) (string, error) {
	options := "subformat=" + subformat
	if strings.Contains(subformat, "parse") {
		options += []string{"", ",zeroed_grain=on"}[r.IntN(2)]
	}
	switch r.IntN(3) {
	case 0:
		options += ",compat6=on"
	case 1:
		options += ",adapter_type=" + adapters[r.IntN(len(adapters))]
	case 2:
		options += fmt.Sprintf(",hwversion=%d", 4+r.IntN(10))
	}
	args := []string{"-O", "vmdk", "-o", options}
	if r.IntN(2) == 0 && !strings.Contains(subformat, "Flat") {
		args = append(args, "-S", "512") // minimum length of zeros that qemu-img omits
	}
	return qemuImage(ctx, raw, filepath.Join(folder, name), args...)
}

// sparseChain creates a base that can have children, and one to three deltas.
func sparseChain(ctx context.Context, r *rand.Rand, d disk, folder string) (string, error) {
	sub := subformats[r.IntN(4)]
	path, err := qemuVMDK(ctx, r, sub, d.path, folder, "base.vmdk")
	for i := range 1 + r.IntN(3) {
		if err != nil {
			return "", err
		}
		below := path
		path = filepath.Join(folder, fmt.Sprintf("delta%d.vmdk", i))
		options := "subformat=" + []string{"monolithicSparse", "twoGbMaxExtentSparse"}[r.IntN(2)] + []string{"", ",zeroed_grain=on"}[r.IntN(2)]
		err = runCommand(ctx, "qemu-img", "create", "-q", "-f", "vmdk", "-o", options, "-b", filepath.Base(below), "-F", "vmdk", path)
		if err == nil {
			err = writeRandomly(ctx, r, d, "vmdk", path)
		}
	}
	return path, err
}

// writeRandomly writes the same data to random places of an image and of the disk.
func writeRandomly(ctx context.Context, r *rand.Rand, d disk, format, path string) (err error) {
	f, err := os.OpenFile(d.path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	args := []string{"-f", format}
	for range 1 + r.IntN(6) {
		off := sector * r.Int64N(d.size/sector)
		n := min(sector*(1+r.Int64N(300)), d.size-off)
		pattern := byte(r.IntN(256))
		if r.IntN(4) == 0 {
			pattern = 0 // zeros over data of the parent
		}
		args = append(args, "-c", fmt.Sprintf("write -P %d %d %d", pattern, off, n))
		b := make([]byte, n)
		for i := range b {
			b[i] = pattern
		}
		if _, err := f.WriteAt(b, off); err != nil {
			return err
		}
	}
	return runCommand(ctx, "qemu-io", append(args, path)...)
}

// govmomiStream creates an image with govmomi, the Go library of VMware.
func govmomiStream(_ context.Context, _ *rand.Rand, d disk, folder string) (out string, err error) {
	out = filepath.Join(folder, "disk.vmdk")
	in, err := os.Open(d.path)
	if err != nil {
		return "", err
	}
	defer in.Close()
	w, err := govmomi.NewStreamOptimizedWriter(out, d.size)
	if err != nil {
		return "", err
	}
	err = w.Write(in)
	return out, errors.Join(err, w.Close())
}

// qcow2Options returns random options for qemu-img.
func qcow2Options(r *rand.Rand, convert bool) []string {
	bits := 9 + r.IntN(13)
	options := fmt.Sprintf("cluster_size=%d", 1<<bits)
	if r.IntN(4) == 0 {
		return []string{"-o", "compat=0.10," + options}
	}
	options += ",compat=1.1,refcount_bits=" + []string{"1", "8", "16", "64"}[r.IntN(4)]
	if bits >= 14 && r.IntN(3) == 0 {
		options += ",extended_l2=on"
	}
	if r.IntN(3) == 0 {
		options += ",lazy_refcounts=on"
	}
	if !convert {
		return []string{"-o", options}
	}
	switch r.IntN(4) {
	case 0:
		return []string{"-c", "-o", options + ",compression_type=zlib"}
	case 1:
		return []string{"-c", "-o", options + ",compression_type=zstd"}
	case 2:
		options += ",preallocation=" + []string{"metadata", "falloc", "full"}[r.IntN(3)]
	}
	return []string{"-o", options}
}

// qcow2Chain creates a raw or qcow2 base and one to three images above it.
func qcow2Chain(ctx context.Context, r *rand.Rand, d disk, folder string) (string, error) {
	path, format := filepath.Join(folder, "base.raw"), "raw"
	args := []string{"-O", "raw"}
	if r.IntN(2) == 0 {
		path, format = filepath.Join(folder, "base.qcow2"), "qcow2"
		args = append([]string{"-O", "qcow2"}, qcow2Options(r, true)...)
	}
	_, err := qemuImage(ctx, d.path, path, args...)
	for i := range 1 + r.IntN(3) {
		if err != nil {
			return "", err
		}
		below := path
		path = filepath.Join(folder, fmt.Sprintf("above%d.qcow2", i))
		create := append([]string{"create", "-q", "-f", "qcow2"}, qcow2Options(r, false)...)
		err = runCommand(ctx, "qemu-img", append(create, "-b", filepath.Base(below), "-F", format, path)...)
		if err == nil {
			err = writeRandomly(ctx, r, d, "qcow2", path)
		}
		format = "qcow2"
	}
	return path, err
}
