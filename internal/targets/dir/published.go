package dir

import (
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
)

// Published is the folder of a published VM with its record.
type Published struct {
	Folder string  // path; the folder may have been moved since it was published
	Record *Record // content of vm.json
}

// OpenPublished reads the record of a published VM.
func OpenPublished(folder string) (*Published, error) {
	record, err := ReadRecord(folder)
	if err != nil {
		return nil, err
	}
	return &Published{folder, record}, nil
}

// CheckNVRAM returns an error if the file with EFI variables has changed since it was published.
func (p *Published) CheckNVRAM() error { return CheckNVRAM(p.Folder, p.Record) }

// DomainName returns the VM's name for virsh.
func (p *Published) DomainName() string { return DomainName(p.Record.TargetName()) }

// CheckPresent returns fault.NotFound if the images were delivered to a platform and removed from here.
func (p *Published) CheckPresent() error {
	d := p.Record.Delivered
	if d == nil || slices.ContainsFunc(p.Images(), func(img targets.Image) bool { return fileExists(img.Path) }) {
		return nil
	}
	if at := Started(p.Folder); !at.IsZero() {
		return fault.New(fault.NotFound, "the images of %s are not here any more: they were delivered to %s as %s, and decamp started the VM there on %s", p.Record.Source.Name, d.Platform, d.ID, at.Local().Format(time.DateTime)).
			WithHint("the manifests in %s contain the delivered hashes; the VM has changed its disks since, as expected after a start", fault.Quote(p.Folder))
	}
	return fault.New(fault.NotFound, "the images of %s are not here any more: they were delivered to %s as %s", p.Record.Source.Name, d.Platform, d.ID).
		WithHint("the manifests in %s contain the delivered hashes; to compare, export a disk from there as raw before the first start, to the file name of the manifest's image", fault.Quote(p.Folder))
}

// fileExists reports whether path exists. It does not follow symbolic links.
func fileExists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// Images returns the published images with their paths in p.Folder.
func (p *Published) Images() []targets.Image {
	var images []targets.Image
	for _, img := range p.Record.Images {
		path := filepath.Join(p.Folder, img.File)
		images = append(images, targets.Image{
			Key: img.Key, Path: path, Final: path, Manifest: filepath.Join(p.Folder, img.Manifest),
			Format: img.Format, Size: img.Size, Root: img.Root, Copied: img.Copied,
		})
	}
	return images
}

// Converted reports whether an image was changed after the copy.
func (p *Published) Converted() bool {
	return slices.ContainsFunc(p.Record.Images, func(img RecordedImage) bool { return img.Copied != "" })
}

// Warnings returns the warnings of all steps and of the platform. If runs is true, the instruction how
// to start
// the VM is omitted.
func (p *Published) Warnings(runs bool) []inventory.Warning {
	all := slices.Clone(p.Record.Warnings)
	if p.Record.Delivered != nil {
		all = append(all, p.Record.Delivered.Warnings...)
	}
	return slices.DeleteFunc(all, func(w inventory.Warning) bool { return runs && w.Code == targets.NotStarted })
}
