package nfcplugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	wire "github.com/decamp/decamp/internal/nfc"
	"github.com/decamp/decamp/internal/readahead"
	"github.com/decamp/decamp/internal/transport"
	"github.com/decamp/decamp/internal/transport/https"
	"github.com/decamp/decamp/internal/transport/nfc"
)

const (
	openRetries = 2                // retries of the opening of the disk, which take a few seconds
	dialTimeout = 15 * time.Second // limit of a connection attempt to port 902
)

// Options are the functions of the plugin's host. Log and Warn are required.
type Options struct {
	Log  *slog.Logger // receives events
	Warn func(string) // prints a warning that the user must see
}

// Export is an open disk. Its methods may be called concurrently.
type Export struct {
	session     *esx.Session        // login to the server
	transport   transport.Transport // reads the disk
	cache       *readahead.Cache    // cache of all connections
	file        *readahead.File     // content of the disk
	description string              // name of the disk for clients
}

// Open logs in, finds the disk and opens it. ctx applies to Open only.
func Open(ctx context.Context, p Parameters, o Options) (*Export, error) {
	pin, err := p.trustServer(ctx, o)
	if err != nil {
		return nil, err
	}
	session, err := esx.Dial(ctx, esx.Config{
		URL:        &url.URL{Scheme: "esxi", User: url.User(p.User), Host: p.addr()},
		AnyProduct: true, Fingerprint: pin, Password: p.password, Cookie: p.Cookie, Log: o.Log,
	})
	if errors.Is(err, fault.ErrLogin) && p.Password != "" {
		return nil, fmt.Errorf("%w; check user= and password=", err)
	}
	if err != nil {
		return nil, err
	}
	e := &Export{session: session}
	if err := e.openDisk(ctx, p, o); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// password returns the password for a login.
func (p Parameters) password(context.Context) (esx.Secret, error) {
	if p.Password == "" {
		return "", fault.New(fault.Denied, "the session of cookie= has ended, and there is no password=").OfLogin()
	}
	return p.Password, nil
}

// openDisk finds the disk in the VM and opens it.
func (e *Export) openDisk(ctx context.Context, p Parameters, o Options) error {
	vm, err := e.session.BareVM(ctx, p.VM)
	if err != nil {
		if fault.Is(err, fault.NotFound) {
			return fault.New(fault.NotFound, "vm=moref=%s: %s has no VM with this reference", p.VM, p.Server)
		}
		return err
	}
	if p.Snapshot == "" && vm.Power != inventory.PoweredOff {
		return fault.New(fault.Conflict, "the VM %s is powered %s and writes to its disks: shut it down, or set snapshot=MOREF", vm.Name, vm.Power)
	}
	found, err := e.findDisk(ctx, p, vm)
	if err != nil {
		return err
	}
	src, err := e.openSource(ctx, p, o, transport.Disk{VM: vm, Disk: found, Snapshot: p.Snapshot})
	if err != nil {
		return err
	}
	e.cache = readahead.New(readahead.ExportOptions())
	e.file = e.cache.Open(context.Background(), p.File.String(), src)
	e.description = fmt.Sprintf("%s of VM %s on %s", p.File, vm.Name, p.Server)
	return nil
}

// findDisk returns the disk that the parameter file names: by its current descriptor, by its base, or by the
// descriptor that the snapshot froze.
func (e *Export) findDisk(ctx context.Context, p Parameters, vm *inventory.VM) (*inventory.Disk, error) {
	var paths []string
	for i := range vm.Disks {
		d := &vm.Disks[i]
		if d.Path == p.File || p.Snapshot != "" && d.Base == p.File {
			return d, nil
		}
		paths = append(paths, d.Path.String())
	}
	for i := range vm.Disks {
		if p.Snapshot == "" {
			break
		}
		frozen, err := e.session.DiskAtSnapshot(ctx, p.Snapshot, vm.Disks[i].Key)
		switch {
		case err == nil && frozen.Path == p.File:
			return &vm.Disks[i], nil
		case err != nil && !fault.Is(err, fault.NotFound):
			return nil, err
		}
	}
	if len(paths) == 0 {
		return nil, fault.New(fault.NotFound, "file=%s: the VM %s has no disks", p.File, vm.Name)
	}
	slices.Sort(paths)
	return nil, fault.New(fault.NotFound, "file=%s is not a disk of the VM %s; its disks are %s", p.File, vm.Name, strings.Join(paths, ", "))
}

// openSource opens the disk with the transport of the parameters.
func (e *Export) openSource(ctx context.Context, p Parameters, o Options, d transport.Disk) (disk.Source, error) {
	if p.Transport == transportHTTPS {
		t := https.New(e.session, https.Options{MaxConnections: p.Connections, Log: o.Log})
		e.transport = t
		src, err := t.Open(ctx, d)
		if err != nil {
			return nil, err // not a nil *Source in an interface
		}
		return src, nil
	}
	opts := nfc.Options{Handles: p.Connections, OpenRetries: openRetries, Log: o.Log, Dial: p.dialNFC}
	if p.Plain {
		opts.Wire = wire.Plain
	}
	t := nfc.New(e.session, opts)
	e.transport = t
	src, err := t.Open(ctx, d)
	if err != nil {
		return nil, err
	}
	return src, nil
}

// dialNFC connects to an ESXi host, at the port of the parameter nfchostport if that is set.
func (p Parameters) dialNFC(ctx context.Context, addr string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	if p.NFCPort != 0 {
		port = strconv.Itoa(p.NFCPort)
	}
	return (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", net.JoinHostPort(host, port))
}

// Size returns the size of the disk in bytes.
func (e *Export) Size() int64 { return e.file.Size() }

// Description returns the name of the disk for clients.
func (e *Export) Description() string { return e.description }

// ReadAt fills p from off.
func (e *Export) ReadAt(ctx context.Context, p []byte, off int64) error {
	return e.file.ReadAt(ctx, p, off)
}

// Extents describes r, without neighbours of the same kind. With first, it returns only the first extent.
func (e *Export) Extents(ctx context.Context, r disk.Range, first bool) ([]disk.Extent, error) {
	all, err := e.file.Extents(ctx, r)
	if err != nil {
		return nil, err
	}
	return mergeExtents(all, first), nil
}

// mergeExtents merges neighbours of the same kind. With first, it returns only the first extent.
func mergeExtents(all []disk.Extent, first bool) []disk.Extent {
	var merged []disk.Extent
	for _, x := range all {
		if merged = disk.AppendExtent(merged, x); first && len(merged) > 1 {
			return merged[:1]
		}
	}
	return merged
}

// Close closes the disk and all sessions. No other method may be running.
func (e *Export) Close() error {
	var errs []error
	if e.file != nil {
		errs = append(errs, e.file.Close(), e.cache.Close())
	}
	if e.transport != nil {
		errs = append(errs, e.transport.Close())
	}
	return errors.Join(append(errs, e.session.Close())...)
}

// Message returns an error as one line, with its remedy. Remedies that name commands or flags of decamp are left
// out, because the plugin has none of them.
func Message(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	hint := fault.HintOf(err)
	if hint == "" || strings.Contains(hint, "decamp") || strings.Contains(hint, "--") || strings.Contains(text, hint) {
		return text
	}
	return text + "; " + strings.Join(strings.Fields(hint), " ")
}
