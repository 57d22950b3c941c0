package export

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/nfs/xdr"
)

// Programs, and the procedures that are called, of RFC 1833, RFC 1813 section 5 and 3.
const (
	portmapProgram, portmapVersion = 100000, 2 // port mapper version 2 (RFC 1833 section 3)
	mountProgram, mountVersion     = 100005, 3 // MOUNT version 3 (RFC 1813 section 5)
	nfsProgram, nfsVersion         = 100003, 3 // NFS version 3 (RFC 1813 section 3)

	portmapGetPort = 3 // returns the port of a program

	mountMnt    = 1 // returns the handle of an exported folder
	mountUmnt   = 3 // removes the client's entry from the server's list
	mountExport = 5 // lists the exports
)

// A caller is a TCP connection for RPC calls, one after the other. It is not safe for
// concurrent use.
type caller struct {
	conn          net.Conn      // connection to the program
	program, vers uint32        // called program and its version
	xid           uint32        // transaction ID of the last call
	patience      time.Duration // limit of one call
}

const (
	// callPatience is the default limit of one call. A server may resolve the client's
	// name first.
	callPatience = 10 * time.Second

	// maxReply limits a reply in bytes. It is above the size of all replies used here,
	// including lists of exports.
	maxReply = 1 << 20

	lastFragment = 1 << 31 // flag of a record mark (RFC 5531 section 11)
)

// dialRPC connects to a program at host:port. If from is valid, it is the local
// address. A process of root then tries a local port below 1024, like ESXi: exports
// with the option "secure" require one.
func dialRPC(ctx context.Context, at string, from netip.Addr, program, vers uint32) (*caller, error) {
	d := net.Dialer{Timeout: callPatience}
	if from.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
	}
	// A server may accept only privileged ports. Without one, it refuses the call, and
	// the error describes why.
	c, err := dialReserved(ctx, d, at, from)
	if err != nil {
		c, err = d.DialContext(ctx, "tcp", at)
	}
	if err != nil {
		return nil, fault.New(fault.Unreachable, "%w", err).WithHint("list the listening processes: ss -ltnp")
	}
	return &caller{conn: c, program: program, vers: vers, patience: callPatience}, nil
}

// dialReserved connects from a privileged port. It tries ports that are rarely used,
// from 1023 down. It fails for processes that are not root.
func dialReserved(ctx context.Context, d net.Dialer, at string, from netip.Addr) (net.Conn, error) {
	const first, last = 960, 1023
	if !from.IsValid() || os.Geteuid() != 0 {
		return nil, os.ErrPermission
	}
	var err error
	for port := uint16(last); port >= first && ctx.Err() == nil; port-- {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, port))
		var c net.Conn
		if c, err = d.DialContext(ctx, "tcp", at); err == nil {
			return c, nil
		}
	}
	return nil, err
}

// close closes the connection. It ignores errors: all replies were read.
func (c *caller) close() { _ = c.conn.Close() } // nothing is owed

// call sends a call as root with AUTH_SYS, like ESXi, and returns a decoder for its
// results. It fails after c.patience, or when ctx's deadline passes.
func (c *caller) call(ctx context.Context, procedure uint32, args func(*xdr.Encoder)) (*xdr.Decoder, error) {
	deadline := time.Now().Add(c.patience)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	_ = c.conn.SetDeadline(deadline) // fails with what follows
	c.xid++
	var e, cred xdr.Encoder
	cred.Uint32(0)
	cred.String("decamp")
	for range 3 { // user, group, and no further groups
		cred.Uint32(0)
	}
	const authSys = 1
	for _, v := range [...]uint32{0, c.xid, 0, 2, c.program, c.vers, procedure, authSys} {
		e.Uint32(v) // the mark and the header of RFC 5531
	}
	e.Opaque(cred.Bytes())
	e.Uint32(0)
	e.Uint32(0)
	args(&e)
	// The record mark is the length of the call without the mark.
	e.PutUint32(0, uint32(e.Len()-4)|lastFragment)
	if _, err := c.conn.Write(e.Bytes()); err != nil {
		return nil, fault.New(fault.Unreachable, "%w", err)
	}
	reply, err := c.readRecord()
	if err != nil {
		return nil, fault.New(fault.Unreachable, "no answer: %w", err)
	}
	return decodeReply(reply, c.xid)
}

// readRecord reads one reply, which may have several fragments.
func (c *caller) readRecord() ([]byte, error) {
	var reply []byte
	for {
		var mark [4]byte
		if _, err := io.ReadFull(c.conn, mark[:]); err != nil {
			return nil, err
		}
		v := binary.BigEndian.Uint32(mark[:])
		n := int(v &^ lastFragment)
		// The server determines n, so it is checked before memory is allocated.
		if len(reply)+n > maxReply {
			return nil, fault.New(fault.Corrupt, "an answer of %d bytes; the limit is %d", len(reply)+n, maxReply)
		}
		at := len(reply)
		reply = append(reply, make([]byte, n)...)
		if _, err := io.ReadFull(c.conn, reply[at:]); err != nil {
			return nil, err
		}
		if v&lastFragment != 0 {
			return reply, nil
		}
	}
}

// decodeReply decodes the header of a reply, and returns a decoder for the results. A
// rejected call is an error.
func decodeReply(reply []byte, xid uint32) (*xdr.Decoder, error) {
	d := xdr.NewDecoder(bytes.NewReader(reply))
	got, kind, denied := d.Uint32(), d.Uint32(), d.Uint32()
	if d.Err() == nil && (got != xid || kind != 1) {
		return nil, fault.New(fault.Corrupt, "the answer is for another call")
	}
	if d.Err() == nil && denied != 0 {
		return nil, fault.New(fault.Denied, "the server rejects the call")
	}
	const maxVerifier = 400
	_, _ = d.Uint32(), d.Opaque(maxVerifier)
	if stat := d.Uint32(); d.Err() == nil && stat != 0 {
		return nil, fault.New(fault.Unsupported, "the server does not have that program, version or procedure (RPC accept status %d)", stat)
	}
	return d, d.Err()
}

// portOf queries a port mapper for the TCP port of a program. It returns 0 if the
// program is not registered.
func portOf(ctx context.Context, portmap string, program, vers uint32) (uint16, error) {
	c, err := dialRPC(ctx, portmap, netip.Addr{}, portmapProgram, portmapVersion)
	if err != nil {
		return 0, err
	}
	defer c.close()
	d, err := c.call(ctx, portmapGetPort, func(e *xdr.Encoder) {
		const tcp = 6
		for _, v := range [...]uint32{program, vers, tcp, 0} {
			e.Uint32(v)
		}
	})
	if err != nil {
		return 0, err
	}
	return uint16(d.Uint32()), d.Err()
}

// connectTo connects to a program on the machine of the port mapper, or at from if that
// is valid.
func connectTo(ctx context.Context, portmap string, from netip.Addr, program, vers uint32) (*caller, error) {
	p, err := portOf(ctx, portmap, program, vers)
	if err != nil {
		return nil, err
	}
	if p == 0 {
		return nil, fault.New(fault.Unreachable, "program %d version %d is not registered at the port mapper", program, vers).
			WithHint("list the registered programs: rpcinfo -p")
	}
	host, _, err := net.SplitHostPort(portmap)
	if err != nil {
		return nil, err
	}
	if from.IsValid() {
		host = from.String()
	}
	return dialRPC(ctx, netip.AddrPortFrom(netip.MustParseAddr(host), p).String(), from, program, vers)
}

// listExports requests the list of exports from the MOUNT service, like showmount -e.
// The list has folders and clients, but no rules.
func (o Options) listExports(ctx context.Context) ([]Export, error) {
	c, err := connectTo(ctx, o.Portmap, netip.Addr{}, mountProgram, mountVersion)
	if err != nil {
		return nil, err
	}
	defer c.close()
	d, err := c.call(ctx, mountExport, func(*xdr.Encoder) {})
	if err != nil {
		return nil, err
	}
	return decodeExports(d)
}

// decodeExports decodes the result of EXPORT (RFC 1813 section 5.2.5). maxReply limits
// its size.
func decodeExports(d *xdr.Decoder) (list []Export, err error) {
	const maxPath, maxName = 1024, 255
	for d.Bool() && d.Err() == nil {
		e := Export{Path: d.String(maxPath), Client: Everybody}
		// An export without clients is open to all hosts.
		none := true
		for d.Bool() && d.Err() == nil {
			e.Client, none = Client(d.String(maxName)).canonical(), false
			list = append(list, e)
		}
		if none {
			list = append(list, e)
		}
	}
	return list, d.Err()
}
