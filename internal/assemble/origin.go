package assemble

import (
	"context"
	"errors"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/transport"
	"github.com/decamp/decamp/internal/transport/https"
)

// Origin is the VM that a published one came from, open for a second reading.
type Origin struct {
	session   *esx.Session
	transport *https.Transport
	vm        *inventory.VM
}

// OpenOrigin logs in to the source of a published VM, for a second reading of its disks.
func (a *Assembler) OpenOrigin(ctx context.Context, rawURL string, l Login, ref inventory.MoRef) (*Origin, error) {
	session, err := a.Dial(ctx, rawURL, l)
	if err != nil {
		return nil, err
	}
	o := &Origin{session: session, transport: https.New(session, https.Options{Log: a.Log})}
	if o.vm, err = session.VMByRef(ctx, ref); err != nil {
		return nil, errors.Join(err, o.Close())
	}
	return o, nil
}

// Disk opens a disk, by its key.
func (o *Origin) Disk(ctx context.Context, key int32) (disk.Source, error) {
	d, ok := o.vm.Disk(key)
	if !ok {
		return nil, fault.New(fault.NotFound, "VM %s has no disk %d any more", o.vm.Name, key)
	}
	return OpenDisk(ctx, o.transport, transport.Disk{VM: o.vm, Disk: d})
}

// Close closes the transport and logs out.
func (o *Origin) Close() error { return errors.Join(o.transport.Close(), o.session.Close()) }
