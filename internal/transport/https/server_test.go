package https

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/transport"
)

// script selects the responder of request number n (from 1) for range r. Nil selects the correct answer.
type script func(n int64, r disk.Range) responder

// responder writes an answer and reports whether the connection can be used again.
type responder func(s *server, c net.Conn, r disk.Range) bool

// server is a minimal HTTPS server for ranged GETs. Its script can replace answers with faulty ones.
type server struct {
	content disk.Source
	cookie  atomic.Value // required Cookie header, a string; "" accepts all
	cert    atomic.Pointer[tls.Certificate]
	script  atomic.Pointer[script]

	requests atomic.Int64
	scripted atomic.Int64 // requests that the script answered
	peak     atomic.Int64 // highest number of concurrent connections

	wrap     func(net.Conn) net.Conn // wraps the socket, below TLS; may be nil
	listener net.Listener
	wg       sync.WaitGroup
	mu       sync.Mutex
	conns    map[net.Conn]bool
	closed   bool
}

func startServer(tb testing.TB, content disk.Source) *server {
	tb.Helper()
	s, err := newServer(content, nil)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.stop)
	return s
}

func newServer(content disk.Source, wrap func(net.Conn) net.Conn) (*server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	cert, err := newCertificate()
	if err != nil {
		return nil, err
	}
	s := &server{content: content, listener: l, wrap: wrap, conns: map[net.Conn]bool{}}
	s.cookie.Store("")
	s.cert.Store(cert)
	s.wg.Go(s.acceptConns)
	return s, nil
}

func (s *server) setScript(sc script) { s.script.Store(&sc) }

func (s *server) stop() {
	s.mu.Lock()
	s.closed = true
	for c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.listener.Close()
	s.wg.Wait()
}

func (s *server) acceptConns() {
	for {
		raw, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		if s.closed {
			raw.Close()
		} else {
			s.conns[raw] = true
			s.peak.Store(max(s.peak.Load(), int64(len(s.conns))))
			s.wg.Go(func() { s.serveConn(raw) })
		}
		s.mu.Unlock()
	}
}

func (s *server) serveConn(raw net.Conn) {
	defer func() {
		raw.Close()
		s.mu.Lock()
		delete(s.conns, raw)
		s.mu.Unlock()
	}()
	below := raw
	if s.wrap != nil {
		below = s.wrap(raw)
	}
	c := tls.Server(below, &tls.Config{
		NextProtos:     []string{"h2", "http/1.1"}, // the protocols of ESXi 8
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.cert.Load(), nil },
	})
	if c.Handshake() != nil || c.ConnectionState().NegotiatedProtocol != "http/1.1" {
		return
	}
	br := bufio.NewReader(c)
	for {
		req, err := http.ReadRequest(br)
		if err != nil || !s.respond(c, req) {
			return
		}
	}
}

func (s *server) respond(c net.Conn, req *http.Request) bool {
	n := s.requests.Add(1)
	r, err := requestedRange(req.Header.Get("Range"))
	if err != nil {
		return respondStatus(400)(s, c, r)
	}
	if want := s.cookie.Load().(string); want != "" && req.Header.Get("Cookie") != want {
		return respondStatus(401)(s, c, r)
	}
	if sc := s.script.Load(); sc != nil {
		if a := (*sc)(n, r); a != nil {
			s.scripted.Add(1)
			return a(s, c, r)
		}
	}
	return s.sendRange(c, r, r.Len, r.Len)
}

// sendRange answers r with a Content-Length of length, but sends only the first only bytes.
func (s *server) sendRange(c net.Conn, r disk.Range, length, only int64) bool {
	_, err := fmt.Fprintf(c, "HTTP/1.1 206 Partial Content\r\nContent-Type: application/octet-stream\r\n"+
		"Content-Length: %d\r\nContent-Range: bytes %d-%d/%d\r\n\r\n", length, r.Off, r.End()-1, s.content.Size())
	if err != nil {
		return false
	}
	buf := make([]byte, min(only, 256<<10))
	for off := r.Off; off < r.Off+only; off += int64(len(buf)) {
		b := buf[:min(int64(len(buf)), r.Off+only-off)]
		if err := s.content.ReadAt(context.Background(), b, off); err != nil {
			return false
		}
		if _, err := c.Write(b); err != nil {
			return false
		}
	}
	return only == length
}

// respondStatus returns a responder that answers with a status and a short text.
func respondStatus(status int, fields ...string) responder {
	return func(_ *server, c net.Conn, _ disk.Range) bool {
		text := strings.Repeat("<p>no</p>", 20)
		_, err := fmt.Fprintf(c, "HTTP/1.1 %d No\r\nContent-Length: %d\r\n%s\r\n%s", status, len(text), strings.Join(fields, "\r\n"), text)
		return err == nil
	}
}

// truncateAfter returns a responder that sends n bytes of the body and closes the connection cleanly.
func truncateAfter(n int64) responder {
	return func(s *server, c net.Conn, r disk.Range) bool {
		s.sendRange(c, r, r.Len, min(n, r.Len-1))
		c.Close() // close_notify and FIN
		return false
	}
}

// resetAfter returns a responder that sends n bytes of the body and resets the connection.
func resetAfter(n int64) responder {
	return func(s *server, c net.Conn, r disk.Range) bool {
		s.sendRange(c, r, r.Len, min(n, r.Len-1))
		raw := c.(*tls.Conn).NetConn().(*net.TCPConn)
		_ = raw.SetLinger(0)
		raw.Close()
		return false
	}
}

// stallAfter returns a responder that sends n bytes of the body and then waits until the client closes the connection.
func stallAfter(n int64) responder {
	return func(s *server, c net.Conn, r disk.Range) bool {
		s.sendRange(c, r, r.Len, min(n, r.Len-1))
		var b [1]byte
		_, _ = c.(*tls.Conn).NetConn().Read(b[:])
		return false
	}
}

// wrongRange answers with another range of the same length.
func wrongRange(s *server, c net.Conn, r disk.Range) bool {
	return s.sendRange(c, disk.Range{Off: r.Off ^ 512, Len: r.Len}, r.Len, r.Len)
}

// wrongLength answers with a valid range that is one byte shorter than the requested one.
func wrongLength(s *server, c net.Conn, r disk.Range) bool {
	r.Len--
	return s.sendRange(c, r, r.Len, r.Len)
}

// wholeFile answers 200 with the file from its start.
func wholeFile(s *server, c net.Conn, r disk.Range) bool {
	_, err := fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", s.content.Size(), make([]byte, 1000))
	return err == nil && s.content.Size() == 1000
}

// firstN returns a script that answers the first n requests with a.
func firstN(n int64, a responder) script {
	return func(i int64, _ disk.Range) responder {
		if i <= n {
			return a
		}
		return nil
	}
}

// sequence returns a script that uses each responder once, and answers correctly afterwards.
func sequence(answers ...responder) script {
	return func(i int64, _ disk.Range) responder {
		if i <= int64(len(answers)) {
			return answers[i-1]
		}
		return nil
	}
}

func always(a responder) script {
	return func(int64, disk.Range) responder { return a }
}

func requestedRange(h string) (disk.Range, error) {
	a, b, ok := strings.Cut(strings.TrimPrefix(h, "bytes="), "-")
	first, err1 := strconv.ParseInt(a, 10, 64)
	last, err2 := strconv.ParseInt(b, 10, 64)
	if !ok || err1 != nil || err2 != nil {
		return disk.Range{}, errors.New("no range")
	}
	return disk.Range{Off: first, Len: last - first + 1}, nil
}

func newCertificate() (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: "localhost.localdomain"},
		NotAfter:     time.Now().Add(time.Hour),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// fakeHost is the Host of a server. Its disk is [ds] vm/disk.vmdk.
type fakeHost struct {
	addr            string
	pinned          []byte // DER
	uri             string
	size            int64
	descriptor      string // content of the descriptor; "": a valid one
	cookieCalls     atomic.Int64
	descriptorReads atomic.Int64 // descriptors that were read
	renewCookie     func() (string, error)
	cookie          atomic.Value // string

	allocated func(disk.Range) ([]disk.Extent, error) // allocation map; nil if the host has no map
}

func newFakeHost(s *server) *fakeHost {
	h := &fakeHost{addr: s.listener.Addr().String(), pinned: s.cert.Load().Certificate[0], size: s.content.Size()}
	h.uri = "/folder/vm/disk-flat.vmdk?dcPath=ha-datacenter&dsName=ds"
	h.cookie.Store("")
	return h
}

func (h *fakeHost) Addr() string { return h.addr }

func (h *fakeHost) TLS() *tls.Config {
	return &tls.Config{
		InsecureSkipVerify: true,
		VerifyPeerCertificate: func(raw [][]byte, _ [][]*x509.Certificate) error {
			if string(raw[0]) != string(h.pinned) {
				return fault.New(fault.Denied, "the certificate changed").WithHint("--fingerprint")
			}
			return nil
		},
	}
}

func (h *fakeHost) FileURI(_ string, p inventory.Path) (string, error) {
	if p != (inventory.Path{Datastore: "ds", File: "vm/disk-flat.vmdk"}) {
		return "", fmt.Errorf("unexpected path %v", p)
	}
	return h.uri, nil
}

func (h *fakeHost) Cookie(_ context.Context, stale string) (string, error) {
	h.cookieCalls.Add(1)
	now := h.cookie.Load().(string)
	if stale == "" || stale != now || h.renewCookie == nil {
		return now, nil
	}
	fresh, err := h.renewCookie()
	h.cookie.Store(fresh)
	return fresh, err
}

func (h *fakeHost) ReadFile(context.Context, string, inventory.Path, int64) ([]byte, error) {
	h.descriptorReads.Add(1)
	if h.descriptor != "" {
		return []byte(h.descriptor), nil
	}
	return []byte(fmt.Sprintf("# Disk DescriptorFile\nversion=1\nCID=fffffffe\nparentCID=ffffffff\ncreateType=\"vmfs\"\nRW %d VMFS \"disk-flat.vmdk\"\n", h.size/disk.SectorSize)), nil
}

func (h *fakeHost) DiskAtSnapshot(context.Context, inventory.MoRef, int32) (*inventory.Disk, error) {
	return nil, fault.New(fault.NotFound, "it has no snapshots").WithHint("take one first")
}

func (h *fakeHost) Allocated(_ context.Context, _, _ inventory.MoRef, _ int32, r disk.Range) ([]disk.Extent, error) {
	if h.allocated == nil {
		return nil, fault.New(fault.Unsupported, "no map")
	}
	return h.allocated(r)
}

// testDisk returns the disk of a fakeHost.
func testDisk(size int64) transport.Disk {
	d := inventory.Disk{
		Key: 2000, Capacity: size, Backing: inventory.Flat, Layers: 1,
		Path: inventory.Path{Datastore: "ds", File: "vm/disk.vmdk"},
	}
	return transport.Disk{
		VM:   &inventory.VM{Ref: "1", Power: inventory.PoweredOff, Datacenter: "ha-datacenter", Disks: []inventory.Disk{d}},
		Disk: &d,
	}
}

// noSleep returns Options whose Sleep returns at once and counts its calls in slept.
func noSleep(slept *atomic.Int64) Options {
	return Options{Sleep: func(ctx context.Context, d time.Duration) error {
		slept.Add(1)
		return ctx.Err()
	}}
}

// openTestDisk starts a server and a transport and opens the disk. change may be nil.
func openTestDisk(t *testing.T, content disk.Source, change func(*server, *fakeHost, *Options)) (*Source, *server) {
	t.Helper()
	s := startServer(t, content)
	h := newFakeHost(s)
	var slept atomic.Int64
	opts := noSleep(&slept)
	if change != nil {
		change(s, h, &opts)
	}
	tr := New(h, opts)
	t.Cleanup(func() { tr.Close() })
	src, err := tr.Open(t.Context(), testDisk(content.Size()))
	if err != nil {
		t.Fatal(err)
	}
	return src, s
}
