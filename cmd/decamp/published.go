package main

import (
	"context"
	"errors"
	"time"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/mount"
	"github.com/decamp/decamp/internal/transport"
	"github.com/decamp/decamp/internal/transport/https"
)

// origin is the VM that a published one came from, open for a second reading.
type origin struct {
	session   *esx.Session
	transport *https.Transport
	vm        *inventory.VM
}

func (a *app) openOrigin(ctx context.Context, rawURL string, l assemble.Login, ref inventory.MoRef) (*origin, error) {
	session, err := a.Dial(ctx, rawURL, l)
	if err != nil {
		return nil, err
	}
	o := &origin{session: session, transport: https.New(session, https.Options{Log: a.Log})}
	if o.vm, err = session.VMByRef(ctx, ref); err != nil {
		return nil, errors.Join(err, o.Close())
	}
	return o, nil
}

func (o *origin) disk(ctx context.Context, key int32) (disk.Source, error) {
	d, ok := o.vm.Disk(key)
	if !ok {
		return nil, fault.New(fault.NotFound, "VM %s has no disk %d any more", o.vm.Name, key)
	}
	return assemble.OpenDisk(ctx, o.transport, transport.Disk{VM: o.vm, Disk: d})
}

func (o *origin) Close() error { return errors.Join(o.transport.Close(), o.session.Close()) }

// mounted is a host shown as a folder, with what it stands on.
type mounted struct {
	session   *esx.Session
	transport *https.Transport
	mount     *mount.Mount
}

// mountStall is how long a connection of a mount may deliver nothing: others wait behind
// it, and a read has its own deadline, before which another connection should be tried.
const mountStall = 20 * time.Second

// openMount mounts the host of session at dir, and takes the session over. Where stores is
// not nil, the root is what it says and not what the host says.
func (a *app) openMount(ctx context.Context, session *esx.Session, stores []inventory.Datastore, dir string, connections int, o mount.Options) (*mounted, error) {
	o.Log = a.Log
	m := &mounted{session: session}
	m.transport = https.New(session, https.Options{MaxConnections: connections, Stall: mountStall, Log: a.Log})
	var host mount.Host = mount.NewRemote(session, m.transport, a.Log)
	if stores != nil {
		host = mount.Listed{Host: host, Stores: stores}
	}
	var err error
	if m.mount, err = mount.New(ctx, host, dir, o); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// wait returns when ctx ends or the file system was unmounted.
func (m *mounted) wait(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-m.mount.Done():
	}
}

// Close unmounts and logs out.
func (m *mounted) Close() error {
	var errs []error
	if m.mount != nil {
		errs = append(errs, m.mount.Close())
	}
	return errors.Join(append(errs, m.transport.Close(), m.session.Close())...)
}
