package portmap

import (
	"context"
	"net/netip"
	"time"

	"github.com/decamp/decamp/internal/nfs/oncrpc"
	"github.com/decamp/decamp/internal/nfs/xdr"
)

// Numbers of RFC 1833.
const (
	Number = 100000 // number of the RPC program
	Port   = 111    // port of the port mapper

	Low, High = 2, 4 // lowest and highest version

	pmapVersion = 2 // version 2: the port mapper

	rpcbVersion4 = 4 // version 4 of rpcbind; version 3 lacks GETVERSADDR

	procSet         = 1 // SET: adds a service
	procUnset       = 2 // UNSET: removes a service
	procGet         = 3 // GETPORT of version 2, GETADDR of 3 and 4
	procDump        = 4 // DUMP: lists the services
	procGetTime     = 6 // GETTIME of versions 3 and 4
	procGetVersAddr = 9 // GETVERSADDR of version 4

	maxString = 256 // longest netid, address or owner, in bytes
)

// Program returns the RPC program with versions 2 to 4.
func (m *Map) Program() *oncrpc.Program {
	pmap := map[uint32]*oncrpc.Procedure{
		0:         oncrpc.Null,
		procSet:   defineProcedure("PMAP_SET", decodeMapping, m.serveSet),
		procUnset: defineProcedure("PMAP_UNSET", decodeMapping, m.serveUnset),
		procGet:   defineProcedure("PMAP_GETPORT", decodeMapping, m.serveGetPort),
		procDump:  defineProcedure("PMAP_DUMP", decodeNothing, m.serveDump),
	}
	rpcb := map[uint32]*oncrpc.Procedure{
		0:           oncrpc.Null,
		procSet:     defineProcedure("RPCB_SET", decodeRPCB, m.serveRpcbSet),
		procUnset:   defineProcedure("RPCB_UNSET", decodeRPCB, m.serveRpcbUnset),
		procGet:     defineProcedure("RPCB_GETADDR", decodeRPCB, m.serveGetAddr),
		procDump:    defineProcedure("RPCB_DUMP", decodeNothing, m.serveRpcbDump),
		procGetTime: defineProcedure("RPCB_GETTIME", decodeNothing, serveGetTime),
	}
	getVersAddr := defineProcedure("RPCB_GETVERSADDR", decodeRPCB, m.serveGetVersAddr)
	return &oncrpc.Program{Number: Number, Name: "portmap", Low: Low, High: High,
		Procedure: func(version, n uint32) *oncrpc.Procedure {
			switch {
			case version == pmapVersion:
				return pmap[n]
			case version == rpcbVersion4 && n == procGetVersAddr:
				return getVersAddr
			}
			return rpcb[n]
		}}
}

// defineProcedure returns a procedure that decodes its arguments with decode and encodes its results
// with answer, which must not wait.
func defineProcedure[A any](name string, decode func(*xdr.Decoder) A, answer func(c *oncrpc.Call, args A, e *xdr.Encoder)) *oncrpc.Procedure {
	return &oncrpc.Procedure{Name: name, Decode: func(_ context.Context, c *oncrpc.Call) (oncrpc.Answer, error) {
		args := decode(c.Args)
		return func(_ context.Context, e *xdr.Encoder) error {
			answer(c, args, e)
			return nil
		}, c.Args.Err()
	}}
}

// decodeNothing decodes the arguments of a procedure without any.
func decodeNothing(*xdr.Decoder) struct{} { return struct{}{} }

// decodeMapping decodes a mapping of version 2. An unknown protocol makes Netid empty, and an
// impossible port makes Port 0.
func decodeMapping(d *xdr.Decoder) Service {
	s := Service{Program: d.Uint32(), Version: d.Uint32()}
	switch d.Uint32() {
	case protoTCP:
		s.Netid = TCP
	case protoUDP:
		s.Netid = UDP
	}
	if port := d.Uint32(); port <= 1<<16-1 {
		s.Port = uint16(port)
	}
	return s
}

// serveSet answers SET of version 2: whether the service was added.
func (m *Map) serveSet(c *oncrpc.Call, s Service, e *xdr.Encoder) {
	e.Bool(m.addService(c.Peer.Addr(), s))
}

// serveUnset answers UNSET of version 2. It ignores protocol and port (RFC 1833 section 3.2).
func (m *Map) serveUnset(c *oncrpc.Call, s Service, e *xdr.Encoder) {
	e.Bool(m.removeService(c.Peer.Addr(), s.Program, s.Version, ""))
}

// serveGetPort answers GETPORT: a port, or 0.
func (m *Map) serveGetPort(_ *oncrpc.Call, s Service, e *xdr.Encoder) {
	e.Uint32(uint32(m.findPort(s.Program, s.Version, s.Netid)))
}

// serveDump answers DUMP of version 2.
func (m *Map) serveDump(_ *oncrpc.Call, _ struct{}, e *xdr.Encoder) {
	protocols := map[string]uint32{TCP: protoTCP, UDP: protoUDP}
	for _, s := range m.listServices() {
		e.Bool(true)
		e.Uint32(s.Program)
		e.Uint32(s.Version)
		e.Uint32(protocols[s.Netid])
		e.Uint32(uint32(s.Port))
	}
	e.Bool(false)
}

// rpcb is the argument of versions 3 and 4 (RFC 1833 section 2.1).
type rpcb struct {
	program, version   uint32 // numbers of RPC
	netid, addr, owner string // transport, universal address, and registering user
}

// decodeRPCB decodes an rpcb. A string longer than maxString makes the call malformed.
func decodeRPCB(d *xdr.Decoder) rpcb {
	return rpcb{d.Uint32(), d.Uint32(), d.String(maxString), d.String(maxString), d.String(maxString)}
}

// encode appends r.
func (r rpcb) encode(e *xdr.Encoder) {
	e.Uint32(r.program)
	e.Uint32(r.version)
	e.String(r.netid)
	e.String(r.addr)
	e.String(r.owner)
}

// baseNetid returns the netid in a Service: "tcp" for tcp6, and for a caller that set none.
func (r rpcb) baseNetid() string {
	switch r.netid {
	case TCP, "tcp6", "":
		return TCP
	case UDP, "udp6":
		return UDP
	}
	return r.netid
}

// serveRpcbSet answers SET of versions 3 and 4: whether the service was added.
func (m *Map) serveRpcbSet(c *oncrpc.Call, r rpcb, e *xdr.Encoder) {
	at, err := parseUniversal(r.addr)
	e.Bool(err == nil && m.addService(c.Peer.Addr(), Service{r.program, r.version, r.baseNetid(), at.Port()}))
}

// serveRpcbUnset answers UNSET of versions 3 and 4: whether a service was removed.
func (m *Map) serveRpcbUnset(c *oncrpc.Call, r rpcb, e *xdr.Encoder) {
	netid := r.baseNetid()
	if r.netid == "" {
		netid = "" // all of them
	}
	e.Bool(m.removeService(c.Peer.Addr(), r.program, r.version, netid))
}

// serveGetAddr answers GETADDR: a universal address, or "".
func (m *Map) serveGetAddr(c *oncrpc.Call, r rpcb, e *xdr.Encoder) {
	encodeAddr(e, c, r, m.findPort(r.program, r.version, r.baseNetid()))
}

// serveGetVersAddr answers GETVERSADDR: GETADDR for exactly this version.
func (m *Map) serveGetVersAddr(c *oncrpc.Call, r rpcb, e *xdr.Encoder) {
	encodeAddr(e, c, r, m.findExactPort(r.program, r.version, r.baseNetid()))
}

// encodeAddr appends the universal address of a port, with the host by which the caller reaches this
// machine. It appends "" for port 0.
func encodeAddr(e *xdr.Encoder, c *oncrpc.Call, r rpcb, port uint16) {
	if port == 0 {
		e.String("")
		return
	}
	e.String(formatUniversal(hostFor(c, r), port))
}

// hostFor returns the address by which the caller reached this machine. Over UDP it is unknown; then
// hostFor returns the address in the call.
func hostFor(c *oncrpc.Call, r rpcb) netip.Addr {
	if a := c.Local.Addr(); a.IsValid() && !a.IsUnspecified() {
		return a
	}
	if at, err := parseUniversal(r.addr); err == nil {
		return at.Addr()
	}
	return netip.IPv4Unspecified()
}

// serveRpcbDump answers DUMP of versions 3 and 4.
func (m *Map) serveRpcbDump(_ *oncrpc.Call, _ struct{}, e *xdr.Encoder) {
	for _, s := range m.listServices() {
		e.Bool(true)
		rpcb{s.Program, s.Version, s.Netid, formatUniversal(netip.IPv4Unspecified(), s.Port), owner}.encode(e)
	}
	e.Bool(false)
}

// serveGetTime answers GETTIME: Unix seconds.
func serveGetTime(_ *oncrpc.Call, _ struct{}, e *xdr.Encoder) { e.Uint32(uint32(time.Now().Unix())) }
