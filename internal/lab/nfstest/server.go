// Package nfstest is a small NFSv3 server in memory for tests of the emulator: portmapper, MOUNT and NFS on
// one loopback port, as far as a host uses them. It keeps its files across a stop and start, and
// misbehaves on request. It shares no code with decamp's server.
package nfstest

import (
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/decamp/decamp/internal/lab/socket"
	"github.com/decamp/decamp/internal/lab/xdr"
)

// Export is the path the server exports.
const Export = "/srv/land"

// An Op is an NFS call that the server received.
type Op struct {
	Proc   string // name of the procedure, such as "WRITE"
	XID    uint32 // transaction ID; a repeated call has the same
	Name   string // name of the file, if the call names one or its handle is known
	Offset int64  // offset of a READ or WRITE in bytes
	Length int    // length of a READ or WRITE in bytes
	Stable uint32 // requested stability of a WRITE
	Port   int    // source port of the client
	UID    uint32 // user of the AUTH_SYS credentials
}

// A Verdict is a hook's decision about a call. The zero value lets the call proceed.
type Verdict struct {
	Status     uint32                // nfsstat3 to fail with; 0 executes the call
	Drop       bool                  // whether the call is neither executed nor answered
	NoReply    bool                  // whether the call is executed and not answered
	AlterReply func(b []byte) []byte // changes the results, which begin with the status; nil leaves them unchanged
}

// Server is an NFS server that runs until Close. Its methods may be called concurrently.
type Server struct {
	mu       sync.Mutex           // guards all other fields except serving
	addr     string               // host:port of the three services
	port     *socket.ReservedPort // reserves the port until Close; nil after that
	ln       net.Listener         // listener; nil while stopped
	conns    map[net.Conn]bool    // open connections
	ops      []Op                 // calls so far, oldest first
	hook     func(Op) Verdict     // decides about each call; nil lets all proceed
	files    map[uint64]*file     // files by number
	lastID   uint64               // number of the newest file
	used     int64                // allocated bytes of all files
	room     int64                // limit of used; 0 is 1 TiB
	pad      int                  // bytes in front of the number in each handle
	boot     uint64               // write verifier; Resume changes it
	serving  sync.WaitGroup       // goroutines of the listener and of connections
	maxWrite uint32               // wtmax and the most bytes of one WRITE
}

// Start starts a server with an empty export on a free port of 127.0.0.1.
func Start() (*Server, error) {
	port, err := socket.ReservePort("127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("nfstest: %w", err)
	}
	s := &Server{addr: port.Addr(), port: port, files: map[uint64]*file{}, lastID: rootID, maxWrite: 1 << 20, boot: 1}
	s.files[rootID] = &file{id: rootID, dir: map[string]uint64{}, nlink: 2, mode: 0o755}
	return s, s.Resume()
}

// Addr returns the host:port of the portmapper, MOUNT and NFS.
func (s *Server) Addr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addr
}

// Stop resets all connections and closes the port, as a crash of the server does. Files are kept.
func (s *Server) Stop() error {
	s.mu.Lock()
	ln := s.ln
	s.ln = nil
	for c := range s.conns {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // the close is what matters
		}
		_ = c.Close() // its reader sees it
	}
	s.mu.Unlock()
	if ln == nil {
		return errors.New("nfstest: stopped already")
	}
	err := ln.Close()
	s.serving.Wait()
	socket.WaitClosed(s.Addr())
	return err
}

// Resume listens again at the same address, with a new write verifier.
func (s *Server) Resume() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	ln, err := socket.Listen(s.addr)
	if err != nil {
		return fmt.Errorf("nfstest: %w", err)
	}
	s.ln, s.addr, s.conns = ln, ln.Addr().String(), map[net.Conn]bool{}
	s.boot++
	s.serving.Go(func() { s.acceptConns(ln) })
	return nil
}

// Close stops the server and releases its port.
func (s *Server) Close() error {
	s.mu.Lock()
	running, port := s.ln != nil, s.port
	s.port = nil
	s.mu.Unlock()
	var errs []error
	if running {
		errs = append(errs, s.Stop())
	}
	if port != nil {
		errs = append(errs, port.Close())
	}
	return errors.Join(errs...)
}

// Hook calls f for every NFS call from now on; nil removes the hook. f must not call methods of the
// server.
func (s *Server) Hook(f func(Op) Verdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hook = f
}

// SetRoom limits the allocated bytes of all files; 0 is 1 TiB.
func (s *Server) SetRoom(bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.room = bytes
}

// SetHandleSize sets the length of all handles in bytes, from now on.
func (s *Server) SetHandleSize(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pad = n - idSize
}

// SetMaxWrite sets wtmax. Of a longer WRITE only so many bytes are written.
func (s *Server) SetMaxWrite(n uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.maxWrite = n
}

// Ops returns the NFS calls so far, oldest first.
func (s *Server) Ops() []Op {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Op(nil), s.ops...)
}

// acceptConns serves connections until ln is closed.
func (s *Server) acceptConns(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		stopped := s.ln != ln
		if !stopped {
			s.conns[c] = true
			s.serving.Go(func() { s.serveConn(c) })
		}
		s.mu.Unlock()
		if stopped {
			_ = c.Close() // the server has stopped
		}
	}
}

// serveConn answers the calls of one connection until it ends.
func (s *Server) serveConn(c net.Conn) {
	defer func() {
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
		_ = c.Close() // the client keeps the received data
	}()
	for {
		msg, err := xdr.ReadRecord(c, 4<<20)
		if err != nil {
			return
		}
		reply := s.answerCall(c, msg)
		if reply == nil {
			continue
		}
		mark := xdr.Mark(len(reply))
		if _, err := (&net.Buffers{mark[:], reply}).WriteTo(c); err != nil {
			return
		}
	}
}

// answerCall executes one call and returns the reply without a record mark; nil is no reply.
func (s *Server) answerCall(c net.Conn, msg []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := xdr.NewDecoder(msg)
	call := xdr.ReadCall(d)
	if d.Err() != nil {
		return nil
	}
	var head, body xdr.Encoder
	status := xdr.Success
	muted := false
	switch call.Prog {
	case 100000: // portmapper
		s.servePortmap(call, d, &body)
	case 100005: // MOUNT
		status = s.serveMount(call, d, &body)
	case 100003: // NFS
		op := Op{XID: call.XID, UID: call.UID, Port: c.RemoteAddr().(*net.TCPAddr).Port}
		muted = s.serveNFS(call.Proc, op, d, &body)
	default:
		status = xdr.ProgUnavail
	}
	if muted {
		return nil
	}
	xdr.AppendReply(&head, call.XID, status)
	return append(head.B, body.B...)
}

// servePortmap answers GETPORT with the server's port, and other calls with 0.
func (s *Server) servePortmap(call xdr.Call, d *xdr.Decoder, e *xdr.Encoder) {
	prog := d.Uint32()
	if port := s.ln.Addr().(*net.TCPAddr).Port; call.Proc == 3 && (prog == 100003 || prog == 100005) {
		e.Uint32(uint32(port))
		return
	}
	e.Uint32(0) // not registered
}

// serveMount answers MNT, UMNT and NULL. Besides Export there is a path that is denied.
func (s *Server) serveMount(call xdr.Call, d *xdr.Decoder, e *xdr.Encoder) xdr.Status {
	switch call.Proc {
	case 1: // MNT
		switch d.String(1024) {
		case Export:
			e.Uint32(0)
			e.Opaque(s.handleOf(rootID))
			e.Uint32(1) // number of authentication flavors
			e.Uint32(xdr.AuthSys)
		case Export + "/denied":
			e.Uint32(13) // MNT3ERR_ACCES
		default:
			e.Uint32(2) // MNT3ERR_NOENT
		}
	case 0, 3: // NULL, UMNT
	default:
		return xdr.ProcUnavail
	}
	return xdr.Success
}
