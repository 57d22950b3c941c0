package server

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/systemd"
)

// Server listens, and passes requests to the handlers of API, metrics and pages.
type Server struct {
	config   Config       // configuration with defaults
	log      *slog.Logger // Config.Log
	router   *router      // passes requests to handlers
	gate     *gate        // authorizes requests
	orders   *orders      // executes commands of API and page
	control  Control      // the operators' commands on the database
	cache    *fleetCache  // progress and scheduler state for all clients
	hub      *hub         // event stream
	metrics  *metrics     // counters
	document []byte       // OpenAPI document as JSON
	draining atomic.Bool  // Run is about to return; health checks fail
}

// New returns a server that does not listen before Run. It creates the state directory.
func New(c Config) (*Server, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Folder == "" {
		c.Folder = c.State
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Access == "" {
		c.Access = filepath.Join(c.State, planfile.AccessFile)
	}
	if err := os.MkdirAll(c.State, 0o700); err != nil {
		return nil, err
	}
	if err := forgetSessionKey(c.State); err != nil {
		return nil, err
	}
	m, control := newMetrics(c.Version), Local{c.Database}
	trail := &auditTrail{entries: c.Database.Audit, strangers: newThrottle(c.Now), metrics: m, log: c.Log}
	auth := &authenticator{NewTokens(c.State), newSessions(!c.Plain), newThrottle(c.Now)}
	cache := newFleetCache(control)
	s := &Server{
		config: c, log: c.Log, gate: &gate{auth, trail}, orders: &orders{control, trail}, control: control, cache: cache,
		hub: newHub(c.Database, cache, m, c.Log), metrics: m, router: &router{http.NewServeMux(), trail, m, c.Log},
	}
	return s, s.registerHandlers()
}

// registerHandlers adds all handlers to the mux.
func (s *Server) registerHandlers() (err error) {
	c, mux, trail := s.config, s.router.mux, s.gate.trail
	api := newAPI(mux, c.Version, s.gate,
		&planAPI{plans: c.Database.Plans, workers: c.Database.Workers, control: s.control, trail: trail, orders: s.orders, access: c.Access, folder: c.Folder},
		&vmAPI{c.Database.Plans, c.Database.VMs, s.cache, s.orders},
		&accessAPI{c.Access},
		&rehearsalAPI{c.Database.Rehearsals, trail},
		&limitAPI{s.control, trail},
		&workerAPI{c.Database.Workers, trail},
		&schedulerAPI{s.control},
		&notificationAPI{s.control},
		&auditAPI{c.Database.Audit},
		&eventAPI{s.hub, c.Database.Feed, s.cache, s.gate.auth, s.metrics, semaphore.NewWeighted(maxReads)})
	if s.document, err = json.Marshal(api.OpenAPI()); err != nil {
		return err
	}
	mux.HandleFunc("GET /openapi.json", s.serveDocument)
	mux.Handle("GET /metrics", &metricsHandler{s.gate, s.metrics, c.Database, s.cache, s.hub, c.Log})
	mux.HandleFunc("GET /healthz", serveHealth)
	mux.HandleFunc("GET /readyz", s.serveReady)
	(&website{c.Version, s.gate, c.Database.Plans, c.Database.VMs, c.Database.Workers, s.cache, s.orders, c.Log}).registerRoutes(mux)
	return nil
}

// serveDocument writes the OpenAPI document.
func (s *Server) serveDocument(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/openapi+json")
	_, _ = w.Write(s.document) // fails if the client has disconnected
}

// Handler returns the handler of all requests. The event stream requires Run.
func (s *Server) Handler() http.Handler {
	return s.router.guardHandler(http.HandlerFunc(s.router.routeRequest))
}

// drainTime is the time limit of running requests when the server stops.
const drainTime = 10 * time.Second

// Run serves until ctx ends. Then it accepts no more connections, ends the event streams, and waits for
// running requests, at most drainTime.
func (s *Server) Run(ctx context.Context) error {
	listener, fingerprint, err := s.openListener(ctx)
	if err != nil {
		return err
	}
	if s.config.Ready != nil {
		s.config.Ready(listener.Addr(), fingerprint)
	}
	g, ctx := errgroup.WithContext(ctx)
	web := s.newHTTPServer()
	g.Go(func() error { return s.hub.run(ctx) })
	g.Go(func() error { return notifyAndWatch(ctx, listener.Addr(), s.config.Plain, s.log) })
	g.Go(func() error {
		if err := web.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	g.Go(func() error {
		<-ctx.Done()
		return s.shutDown(context.WithoutCancel(ctx), web)
	})
	return g.Wait()
}

// newHTTPServer returns the HTTP server with its limits.
func (s *Server) newHTTPServer() *http.Server {
	return &http.Server{
		Handler: s.Handler(), MaxHeaderBytes: maxHeader, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug), // errors of unauthenticated clients that disconnect
	}
}

// shutDown ends the event streams and waits for running requests. After drainTime it closes their
// connections.
func (s *Server) shutDown(ctx context.Context, web *http.Server) error {
	s.draining.Store(true)
	s.hub.close()
	ctx, cancel := context.WithTimeout(ctx, drainTime)
	defer cancel()
	if err := web.Shutdown(ctx); err != nil {
		s.log.Warn("requests cut off", "err", err)
		return web.Close()
	}
	return nil
}

// openListener opens the port, with TLS unless Config.Plain is set. A socket that systemd opened replaces
// Config.Listen. It returns the fingerprint of the
// certificate; "" without TLS.
func (s *Server) openListener(ctx context.Context) (net.Listener, string, error) {
	addr := s.config.Listen
	if addr == "" {
		addr = DefaultListen
	}
	l, err := systemd.Listener()
	if err != nil {
		return nil, "", fault.Wrap(fault.Invalid, err)
	}
	if l != nil {
		addr = l.Addr().String()
	}
	if err := mayListen(addr, s.config.Plain); err != nil {
		return nil, "", err
	}
	var conf *tls.Config
	var fingerprint string
	if !s.config.Plain {
		if conf, fingerprint, err = tlsConfig(s.config); err != nil {
			return nil, "", err
		}
		conf.NextProtos = []string{"h2", "http/1.1"}
	}
	if l == nil {
		var lc net.ListenConfig
		if l, err = lc.Listen(ctx, "tcp", addr); err != nil {
			return nil, "", fault.New(fault.Conflict, "listen on %s: %w", addr, err).WithHint("is another server running? --listen takes another address")
		}
	}
	l = newLimitListener(l, maxConns, maxConnsPerNetwork)
	if conf != nil {
		l = tls.NewListener(l, conf)
	}
	return l, fingerprint, nil
}

// mayListen returns fault.Invalid if tokens would be sent in clear over a network.
func mayListen(addr string, plain bool) error {
	if !plain {
		return nil
	}
	host, _, err := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); err != nil || host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fault.New(fault.Invalid, "without TLS the server listens on a loopback address only, not on %q", addr).
			WithHint("leave out --plain, or have a proxy on this machine do TLS: --listen 127.0.0.1:8470")
	}
	return nil
}
