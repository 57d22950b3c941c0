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
	Number = 100000 // of the program
	Port   = 111

	Low, High = 2, 4 // versions

	pmapVersion = 2 // the port mapper

	rpcbVersion4 = 4

	procSet         = 1
	procUnset       = 2
	procGet         = 3 // GETPORT, GETADDR
	procDump        = 4
	procGetTime     = 6 // versions 3 and 4
	procGetVersAddr = 9 // version 4

	maxString = 256 // of netids, addresses and owners
)

// Program returns the program of all three versions.
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

func defineProcedure[A any](name string, decode func(*xdr.Decoder) A, answer func(c *oncrpc.Call, args A, e *xdr.Encoder)) *oncrpc.Procedure {
	return &oncrpc.Procedure{Name: name, Decode: func(_ context.Context, c *oncrpc.Call) (oncrpc.Answer, error) {
		args := decode(c.Args)
		return func(_ context.Context, e *xdr.Encoder) error {
			answer(c, args, e)
			return nil
		}, c.Args.Err()
	}}
}

func decodeNothing(*xdr.Decoder) struct{} { return struct{}{} }

// decodeMapping takes a mapping of version 2. The Netid of an unknown protocol is empty.
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

func (m *Map) serveSet(c *oncrpc.Call, s Service, e *xdr.Encoder) {
	e.Bool(m.addService(c.Peer.Addr(), s))
}

// serveUnset does not look at protocol and port (RFC 1833 section 3.2).
func (m *Map) serveUnset(c *oncrpc.Call, s Service, e *xdr.Encoder) {
	e.Bool(m.removeService(c.Peer.Addr(), s.Program, s.Version, ""))
}

func (m *Map) serveGetPort(_ *oncrpc.Call, s Service, e *xdr.Encoder) {
	e.Uint32(uint32(m.findPort(s.Program, s.Version, s.Netid)))
}

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

// rpcb is the argument of versions 3 and 4.
type rpcb struct {
	program, version   uint32
	netid, addr, owner string
}

func decodeRPCB(d *xdr.Decoder) rpcb {
	return rpcb{d.Uint32(), d.Uint32(), d.String(maxString), d.String(maxString), d.String(maxString)}
}

func (r rpcb) encode(e *xdr.Encoder) {
	e.Uint32(r.program)
	e.Uint32(r.version)
	e.String(r.netid)
	e.String(r.addr)
	e.String(r.owner)
}

// baseNetid returns the netid a service is known by: tcp6 is tcp. Where the caller gave
// none, it is TCP.
func (r rpcb) baseNetid() string {
	switch r.netid {
	case TCP, "tcp6", "":
		return TCP
	case UDP, "udp6":
		return UDP
	}
	return r.netid
}

func (m *Map) serveRpcbSet(c *oncrpc.Call, r rpcb, e *xdr.Encoder) {
	at, err := parseUniversal(r.addr)
	e.Bool(err == nil && m.addService(c.Peer.Addr(), Service{r.program, r.version, r.baseNetid(), at.Port()}))
}

func (m *Map) serveRpcbUnset(c *oncrpc.Call, r rpcb, e *xdr.Encoder) {
	netid := r.baseNetid()
	if r.netid == "" {
		netid = "" // all of them
	}
	e.Bool(m.removeService(c.Peer.Addr(), r.program, r.version, netid))
}

func (m *Map) serveGetAddr(c *oncrpc.Call, r rpcb, e *xdr.Encoder) {
	encodeAddr(e, c, r, m.findPort(r.program, r.version, r.baseNetid()))
}

func (m *Map) serveGetVersAddr(c *oncrpc.Call, r rpcb, e *xdr.Encoder) {
	encodeAddr(e, c, r, m.findExactPort(r.program, r.version, r.baseNetid()))
}

// encodeAddr appends the address of a port, as the caller reaches this machine; the empty
// string where there is none.
func encodeAddr(e *xdr.Encoder, c *oncrpc.Call, r rpcb, port uint16) {
	if port == 0 {
		e.String("")
		return
	}
	e.String(formatUniversal(hostFor(c, r), port))
}

// hostFor returns the address that the caller reached, or says it reached: over UDP that
// is all there is to know.
func hostFor(c *oncrpc.Call, r rpcb) netip.Addr {
	if a := c.Local.Addr(); a.IsValid() && !a.IsUnspecified() {
		return a
	}
	if at, err := parseUniversal(r.addr); err == nil {
		return at.Addr()
	}
	return netip.IPv4Unspecified()
}

func (m *Map) serveRpcbDump(_ *oncrpc.Call, _ struct{}, e *xdr.Encoder) {
	for _, s := range m.listServices() {
		e.Bool(true)
		rpcb{s.Program, s.Version, s.Netid, formatUniversal(netip.IPv4Unspecified(), s.Port), owner}.encode(e)
	}
	e.Bool(false)
}

func serveGetTime(_ *oncrpc.Call, _ struct{}, e *xdr.Encoder) { e.Uint32(uint32(time.Now().Unix())) }
