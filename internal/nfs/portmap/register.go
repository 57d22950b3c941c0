package portmap

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/nfs/xdr"
)

// owner is the owner of our mappings. rpcbind replaces it by the real user.
const owner = "decamp"

// Sockets are the paths of the system's rpcbind.
var Sockets = []string{"/run/rpcbind.sock", "/var/run/rpcbind.sock"}

// Rpcbind is the system's rpcbind. It accepts registrations from this machine: at its socket, or at the
// loopback address from root's ports.
type Rpcbind struct {
	// Network and Address of its socket, for instance "unix" and "/run/rpcbind.sock".
	Network, Address string
}

// FindRpcbind returns the system's rpcbind. ok is false if none accepts a connection.
func FindRpcbind(ctx context.Context) (r Rpcbind, ok bool) {
	places := []Rpcbind{}
	for _, s := range Sockets {
		places = append(places, Rpcbind{"unix", s})
	}
	places = append(places, Rpcbind{"tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(Port))})
	for _, r := range places {
		if c, err := r.dial(ctx); err == nil {
			c.Close()
			return r, true
		}
	}
	return Rpcbind{}, false
}

// Register registers the services, or none of them. It replaces registrations of a process that was
// killed. A service that another process serves is a fault.Conflict.
func (r Rpcbind) Register(ctx context.Context, services []Service) error {
	for i, s := range services {
		if err := r.registerService(ctx, s); err != nil {
			return errors.Join(err, r.Unregister(context.WithoutCancel(ctx), services[:i]))
		}
	}
	return nil
}

// registerService registers one service. If rpcbind has it already and nothing listens at its port, it
// is replaced.
func (r Rpcbind) registerService(ctx context.Context, s Service) error {
	ok, err := r.setOrUnset(ctx, procSet, s)
	if err != nil || ok {
		return err
	}
	if r.isServed(ctx, s) {
		return fault.New(fault.Conflict, "RPC program %d is already registered at rpcbind by another server", s.Program).
			WithHint("stop the other NFS server, for example: systemctl stop nfs-server; list the servers: rpcinfo -p")
	}
	if _, err := r.setOrUnset(ctx, procUnset, s); err != nil {
		return err
	}
	if ok, err = r.setOrUnset(ctx, procSet, s); err == nil && !ok {
		err = fault.New(fault.Denied, "rpcbind at %s refuses to register RPC program %d", r.Address, s.Program).
			WithHint("run decamp as root, or stop rpcbind: systemctl stop rpcbind.socket rpcbind.service")
	}
	return err
}

// isServed reports whether a process listens at the port that rpcbind has for the service. Our own port
// does not count.
func (r Rpcbind) isServed(ctx context.Context, s Service) bool {
	results, err := r.callProcedure(ctx, procGet, rpcb{s.Program, s.Version, s.Netid, "", owner})
	if err != nil {
		return false
	}
	at, err := parseUniversal(results.String(maxString))
	if err != nil || at.Port() == s.Port { // our own socket listens there
		return false
	}
	c, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(at.Port()))))
	if err != nil {
		return false
	}
	c.Close()
	return true
}

// Unregister removes the services. It tries all of them and joins the errors.
func (r Rpcbind) Unregister(ctx context.Context, services []Service) error {
	var errs []error
	for _, s := range services {
		_, err := r.setOrUnset(ctx, procUnset, s)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// setOrUnset calls SET or UNSET and returns rpcbind's answer.
func (r Rpcbind) setOrUnset(ctx context.Context, proc uint32, s Service) (bool, error) {
	results, err := r.callProcedure(ctx, proc, rpcb{s.Program, s.Version, s.Netid, formatUniversal(netip.IPv4Unspecified(), s.Port), owner})
	if err != nil {
		return false, err
	}
	return results.Bool(), results.Err()
}

// callTimeout bounds each call to the local rpcbind.
const callTimeout = 10 * time.Second

// dialer connects within callTimeout.
var dialer = net.Dialer{Timeout: callTimeout}

// dial connects to rpcbind. Over TCP, rpcbind accepts registrations only from ports below 1024; as
// root, dial uses a free one.
func (r Rpcbind) dial(ctx context.Context) (net.Conn, error) {
	if r.Network == "unix" || os.Geteuid() != 0 {
		return dialer.DialContext(ctx, r.Network, r.Address)
	}
	const lowest, highest = 600, 1023
	for port := highest; port >= lowest; port-- {
		d := dialer
		d.LocalAddr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}
		c, err := d.DialContext(ctx, r.Network, r.Address)
		if err == nil || !isInUse(err) {
			return c, err
		}
	}
	return dialer.DialContext(ctx, r.Network, r.Address)
}

// isInUse reports whether another socket has the local port.
func isInUse(err error) bool {
	return errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, syscall.EADDRNOTAVAIL)
}

// Fields of a call and its reply (RFC 5531).
const (
	callXID    = 0x64636d70 // transaction ID of our calls; each uses a new connection
	rpcVersion = 2          // version of RPC
	lastMark   = 1 << 31    // flag of a record's last fragment
	maxReply   = 4 << 10    // longest reply that is read, in bytes
)

// callProcedure calls a procedure of version 4 over a new connection, and returns the decoder of its
// results.
func (r Rpcbind) callProcedure(ctx context.Context, proc uint32, args rpcb) (*xdr.Decoder, error) {
	c, err := r.dial(ctx)
	if err != nil {
		return nil, fault.New(fault.Unreachable, "reach rpcbind at %s: %w", r.Address, err).
			WithHint("check that rpcbind runs: systemctl status rpcbind")
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(callTimeout)); err != nil {
		return nil, err
	}
	results, err := exchangeCall(c, proc, args)
	if err != nil {
		return nil, fault.New(fault.Unreachable, "call rpcbind at %s: %w", r.Address, err).
			WithHint("check that rpcbind runs: systemctl status rpcbind")
	}
	return results, nil
}

// exchangeCall sends one call and reads its reply, which must be one fragment. It fails unless the call
// was accepted and succeeded.
func exchangeCall(c io.ReadWriter, proc uint32, args rpcb) (*xdr.Decoder, error) {
	var e xdr.Encoder
	for _, v := range [...]uint32{0, callXID, 0, rpcVersion, Number, rpcbVersion4, proc, 0, 0, 0, 0} {
		e.Uint32(v) // the mark, the header, and credential and verifier of AUTH_NONE
	}
	args.encode(&e)
	e.PutUint32(0, uint32(e.Len()-4)|lastMark)
	if _, err := c.Write(e.Bytes()); err != nil {
		return nil, err
	}
	var mark [4]byte
	if _, err := io.ReadFull(c, mark[:]); err != nil {
		return nil, err
	}
	reply := make([]byte, min(binary.BigEndian.Uint32(mark[:])&^lastMark, maxReply))
	if _, err := io.ReadFull(c, reply); err != nil {
		return nil, err
	}
	d := xdr.NewDecoder(bytes.NewReader(reply))
	xid, kind, denied := d.Uint32(), d.Uint32(), d.Uint32()
	_, _ = d.Uint32(), d.Opaque(maxReply) // the verifier
	stat := d.Uint32()
	if err := d.Err(); err != nil {
		return nil, err
	}
	if xid != callXID || kind != 1 || denied != 0 || stat != 0 {
		return nil, fault.New(fault.Unsupported, "it answers %d %d %d %d", xid, kind, denied, stat)
	}
	return d, nil
}
