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

// nvram describes a file with EFI variables for a VM, and the firmware of this host that it is for.
// libvirt copies the
// file to the VM's variable store at the first start, so the file itself does not change.
type nvram struct {
	code string // path of the firmware's code
	file string // path of the file with variables; empty if there is none
	data []byte // content of the file
	why  error  // cause of a missing file; nil if there is nothing to carry over
}

// nvramSuffix follows the VM's name in the file's name. The convention is libvirt's.
const nvramSuffix = "_VARS.fd"

// planNVRAM returns the EFI variables for a VM whose files are in folder. It writes nothing. Variable
// stores of
// different firmware builds are incompatible, so the domain names the firmware, too. If no firmware is
// found, libvirt chooses one and the variables are not carried over.
func (t *Target) planNVRAM(def targets.Definition, folder string) nvram {
	if def.VM.Firmware != inventory.EFI || def.EFI.Empty() {
		return nvram{}
	}
	n, err := t.makeNVRAM(def)
	if err != nil {
		return nvram{why: err}
	}
	n.file = filepath.Join(folder, t.folderName(def.VM)+nvramSuffix)
	return n
}

// makeNVRAM adds def's variables to the default variables of this host's OVMF. n.file is left empty.
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

// write writes the file to the folder that currently contains the VM's files. It overwrites the file of
// an earlier
// attempt.
func (n nvram) write(folder string) error {
	if n.file == "" {
		return nil
	}
	if err := makeFolder(folder); err != nil {
		return err
	}
	return writeFile(filepath.Join(folder, filepath.Base(n.file)), n.data)
}

// toRecord returns the file's entry for vm.json, or nil if there is no file.
func (n nvram) toRecord() *RecordedFile {
	if n.file == "" {
		return nil
	}
	return &RecordedFile{File: filepath.Base(n.file), Size: int64(len(n.data)), Hash: manifest.HashOf(n.data).String()}
}

// CheckNVRAM compares the file with EFI variables with its hash in vm.json. It returns nil if the VM
// has no such file,
// fault.NotFound if the file is missing, and fault.Corrupt if it differs.
func CheckNVRAM(folder string, r *Record) error {
	if r.NVRAM == nil {
		return nil
	}
	path := filepath.Join(folder, r.NVRAM.File)
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fault.New(fault.NotFound, "the file of the firmware's variables is missing: %w", err).WithHint("restore the file from a backup, or remove the <loader> and <nvram> elements from domain.xml and set firmware='efi' in <os>")
	case err != nil:
		return ioFault(err)
	case int64(len(data)) != r.NVRAM.Size || manifest.HashOf(data).String() != r.NVRAM.Hash:
		return fault.New(fault.Corrupt, "%s has changed since it was published: it contains other firmware variables", path).WithHint("restore the file from a backup; a start of the VM does not change this file")
	}
	return nil
}

// useNVRAM makes the domain use n's firmware with n's file as the template of its variables.
func (b *domainBuilder) useNVRAM(n nvram) {
	o := b.domain.OS
	o.Firmware, o.FirmwareInfo = "", nil
	o.Loader = &libvirtxml.DomainLoader{Path: n.code, Readonly: "yes", Type: "pflash"}
	o.NVRam = &libvirtxml.DomainNVRam{Template: n.file}
	if b.vm.SecureBoot {
		o.Loader.Secure = "yes"
		b.domain.Features.SMM = &libvirtxml.DomainFeatureSMM{State: "on"}
	}
}
