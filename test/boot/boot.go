// Package boot starts a VM from its libvirt domain XML and reads the report of the test guest inside.
// It verifies the output of decamp, and therefore shares no code with decamp's writers. The XML becomes
// a QEMU command line as libvirt would build it, with four exceptions: the CPU is always emulated
// (TCG), disks are opened with snapshot=on so that a trial boot changes no image, network cards have no
// outside connection (restrict=on), and the serial port is connected to the test. XML that is not
// understood is refused, not ignored: a boot without an unknown element would prove nothing about the
// domain.
package boot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"libvirt.org/go/libvirtxml"
)

// ErrNoMarker means that the VM ran and its guest printed no marker.
var ErrNoMarker = errors.New("no marker")

// Options configure a trial boot. The zero value is suitable for the test guests.
type Options struct {
	// Deadline limits the time until the marker; 20 minutes if zero. The test guests need 6 s on an idle
	// machine. A guest that fails powers itself off, so only one that hangs reaches the deadline.
	Deadline time.Duration

	// Log is a file that receives the output of the serial port; empty writes none.
	Log string
}

// Domain boots the VM that the XML file at path defines and returns the report of its guest. The VM has
// ended when Domain returns. Without a report the error is ErrNoMarker with the last lines of the
// serial port.
func Domain(ctx context.Context, path string, opts Options) (Marker, error) {
	d, err := loadDomain(path)
	if err != nil {
		return Marker{}, err
	}
	dir, err := os.MkdirTemp("", "boot-")
	if err != nil {
		return Marker{}, err
	}
	defer os.RemoveAll(dir) // contains the variable store
	args, err := qemuArgs(d, filepath.Join(dir, "nvram"))
	if err != nil {
		return Marker{}, fmt.Errorf("domain %s: %w", path, err)
	}
	if opts.Deadline == 0 { // for a machine whose processors many processes share
		opts.Deadline = 20 * time.Minute
	}
	ctx, cancel := context.WithTimeout(ctx, opts.Deadline)
	defer cancel()
	return runQEMU(ctx, args, opts.Log)
}

// loadDomain reads a domain. Elements that this package does not support are an error.
func loadDomain(path string) (*libvirtxml.Domain, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if err := checkUnderstood(text); err != nil {
		return nil, fmt.Errorf("domain %s: %w", path, err)
	}
	var d libvirtxml.Domain
	if err := d.Unmarshal(string(text)); err != nil {
		return nil, fmt.Errorf("domain %s: %w", path, err)
	}
	return &d, nil
}
