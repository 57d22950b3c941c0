package appliance

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/convert"
	"github.com/decamp/decamp/internal/convert/appliance/inside"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/guest/budget"
	"github.com/decamp/decamp/internal/guest/initramfs"
)

// maxModule limits a module after decompression, in bytes.
const maxModule = 32 << 20

// buildInitramfs returns the archive for the VM's kernel, with this program and modules, as an
// anonymous file in memory. It is not compressed, because decompression is slow in an emulated VM.
func (o Options) buildInitramfs(k *kernel, volumes []convert.Volume) (*os.File, error) {
	path, err := o.programPath()
	if err != nil {
		return nil, err
	}
	if err := isStatic(path); err != nil {
		return nil, err
	}
	program, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var w initramfs.Writer
	w.Program("init", program)
	w.Dir(inside.Modules)
	modules, err := k.modulesToLoad(volumes)
	if err != nil {
		return nil, err
	}
	// The number in the name keeps the order of loading.
	for i, m := range modules {
		data, err := k.readModule(m)
		if err != nil {
			return nil, err
		}
		w.File(fmt.Sprintf("%s/%03d-%s.ko", inside.Modules, i, initramfs.Module(m)), data)
	}
	return memoryFile("initramfs", w.Bytes())
}

// readModule returns a module uncompressed.
func (k *kernel) readModule(file string) ([]byte, error) {
	data, err := os.ReadFile(filepath.Join(k.dir, file))
	if err == nil {
		b, cancel := budget.New(context.Background(), budget.Conversion())
		defer cancel()
		data, err = initramfs.Unpack(b, data, maxModule)
	}
	if err != nil {
		return nil, fmt.Errorf("module %s of kernel %s: %w", file, k.release, err)
	}
	return data, nil
}

// isStatic returns an error unless the program is statically linked and for x86_64.
func isStatic(path string) error {
	f, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		// A dynamically linked program has an interpreter, ld.so.
		if p.Type == elf.PT_INTERP {
			return fault.New(fault.Unsupported, "%s is linked to libraries that the appliance does not have", path).WithHint("build decamp without cgo: CGO_ENABLED=0 go build ./cmd/decamp")
		}
	}
	if f.Machine != elf.EM_X86_64 {
		return fault.New(fault.Unsupported, "%s is for %s, but appliances require x86_64", path, f.Machine).
			WithHint("use the compat profile, which changes nothing in the guest")
	}
	return nil
}

// memoryFile returns an anonymous file in memory with data.
func memoryFile(name string, data []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memory for the appliance: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err := f.Write(data); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
