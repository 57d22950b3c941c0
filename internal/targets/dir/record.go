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

// recordFile is what makes a folder a published VM.
const recordFile = "vm.json"

// recordVersion is the version of vm.json that this package writes.
const recordVersion = 1

// A Record is the content of vm.json: all that is known of a VM that was moved. Files
// are named without folders, so that the VM's folder may be moved.
type Record struct {
	Version  int                 `json:"version"`
	Decamp   string              `json:"decamp"`         // version that wrote it
	Name     string              `json:"name,omitempty"` // what the VM is called here; empty: as at the source
	Source   *inventory.VM       `json:"source"`
	Images   []RecordedImage     `json:"images"`
	Guest    []guest.Report      `json:"guest,omitempty"` // in the order of Images
	Hardware targets.Hardware    `json:"hardware,omitempty"`
	Warnings []inventory.Warning `json:"warnings,omitempty"`

	// Checks are what was compared with the source, by image.
	Checks []targets.Check `json:"checks,omitempty"`

	// NVRAM is the file with the variables that its EFI firmware begins with; nil: none of the VM's.
	NVRAM *RecordedFile `json:"nvram,omitempty"`

	// EFI is what those brought along.
	EFI *efi.State `json:"efi,omitempty"`

	// Converted lists what was changed in the guest, after the copy was proven; nil: nothing was.
	Converted *convert.Result `json:"converted,omitempty"`

	// Delivered is where the VM went with its images; nil: it is here.
	Delivered *targets.Receipt `json:"delivered,omitempty"`
}

// A RecordedFile is a small file of a Record.
type RecordedFile struct {
	File string `json:"file"`
	Size int64  `json:"size"`
	Hash string `json:"hash"` // BLAKE3-256, hex
}

// A RecordedImage is one disk of a Record.
type RecordedImage struct {
	Key      int32          `json:"key"`
	File     string         `json:"file"`
	Manifest string         `json:"manifest"`
	Format   targets.Format `json:"format"`
	Size     int64          `json:"size"`
	Root     string         `json:"root"`             // the manifest's root hash, hex
	Copied   string         `json:"copied,omitempty"` // the root as at the source, where the image was changed since

	// Modified is when the file was last written to before it was published. It is zero in the
	// records of older versions.
	Modified time.Time `json:"modified,omitzero"`
}

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

// Called is the VM's name here, as people see it.
func (r *Record) Called() string { return cmp.Or(r.Name, r.Source.Name) }

// ReadRecord reads the vm.json of a published VM's folder.
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
	if err != nil {
		return nil, fault.New(fault.Corrupt, "%s: %w", path, err)
	}
	return r, nil
}

// parseRecord takes no file name that leads out of the folder.
func parseRecord(text []byte) (*Record, error) {
	var r Record
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, err
	}
	if r.Version != recordVersion {
		return nil, fmt.Errorf("version %d is not known, only %d", r.Version, recordVersion)
	}
	if r.Source == nil {
		return nil, fmt.Errorf("no source VM")
	}
	if n := r.NVRAM; n != nil && (!isName(n.File) || n.Size < 0 || n.Size > efi.MaxStore) {
		return nil, fmt.Errorf("nvram: %q of %d bytes", n.File, n.Size)
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

// isName reports whether a file name leads nowhere else.
func isName(name string) bool {
	return filepath.IsLocal(name) && filepath.Base(name) == name && name != "."
}
