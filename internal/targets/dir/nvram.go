package dir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"libvirt.org/go/libvirtxml"

	"github.com/decamp/decamp/internal/efi"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/targets"
)

// nvram is this machine's firmware, with what goes with a VM in its variables. libvirt makes the VM's own variables of
// the file at its first start: so the file stays what was published.
type nvram struct {
	code string // the firmware's
	file string // with the variables, as the domain names it
	data []byte // its bytes
	why  error  // there are none for this reason; nil: nothing is to be carried
}

// nvramSuffix is the end of the file's name; the VM's is before it.
const nvramSuffix = "_VARS.fd"

// nvram makes variables for a VM whose files are in folder. Layouts of firmwares differ: so the domain names the one
// that the variables are for. Where this machine has none libvirt is asked to find one, without them.
func (t *Target) nvram(def targets.Definition, folder string) nvram {
	if def.VM.Firmware != inventory.EFI || def.EFI.Empty() {
		return nvram{}
	}
	n, err := t.makeNVRAM(def)
	if err != nil {
		return nvram{why: err}
	}
	n.file = filepath.Join(folder, t.name(def.VM)+nvramSuffix)
	return n
}

func (t *Target) makeNVRAM(def targets.Definition) (n nvram, err error) {
	firmware, err := efi.FindFirmware(t.opts.firmwareRoot, def.VM.SecureBoot)
	if err != nil {
		return n, err
	}
	data, err := os.ReadFile(firmware.Vars)
	if err != nil {
		return n, fmt.Errorf("variables of the firmware: %w", err)
	}
	store, err := efi.OpenStore(data)
	if err != nil {
		return n, err
	}
	if err := store.Add(*def.EFI); err != nil {
		return n, err
	}
	return nvram{code: firmware.Code, data: store.Bytes()}, nil
}

// write makes the file in the folder where the VM's files are now, in the place of one that an earlier
// attempt left.
func (n nvram) write(folder string) error {
	if n.file == "" {
		return nil
	}
	if err := makeFolder(folder); err != nil {
		return err
	}
	return writeFile(filepath.Join(folder, filepath.Base(n.file)), n.data)
}

// recorded is what vm.json says of the file; nil where there is none.
func (n nvram) recorded() *RecordedFile {
	if n.file == "" {
		return nil
	}
	return &RecordedFile{File: filepath.Base(n.file), Size: int64(len(n.data)), Hash: manifest.HashOf(n.data).String()}
}

// CheckNVRAM compares the file with the variables of a published VM with what was published. One
// that has none is right.
func CheckNVRAM(folder string, r *Record) error {
	if r.NVRAM == nil {
		return nil
	}
	path := filepath.Join(folder, r.NVRAM.File)
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fault.New(fault.NotFound, "the variables of the firmware are gone: %w", err).WithHint("take the file from a backup, or the <loader> and <nvram> out of domain.xml, with firmware='efi' in <os>")
	case err != nil:
		return ioFault(err)
	case int64(len(data)) != r.NVRAM.Size || manifest.HashOf(data).String() != r.NVRAM.Hash:
		return fault.New(fault.Corrupt, "%s is not what was published: the firmware's variables in it have changed", path).WithHint("take the file from a backup; a VM that was started has variables of its own, which are no part of this")
	}
	return nil
}

// carried has the domain use the firmware that the variables are for.
func (b *domainBuilder) carried(n nvram) {
	o := b.domain.OS
	o.Firmware, o.FirmwareInfo = "", nil
	o.Loader = &libvirtxml.DomainLoader{Path: n.code, Readonly: "yes", Type: "pflash"}
	o.NVRam = &libvirtxml.DomainNVRam{Template: n.file}
	if b.vm.SecureBoot {
		o.Loader.Secure = "yes"
		b.domain.Features.SMM = &libvirtxml.DomainFeatureSMM{State: "on"}
	}
}
