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

// ErrNoMarker means that the VM ran, but its guest did not report that it is up.
var ErrNoMarker = errors.New("no marker")

// Options say how a trial boot is run. The zero value is right for the test guests.
type Options struct {
	// Deadline is how long the guest may take; 2 minutes if zero. The test guests
	// take 6 s on an idle machine.
	Deadline time.Duration

	// Log, if not empty, is a file that receives everything the guest printed.
	Log string
}

// Domain boots the VM that the XML file at path defines and returns what its guest
// reported. The VM is gone when Domain returns. Without a marker the error is
// ErrNoMarker with the last lines of the serial port.
func Domain(ctx context.Context, path string, opts Options) (Marker, error) {
	d, err := loadDomain(path)
	if err != nil {
		return Marker{}, err
	}
	dir, err := os.MkdirTemp("", "boot-")
	if err != nil {
		return Marker{}, err
	}
	defer os.RemoveAll(dir)
	args, err := qemuArgs(d, filepath.Join(dir, "nvram"))
	if err != nil {
		return Marker{}, fmt.Errorf("domain %s: %w", path, err)
	}
	if opts.Deadline == 0 {
		opts.Deadline = 2 * time.Minute
	}
	ctx, cancel := context.WithTimeout(ctx, opts.Deadline)
	defer cancel()
	return runQEMU(ctx, args, opts.Log)
}

// loadDomain reads a domain and refuses what this package does not understand.
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
