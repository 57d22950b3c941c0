package nfc

import (
	"context"
	"fmt"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/transport"
)

// Probe opens the disk and reads its first sector. That checks ticket, network, privileges and lock.
func (t *Transport) Probe(ctx context.Context, d transport.Disk) (transport.Offer, error) {
	src, err := t.Open(ctx, d)
	if err != nil {
		return transport.Refusal(err)
	}
	defer src.Close()
	offer := transport.Offer{Running: true, Reason: fmt.Sprintf("%s can be read from %s", src.path, src.readAddress())}
	return transport.ProbeSource(ctx, src, offer, src.alloc.Available)
}

// Open opens the disk with one handle. Reads open further ones if necessary. The caller closes the
// Source.
func (t *Transport) Open(ctx context.Context, d transport.Disk) (*Source, error) {
	src, err := t.openSource(ctx, d)
	if err != nil {
		return nil, fmt.Errorf("open disk %d: %w", d.Disk.Key, err)
	}
	return src, nil
}

// openSource is Open without the disk in its errors. It fails with fault.Corrupt if the host reports
// another size than the inventory.
func (t *Transport) openSource(ctx context.Context, d transport.Disk) (*Source, error) {
	if err := checkReadable(d); err != nil {
		return nil, err
	}
	file, err := d.DiskToRead(ctx, t.host)
	if err != nil {
		return nil, err
	}
	if file.Encrypted {
		return nil, transport.EncryptedError()
	}
	e, err := t.esxiOf(ctx, d.VM.Host)
	if err != nil {
		return nil, err
	}
	src := newSource(t, d, file, e)
	if err := src.openFirst(ctx); err != nil {
		return nil, err
	}
	if src.size != file.Capacity {
		src.Close()
		return nil, fault.New(fault.Corrupt, "disk %v has %d bytes over NFC, %d bytes in the VM's configuration", file.Path, src.size, file.Capacity).
			WithHint("the disk was changed after decamp read the configuration; run the command again")
	}
	return src, nil
}

// checkReadable fails for disks that cannot be read over NFC, without a request to the host.
func checkReadable(d transport.Disk) error {
	switch {
	case d.Disk.Encrypted || d.VM.Encrypted:
		return transport.EncryptedError()
	case d.Snapshot == "" && d.VM.Power != inventory.PoweredOff:
		return fault.New(fault.Conflict, "the VM is powered %s and writes to its disks", d.VM.Power).
			WithHint("shut the VM down first (do not suspend it), or migrate it with --warm, which reads a snapshot")
	}
	return nil
}
