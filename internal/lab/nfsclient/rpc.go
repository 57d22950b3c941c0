package nfsclient

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync/atomic"

	"github.com/decamp/decamp/internal/lab/xdr"
)

// Programs, versions and procedures of RFC 1833 and of RFC 1813 appendix I.
const (
	progPortmap = 100000 // program number of the portmapper
	versPortmap = 2      // version of the portmapper
	procGetPort = 3      // GETPORT: port of a program
	protoTCP    = 6      // number of TCP in a GETPORT call

	progMount = 100005 // program number of MOUNT
	versMount = 3      // version of MOUNT for NFSv3
	procMnt   = 1      // MNT: root handle of an export
	procUmnt  = 3      // UMNT: remove the mount entry

	maxReply = 2 << 20 // largest reply in bytes; fits the largest READ with its head
)

// lastXID is the xid of the last call of this process.
var lastXID atomic.Uint32

// init starts the xids at a random number, so that a restarted client does not repeat those in the
// server's reply cache.
func init() { lastXID.Store(rand.Uint32()) } // a client that restarts must not repeat its xids

// rpcOnce makes one call on a new connection. It returns the results after the RPC header.
func (c *Config) rpcOnce(ctx context.Context, addr string, call xdr.Call, args func(*xdr.Encoder)) (*xdr.Decoder, error) {
	conn, err := dialTCP(ctx, addr, 0)
	if err != nil {
		return nil, err
	}
	defer resetConn(conn)
	defer context.AfterFunc(ctx, func() { resetConn(conn) })()
	call.XID = lastXID.Add(1)
	c.setCredentials(&call)
	var e xdr.Encoder
	call.Append(&e)
	args(&e)
	mark := xdr.Mark(len(e.B))
	if _, err := (&net.Buffers{mark[:], e.B}).WriteTo(conn); err != nil {
		return nil, causeOr(ctx, err)
	}
	msg, err := xdr.ReadRecord(conn, maxReply)
	if err != nil {
		return nil, causeOr(ctx, err)
	}
	d := xdr.NewDecoder(msg)
	if xid, err := xdr.ReadReply(d); err != nil {
		return nil, err
	} else if xid != call.XID {
		return nil, fmt.Errorf("reply to call %#x, the only call was %#x", xid, call.XID)
	}
	return d, nil
}

// setCredentials sets AUTH_SYS with UID 0: ESXi calls as root and requires no_root_squash.
func (c *Config) setCredentials(call *xdr.Call) { call.Flavor, call.Machine = xdr.AuthSys, c.Machine }

// causeOr returns the cause of ctx if it has ended, otherwise err.
func causeOr(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// getPort returns the host:port of a program, from the portmapper.
func (c *Config) getPort(ctx context.Context, prog, vers uint32) (string, error) {
	call := xdr.Call{Prog: progPortmap, Vers: versPortmap, Proc: procGetPort}
	d, err := c.rpcOnce(ctx, c.PortmapAddr, call, func(e *xdr.Encoder) {
		for _, v := range []uint32{prog, vers, protoTCP, 0} {
			e.Uint32(v)
		}
	})
	if err != nil {
		return "", fmt.Errorf("portmapper at %s: %w", c.PortmapAddr, err)
	}
	port := d.Uint32()
	switch err := d.End(); {
	case err != nil:
		return "", fmt.Errorf("portmapper at %s: GETPORT: %w", c.PortmapAddr, err)
	case port == 0:
		return "", fmt.Errorf("portmapper at %s: program %d version %d over TCP: %w", c.PortmapAddr, prog, vers, ErrNotRegistered)
	case port > 65535:
		return "", fmt.Errorf("portmapper at %s: port %d", c.PortmapAddr, port)
	}
	return net.JoinHostPort(c.Host, strconv.Itoa(int(port))), nil
}

// mountExport returns the root handle of the export (RFC 1813 section 5.2.1). It fails if the server
// offers authentication flavors without AUTH_SYS.
func (c *Config) mountExport(ctx context.Context, addr string) (Handle, error) {
	d, err := c.rpcOnce(ctx, addr, xdr.Call{Prog: progMount, Vers: versMount, Proc: procMnt}, func(e *xdr.Encoder) { e.String(c.Path) })
	if err != nil {
		return "", fmt.Errorf("MNT %s: %w", c.Path, err)
	}
	if s := Status(d.Uint32()); s != OK {
		if err := d.End(); err != nil {
			return "", fmt.Errorf("MNT %s: %w", c.Path, err)
		}
		return "", &StatusError{Proc: "MNT", Status: s}
	}
	root := readHandle(d)
	sys := false
	flavors := d.Uint32()
	for i := uint32(0); i < flavors && d.Err() == nil; i++ {
		sys = d.Uint32() == xdr.AuthSys || sys
	}
	if flavors > 0 && !sys && d.Err() == nil {
		return "", fmt.Errorf("MNT %s: AUTH_SYS is not among the %d flavors offered", c.Path, flavors)
	}
	return root, wrapError(d.End(), "MNT "+c.Path)
}

// unmountExport removes the client's entry from the server's mount list (RFC 1813 section 5.2.3).
func (c *Config) unmountExport(ctx context.Context, addr string) error {
	d, err := c.rpcOnce(ctx, addr, xdr.Call{Prog: progMount, Vers: versMount, Proc: procUmnt}, func(e *xdr.Encoder) { e.String(c.Path) })
	if err != nil {
		return fmt.Errorf("UMNT %s: %w", c.Path, err)
	}
	return wrapError(d.End(), "UMNT "+c.Path)
}

// wrapError adds the operation to an error; nil stays nil.
func wrapError(err error, doing string) error {
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}
