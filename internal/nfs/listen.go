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

// Ports are where a server listens, as host:port. An empty one is the default.
type Ports struct {
	NFS     string // of NFS and MOUNT, default ":2049"
	Portmap string // default ":111"; NoPortmap: clients are told the ports
}

// NoPortmap as Ports.Portmap serves no port mapper. ESXi cannot mount then.
const NoPortmap = "none"

const defaultNFS = ":2049"

func (p Ports) withDefaults() Ports {
	if p.NFS == "" {
		p.NFS = defaultNFS
	}
	if p.Portmap == "" {
		p.Portmap = ":" + strconv.Itoa(portmap.Port)
	}
	return p
}

// Listeners are the ports of a server, taken.
type Listeners struct {
	NFS net.Listener

	// Portmap and PortmapUDP are nil where somebody else is the port mapper.
	Portmap    net.Listener
	PortmapUDP net.PacketConn

	rpcbind    *portmap.Rpcbind // where the services are registered; nil: nowhere
	registered []portmap.Service
}

// Listen takes the ports. Where the port mapper's is taken by the system's rpcbind, the
// services are registered there.
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

// registerServices enters the services at the system's rpcbind, if that is who has the port.
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

// rpcServices are what clients ask the port mapper for.
func (l *Listeners) rpcServices() []portmap.Service {
	port := portOf(l.NFS.Addr())
	return []portmap.Service{
		{Program: nfsProgram, Version: nfsVersion, Netid: portmap.TCP, Port: port},
		{Program: mountProgram, Version: mountVersion, Netid: portmap.TCP, Port: port},
	}
}

func portOf(a net.Addr) uint16 {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return uint16(tcp.Port)
	}
	return 0
}

// listenError says what to do about a port that cannot be had.
func listenError(err error, what, addr string) error {
	switch {
	case isErrno(err, syscall.EADDRINUSE):
		return portTakenError(err, what, addr)
	case isErrno(err, syscall.EACCES):
		return fault.New(fault.Denied, "listen for %s: %w", what, err).
			WithHint("ports below 1024 are root's: run decamp as root, or allow it: sysctl net.ipv4.ip_unprivileged_port_start=%d", portmap.Port)
	}
	return fault.New(fault.Unreachable, "listen for %s: %w", what, err).WithHint("see which addresses this machine has: ip addr")
}

// portTakenError says who has a port.
func portTakenError(err error, what, addr string) error {
	who := Holder(addr)
	if who == "" {
		return fault.New(fault.Conflict, "listen for %s: %w", what, err).
			WithHint("another server has %s; see which: ss -ltnp; for the system's NFS server: systemctl stop nfs-server", addr)
	}
	return fault.New(fault.Conflict, "listen for %s: %s has the port: %w", what, who, err).
		WithHint("end it, or wait for it if it is another decamp: hosts find one server on a machine, that of its port mapper")
}

// Close gives the ports back and takes the services out of the system's rpcbind.
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

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Run serves all listeners until Close or the end of ctx, and closes them.
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

// newPortmapServer returns the server of the port mapper, which names itself too.
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
