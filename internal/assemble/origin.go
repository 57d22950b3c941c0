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

// Origin is the source VM of a published VM, opened for a second reading.
type Origin struct {
	session   *esx.Session     // session with the source; owned
	transport *https.Transport // reads disks over https; owned
	vm        *inventory.VM    // description of the source VM
}

// OpenOrigin logs in to the source of a published VM, and reads the description of the VM with
// reference ref.
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

// Disk opens the disk with a device key. The caller closes it.
func (o *Origin) Disk(ctx context.Context, key int32) (disk.Source, error) {
	d, ok := o.vm.Disk(key)
	if !ok {
		return nil, fault.New(fault.NotFound, "VM %s has no disk %d any more", o.vm.Name, key)
	}
	return OpenDisk(ctx, o.transport, transport.Disk{VM: o.vm, Disk: d})
}

// Close closes the transport and logs out.
func (o *Origin) Close() error { return errors.Join(o.transport.Close(), o.session.Close()) }
