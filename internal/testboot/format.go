package testboot

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"libvirt.org/go/libvirtxml"

	"github.com/decamp/decamp/internal/disk/signature"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/qcow2"
)

// checkFormat returns an error if the formats of a disk in the domain and in its
// content differ. Otherwise the guest would not boot, and the verdict would be wrong. A
// domain with the format raw is valid for any content; a domain without a format means
// raw.
func checkFormat(d libvirtxml.DomainDisk, file string) error {
	format := ""
	if d.Driver != nil {
		format = d.Driver.Type
	}
	switch format {
	case "":
		found, err := identifyFormat(file)
		if err != nil || found == "" {
			return err
		}
		return fault.New(fault.Invalid, "the domain sets no format for %s, so it is raw, but its content is %s", file, found).
			WithHint("set the format in the domain: <driver name='qemu' type='qcow2'/>, or type='raw' if the guest wrote that to its disk")
	// The whole chain is checked, because QEMU opens all of its files.
	case "qcow2":
		// QEMU would guess the format of a backing file that has none on record.
		src, err := qcow2.OpenSource(file, qcow2.SourceOptions{Backing: qcow2.OpenFile})
		switch {
		case errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission): // QEMU reports it
			return nil
		case err != nil:
			return err
		}
		return src.Close()
	}
	return nil
}

// identifyFormat returns the format of a file by its signature, or "" for raw data. A
// file that cannot be opened is no error here, because QEMU reports it.
func identifyFormat(path string) (signature.Format, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", nil // QEMU reports it
	}
	defer f.Close() // nothing was written
	head := make([]byte, signature.HeadSize)
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	return signature.Identify(head[:n], nil), nil
}
