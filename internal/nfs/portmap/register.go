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

// owner is who a mapping belongs to. rpcbind puts the real user in its place.
const owner = "decamp"

// Sockets are where the system's rpcbind takes registrations.
var Sockets = []string{"/run/rpcbind.sock", "/var/run/rpcbind.sock"}

// Rpcbind is the rpcbind of the system. It takes registrations from callers on this
// machine: at its socket, or at the loopback address from ports that belong to root.
type Rpcbind struct {
	// Network and Address are of its socket, for instance "unix", "/run/rpcbind.sock".
	Network, Address string
}

// FindRpcbind returns the system's rpcbind; ok is false where none answers.
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

// Register enters the services. What a run left that was killed is replaced; a service that
// somebody else answers is a Conflict.
func (r Rpcbind) Register(ctx context.Context, services []Service) error {
	for i, s := range services {
		if err := r.registerService(ctx, s); err != nil {
			return errors.Join(err, r.Unregister(context.WithoutCancel(ctx), services[:i]))
		}
	}
	return nil
}

func (r Rpcbind) registerService(ctx context.Context, s Service) error {
	ok, err := r.setOrUnset(ctx, procSet, s)
	if err != nil || ok {
		return err
	}
	if r.isServed(ctx, s) {
		return fault.New(fault.Conflict, "rpcbind has RPC program %d at another port already, and somebody answers there", s.Program).
			WithHint("stop the other NFS server, for instance: systemctl stop nfs-server; see rpcinfo -p")
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

// isServed reports whether somebody listens where rpcbind says the service is.
func (r Rpcbind) isServed(ctx context.Context, s Service) bool {
	results, err := r.callProcedure(ctx, procGet, rpcb{s.Program, s.Version, s.Netid, "", owner})
	if err != nil {
		return false
	}
	at, err := parseUniversal(results.String(maxString))
	if err != nil || at.Port() == s.Port { // ours is listening there
		return false
	}
	c, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(at.Port()))))
	if err != nil {
		return false
	}
	c.Close()
	return true
}

// Unregister takes the services out.
func (r Rpcbind) Unregister(ctx context.Context, services []Service) error {
	var errs []error
	for _, s := range services {
		_, err := r.setOrUnset(ctx, procUnset, s)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// setOrUnset calls SET or UNSET.
func (r Rpcbind) setOrUnset(ctx context.Context, proc uint32, s Service) (bool, error) {
	results, err := r.callProcedure(ctx, proc, rpcb{s.Program, s.Version, s.Netid, formatUniversal(netip.IPv4Unspecified(), s.Port), owner})
	if err != nil {
		return false, err
	}
	return results.Bool(), results.Err()
}

// callTimeout is how long a local rpcbind may take.
const callTimeout = 10 * time.Second

var dialer = net.Dialer{Timeout: callTimeout}

// dial connects to rpcbind. Over TCP, it trusts ports that belong to root alone.
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

// isInUse reports whether a port is taken by somebody else.
func isInUse(err error) bool {
	return errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, syscall.EADDRNOTAVAIL)
}

// Of a call and its reply (RFC 5531).
const (
	callXID    = 0x64636d70
	rpcVersion = 2
	lastMark   = 1 << 31
	maxReply   = 4 << 10
)

// callProcedure makes one call of version 4 and returns its results.
func (r Rpcbind) callProcedure(ctx context.Context, proc uint32, args rpcb) (*xdr.Decoder, error) {
	c, err := r.dial(ctx)
	if err != nil {
		return nil, fault.New(fault.Unreachable, "reach rpcbind at %s: %w", r.Address, err).
			WithHint("see whether it runs: systemctl status rpcbind")
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(callTimeout)); err != nil {
		return nil, err
	}
	results, err := exchangeCall(c, proc, args)
	if err != nil {
		return nil, fault.New(fault.Unreachable, "call rpcbind at %s: %w", r.Address, err).
			WithHint("see whether it runs: systemctl status rpcbind")
	}
	return results, nil
}

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
