package dir

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/decamp/decamp/internal/convert"
	"github.com/decamp/decamp/internal/efi"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
)

// recordFile is the name of the file that marks a folder as a published VM.
const recordFile = "vm.json"

// recordVersion is the version of vm.json that this package reads and writes.
const recordVersion = 1

// Record is the content of vm.json. File names are without folders, so that the VM's folder can be
// moved.
type Record struct {
	Version  int                 `json:"version"`            // recordVersion
	Decamp   string              `json:"decamp"`             // version of the program that wrote it
	Name     string              `json:"name,omitempty"`     // new name of the VM; empty if it is unchanged
	Source   *inventory.VM       `json:"source"`             // inventory of the source VM
	Images   []RecordedImage     `json:"images"`             // one element for each disk
	Guest    []guest.Report      `json:"guest,omitempty"`    // reports of the detect step, in the order of Images
	Hardware targets.Hardware    `json:"hardware,omitempty"` // profile of controllers and cards
	Warnings []inventory.Warning `json:"warnings,omitempty"` // warnings of all steps

	// Checks are the comparisons with the source, one for each image.
	Checks []targets.Check `json:"checks,omitempty"`

	// NVRAM is the file with the EFI variables for the first start; nil if it does not exist.
	NVRAM *RecordedFile `json:"nvram,omitempty"`

	// EFI contains the EFI variables of the source VM that NVRAM includes.
	EFI *efi.State `json:"efi,omitempty"`

	// Converted lists the changes inside the guest after the copy was verified; nil if absent.
	Converted *convert.Result `json:"converted,omitempty"`

	// Delivered identifies the VM on its platform; nil if the images stay in this folder.
	Delivered *targets.Receipt `json:"delivered,omitempty"`
}

// RecordedFile is a small file of a Record.
type RecordedFile struct {
	File string `json:"file"` // name without folder
	Size int64  `json:"size"` // size in bytes
	Hash string `json:"hash"` // BLAKE3-256 in hex
}

// RecordedImage is the image of one disk.
type RecordedImage struct {
	Key      int32          `json:"key"`              // device key of the source disk
	File     string         `json:"file"`             // name without folder
	Manifest string         `json:"manifest"`         // name without folder
	Format   targets.Format `json:"format"`           // raw or qcow2
	Size     int64          `json:"size"`             // capacity of the disk in bytes
	Root     string         `json:"root"`             // root hash of the manifest in hex
	Copied   string         `json:"copied,omitempty"` // root hash of the source disk, if the image was changed after the copy

	// Modified is the modification time of the file when it was published. It is zero in the records of
	// older versions.
	Modified time.Time `json:"modified,omitzero"`
}

// newRecord returns the record of def. name is the VM's new name. warnings follow those of def.
func newRecord(def targets.Definition, name string, warnings []inventory.Warning) Record {
	r := Record{
		Version: recordVersion, Decamp: def.Decamp, Source: def.VM, Guest: def.Guest, Hardware: def.Hardware, EFI: def.EFI, Converted: def.Converted, Delivered: def.Delivered, Checks: def.Checks,
		Warnings: append(append([]inventory.Warning{}, def.Warnings...), warnings...),
	}
	if name != def.VM.Name {
		r.Name = name
	}
	for _, img := range def.Images {
		r.Images = append(r.Images, RecordedImage{
			Key: img.Key, File: filepath.Base(img.Final), Manifest: filepath.Base(img.Manifest),
			Format: img.Format, Size: img.Size, Root: img.Root, Copied: img.Copied,
		})
	}
	return r
}

// TargetName returns the VM's name at the target.
func (r *Record) TargetName() string { return cmp.Or(r.Name, r.Source.Name) }

// ReadRecord reads vm.json in the folder of a published VM. It returns fault.NotFound if there is none,
// and
// fault.Corrupt if it is malformed.
func ReadRecord(folder string) (*Record, error) {
	path := filepath.Join(folder, recordFile)
	text, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return nil, fault.New(fault.NotFound, "%s is not the folder of a migrated VM: %w", folder, err).
			WithHint("name a folder that decamp migrate has published; it holds a %s", recordFile)
	}
	if err != nil {
		return nil, err
	}
	r, err := parseRecord(text)
	if fault.Is(err, fault.Unsupported) {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err != nil {
		return nil, fault.New(fault.Corrupt, "%s: %w", path, err)
	}
	return r, nil
}

// parseRecord parses and validates vm.json. A newer version is fault.Unsupported. It rejects file names that lead out of the folder.
func parseRecord(text []byte) (*Record, error) {
	var r Record
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, err
	}
	if r.Version != recordVersion {
		return nil, fault.New(fault.Unsupported, "the record has version %d, and this decamp supports version %d", r.Version, recordVersion).
			WithHint("use the version of decamp that wrote it (%s), or a newer one", cmp.Or(r.Decamp, "unknown"))
	}
	if r.Source == nil {
		return nil, fmt.Errorf("the record has no source VM")
	}
	if n := r.NVRAM; n != nil && (!isName(n.File) || n.Size < 0 || n.Size > efi.MaxStore) {
		return nil, fmt.Errorf("the file of the EFI variables is invalid: %q of %d bytes", n.File, n.Size)
	}
	for i, img := range r.Images {
		for _, name := range []string{img.File, img.Manifest} {
			if !isName(name) {
				return nil, fmt.Errorf("image %d: %q is not a file name", i, name)
			}
		}
		if img.Size < 0 {
			return nil, fmt.Errorf("image %d: size %d", i, img.Size)
		}
	}
	return &r, nil
}

// isName reports whether name is a plain file name without a folder.
func isName(name string) bool {
	return filepath.IsLocal(name) && filepath.Base(name) == name && name != "."
}
