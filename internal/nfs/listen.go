package nfs

import (
	"context"
	"errors"
	"net"
	"strconv"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/nfs/oncrpc"
	"github.com/decamp/decamp/internal/nfs/portmap"
)

// Ports are the addresses of a server, as host:port. An empty field means its default.
type Ports struct {
	NFS string // address of NFS and MOUNT; default ":2049"
	// address of the port mapper; default ":111". NoPortmap serves none: clients then need the ports as
	// mount options.
	Portmap string
}

// NoPortmap as Ports.Portmap serves no port mapper. ESXi cannot mount then: it has no option for the
// port.
const NoPortmap = "none"

// defaultNFS is the registered port of NFS. ESXi finds other ports through the port mapper.
const defaultNFS = ":2049"

// withDefaults returns p with default addresses in place of empty ones.
func (p Ports) withDefaults() Ports {
	if p.NFS == "" {
		p.NFS = defaultNFS
	}
	if p.Portmap == "" {
		p.Portmap = ":" + strconv.Itoa(portmap.Port)
	}
	return p
}

// Listeners are the open sockets of a server. Server.Run or Close closes them.
type Listeners struct {
	NFS net.Listener // NFS accepts connections to NFS and MOUNT.

	// Portmap and PortmapUDP accept calls to the port mapper. They are nil if another process serves it.
	Portmap    net.Listener
	PortmapUDP net.PacketConn

	rpcbind    *portmap.Rpcbind  // rpcbind that the services are registered at; nil if none
	registered []portmap.Service // services to unregister in Close
}

// Listen opens the sockets. If the system's rpcbind has the port of the port mapper, Listen registers
// the services there. An error names the process that has a port, if that can be found.
func Listen(ctx context.Context, p Ports) (*Listeners, error) {
	p = p.withDefaults()
	var config net.ListenConfig
	l := &Listeners{}
	var err error
	if l.NFS, err = config.Listen(ctx, "tcp", p.NFS); err != nil {
		return nil, listenError(err, "NFS", p.NFS)
	}
	if p.Portmap == NoPortmap {
		return l, nil
	}
	if err := l.listenPortmap(ctx, config, p.Portmap); err != nil {
		return nil, errors.Join(err, l.Close(ctx))
	}
	return l, nil
}

// listenPortmap opens the port mapper's TCP and UDP sockets at addr. If the TCP port is in use, it
// registers the services at the process that uses it.
func (l *Listeners) listenPortmap(ctx context.Context, config net.ListenConfig, addr string) error {
	tcp, err := config.Listen(ctx, "tcp", addr)
	if isErrno(err, syscall.EADDRINUSE) {
		return l.registerServices(ctx, err, addr)
	}
	if err != nil {
		return listenError(err, "the port mapper", addr)
	}
	l.Portmap = tcp
	udp, err := config.ListenPacket(ctx, "udp", tcp.Addr().String())
	if err != nil {
		return listenError(err, "the port mapper over UDP", addr)
	}
	l.PortmapUDP = udp
	return nil
}

// registerServices registers the services at the system's rpcbind. If another program has the port, it
// returns taken as a fault.
func (l *Listeners) registerServices(ctx context.Context, taken error, addr string) error {
	r, ok := portmap.FindRpcbind(ctx)
	if !ok {
		return listenError(taken, "the port mapper", addr)
	}
	services := l.rpcServices()
	if err := r.Register(ctx, services); err != nil {
		return err
	}
	l.rpcbind, l.registered = &r, services
	return nil
}

// rpcServices returns the services that clients look up at the port mapper: NFS and MOUNT, on one TCP
// port.
func (l *Listeners) rpcServices() []portmap.Service {
	port := portOf(l.NFS.Addr())
	return []portmap.Service{
		{Program: nfsProgram, Version: nfsVersion, Netid: portmap.TCP, Port: port},
		{Program: mountProgram, Version: mountVersion, Netid: portmap.TCP, Port: port},
	}
}

// portOf returns the TCP port of a; 0 if it is no TCP address.
func portOf(a net.Addr) uint16 {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return uint16(tcp.Port)
	}
	return 0
}

// listenError returns the fault for a socket that cannot be opened, with a remedy. The message names
// the service, which is what.
func listenError(err error, what, addr string) error {
	switch {
	case isErrno(err, syscall.EADDRINUSE):
		return portTakenError(err, what, addr)
	case isErrno(err, syscall.EACCES):
		return fault.New(fault.Denied, "listen for %s: %w", what, err).
			WithHint("ports below 1024 require root or the capability CAP_NET_BIND_SERVICE: run decamp as root, add the lines of docs/services.md to "+
				"its systemd unit, or allow the ports: sysctl net.ipv4.ip_unprivileged_port_start=%d", portmap.Port)
	}
	return fault.New(fault.Unreachable, "listen for %s: %w", what, err).WithHint("use an address of this machine: ip addr")
}

// portTakenError returns the fault for a port in use. It names the process if PortOwner finds it.
func portTakenError(err error, what, addr string) error {
	who := PortOwner(addr)
	if who == "" {
		return fault.New(fault.Conflict, "listen for %s: %w", what, err).
			WithHint("another process uses %s; find it with ss -ltnp and stop it; the system's NFS server: systemctl stop nfs-server", addr)
	}
	return fault.New(fault.Conflict, "listen for %s: %s uses the port: %w", what, who, err).
		WithHint("end that process; if it is decamp, wait until it ends: hosts find only one NFS server on a machine, by its port mapper")
}

// Close closes the sockets and removes the services from the system's rpcbind. It may be called after
// Run.
func (l *Listeners) Close(ctx context.Context) error {
	var errs []error
	if l.rpcbind != nil {
		errs = append(errs, l.rpcbind.Unregister(context.WithoutCancel(ctx), l.registered))
		l.rpcbind = nil
	}
	for _, c := range []interface{ Close() error }{l.NFS, l.Portmap, l.PortmapUDP} {
		if c != nil {
			errs = append(errs, ignoreClosed(c.Close()))
		}
	}
	return errors.Join(errs...)
}

// ignoreClosed returns nil for an error that reports a closed socket: Run closes them too.
func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Run serves all listeners until Close or the end of ctx, and closes them. It returns nil then.
func (s *Server) Run(ctx context.Context, l *Listeners) (err error) {
	s.serving.Add(1)
	defer s.serving.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(s.ctx, cancel)
	defer stop()
	defer func() { err = errors.Join(err, l.Close(ctx)) }()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.rpc.Serve(ctx, l.NFS) })
	if l.Portmap != nil {
		mapper := s.newPortmapServer(l)
		group.Go(func() error { return mapper.Serve(ctx, l.Portmap) })
		group.Go(func() error { return mapper.ServePacket(ctx, l.PortmapUDP) })
	}
	return group.Wait()
}

// newPortmapServer returns an RPC server of the port mapper. It contains the services of l and the port
// mapper itself.
func (s *Server) newPortmapServer(l *Listeners) *oncrpc.Server {
	services := l.rpcServices()
	for version := uint32(portmap.Low); version <= portmap.High; version++ {
		for _, netid := range []string{portmap.TCP, portmap.UDP} {
			services = append(services, portmap.Service{
				Program: portmap.Number, Version: version, Netid: netid, Port: portOf(l.Portmap.Addr()),
			})
		}
	}
	return oncrpc.NewServer(oncrpc.Options{
		Programs: []*oncrpc.Program{portmap.NewMap(services...).Program()}, Admit: s.admit, Log: s.log,
	})
}
