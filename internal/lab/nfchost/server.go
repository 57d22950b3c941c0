package nfchost

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/lab/socket"
)

// A Server is port 902 of one host. Its methods may be called concurrently.
type Server struct {
	cfg    Config  // configuration; read-only
	addr   string  // address; fixed after the first bind
	memory *memory // NFC memory of the host

	mu    sync.Mutex     // guards the fields below, except running
	rules Rules          // rules for new connections
	host  Pacer          // rate limit of Rules.HostRate
	link  Pacer          // rate limit of Rules.LinkRate
	ln    net.Listener   // listener; closed while the server is down
	conns map[*conn]bool // open connections
	down  bool           // whether the server is closed

	running sync.WaitGroup // goroutines of the listener and of connections
}

// Listen binds the address and serves it.
func Listen(cfg Config) (*Server, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{cfg: cfg, addr: cfg.Addr, memory: newMemory(), conns: map[*conn]bool{}, down: true}
	s.SetRules(cfg.Rules)
	return s, s.Open()
}

// Addr returns the host:port of the server.
func (s *Server) Addr() string { return s.addr }

// Rules returns the rules in force, with defaults.
func (s *Server) Rules() Rules {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rules
}

// SetRules changes the rules. Rate limits change at once; other rules apply to new connections.
func (s *Server) SetRules(r Rules) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.rules
	s.rules = r.withDefaults()
	if s.host == nil || old.HostRate != r.HostRate {
		s.host = s.cfg.Pacer(r.HostRate)
	}
	if s.link == nil || old.LinkRate != r.LinkRate {
		s.link = s.cfg.Pacer(r.LinkRate)
	}
	s.memory.setLimit(r.Memory)
}

// sharedPacers returns the rate limits that all sessions share.
func (s *Server) sharedPacers() (host, link Pacer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.host, s.link
}

// Open listens again at the same address after Close. It does nothing if the server is open.
func (s *Server) Open() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.down {
		return nil
	}
	ln, err := socket.Listen(s.addr)
	if err != nil {
		return fmt.Errorf("listen for NFC: %w", err)
	}
	s.ln, s.addr, s.down = ln, ln.Addr().String(), false
	s.running.Go(func() { s.acceptConns(ln) })
	return nil
}

// Close stops listening, breaks all connections and waits for their goroutines.
func (s *Server) Close() error {
	s.mu.Lock()
	var err error
	if !s.down {
		s.down = true
		err = s.ln.Close()
	}
	addr := s.addr
	s.mu.Unlock()
	s.Drop()
	s.running.Wait()
	socket.WaitClosed(addr)
	return err
}

// Drop breaks every connection with a TCP reset.
func (s *Server) Drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.resetConn()
	}
}

// acceptConns serves connections until the listener is closed.
func (s *Server) acceptConns(ln net.Listener) {
	for {
		raw, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			s.cfg.Log.Warn("accept NFC connection", "err", err)
			time.Sleep(acceptPause)
			continue
		}
		c := &conn{server: s, raw: raw, gone: make(chan struct{})}
		if !s.addConn(c) {
			_ = raw.Close() // the server is closing
			return
		}
		s.running.Go(func() {
			defer s.removeConn(c)
			if err := c.serveProtocol(); err != nil {
				s.cfg.Log.Debug("NFC connection ended", "err", err)
			}
		})
	}
}

// acceptPause is the delay after a failed accept, for example without free file descriptors.
const acceptPause = 10 * time.Millisecond

// addConn registers a connection and gives it the current rules. It returns false if the server is
// closed.
func (s *Server) addConn(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return false
	}
	c.rules = s.rules
	s.conns[c] = true
	return true
}

// removeConn closes a connection and removes it.
func (s *Server) removeConn(c *conn) {
	c.close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// updateStats runs change on the counters.
func (s *Server) updateStats(change func(*Stats)) {
	if s.cfg.Count != nil {
		s.cfg.Count(change)
	}
}
