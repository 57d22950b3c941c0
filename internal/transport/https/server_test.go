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

// script decides what becomes of a request: the n-th the server got (from 1), for r. Nil
// answers it as it should be.
type script func(n int64, r disk.Range) answer

// answer writes something to a request and reports whether the connection is still good.
type answer func(s *server, c net.Conn, r disk.Range) bool

// server is the smallest HTTPS server that answers ranged GETs, exactly and cheaply, and
// misbehaves by script.
type server struct {
	content disk.Source
	cookie  atomic.Value // string: what requests must carry; "" accepts all
	cert    atomic.Pointer[tls.Certificate]
	script  atomic.Pointer[script]

	requests atomic.Int64
	trouble  atomic.Int64 // requests the script answered
	peak     atomic.Int64 // connections at a time

	wrap     func(net.Conn) net.Conn // around the socket, below TLS; nil: none
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
	s.wg.Go(s.accept)
	return s, nil
}

func (s *server) play(sc script) { s.script.Store(&sc) }

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

func (s *server) accept() {
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
			s.wg.Go(func() { s.serve(raw) })
		}
		s.mu.Unlock()
	}
}

func (s *server) serve(raw net.Conn) {
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
		NextProtos:     []string{"h2", "http/1.1"}, // as ESXi 8 offers
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.cert.Load(), nil },
	})
	if c.Handshake() != nil || c.ConnectionState().NegotiatedProtocol != "http/1.1" {
		return
	}
	br := bufio.NewReader(c)
	for {
		req, err := http.ReadRequest(br)
		if err != nil || !s.answer(c, req) {
			return
		}
	}
}

func (s *server) answer(c net.Conn, req *http.Request) bool {
	n := s.requests.Add(1)
	r, err := requestedRange(req.Header.Get("Range"))
	if err != nil {
		return plain(400)(s, c, r)
	}
	if want := s.cookie.Load().(string); want != "" && req.Header.Get("Cookie") != want {
		return plain(401)(s, c, r)
	}
	if sc := s.script.Load(); sc != nil {
		if a := (*sc)(n, r); a != nil {
			s.trouble.Add(1)
			return a(s, c, r)
		}
	}
	return s.send(c, r, r.Len, r.Len)
}

// send answers r announcing length bytes, of which it sends only so many.
func (s *server) send(c net.Conn, r disk.Range, length, only int64) bool {
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

// plain answers with a status and a short text.
func plain(status int, fields ...string) answer {
	return func(_ *server, c net.Conn, _ disk.Range) bool {
		text := strings.Repeat("<p>no</p>", 20)
		_, err := fmt.Fprintf(c, "HTTP/1.1 %d No\r\nContent-Length: %d\r\n%s\r\n%s", status, len(text), strings.Join(fields, "\r\n"), text)
		return err == nil
	}
}

// short sends n bytes of the body and ends the connection in good order.
func short(n int64) answer {
	return func(s *server, c net.Conn, r disk.Range) bool {
		s.send(c, r, r.Len, min(n, r.Len-1))
		c.Close() // close_notify and FIN
		return false
	}
}

// reset sends n bytes of the body and resets the connection.
func reset(n int64) answer {
	return func(s *server, c net.Conn, r disk.Range) bool {
		s.send(c, r, r.Len, min(n, r.Len-1))
		raw := c.(*tls.Conn).NetConn().(*net.TCPConn)
		_ = raw.SetLinger(0)
		raw.Close()
		return false
	}
}

// stall sends n bytes of the body and then nothing until the client gives up.
func stall(n int64) answer {
	return func(s *server, c net.Conn, r disk.Range) bool {
		s.send(c, r, r.Len, min(n, r.Len-1))
		var b [1]byte
		_, _ = c.(*tls.Conn).NetConn().Read(b[:])
		return false
	}
}

// shifted claims and sends other bytes than were asked for, of the same number.
func shifted(s *server, c net.Conn, r disk.Range) bool {
	return s.send(c, disk.Range{Off: r.Off ^ 512, Len: r.Len}, r.Len, r.Len)
}

// shorter answers with fewer bytes than were asked for, in perfect form.
func shorter(s *server, c net.Conn, r disk.Range) bool {
	r.Len--
	return s.send(c, r, r.Len, r.Len)
}

// whole answers 200 with the file from its start.
func whole(s *server, c net.Conn, r disk.Range) bool {
	_, err := fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", s.content.Size(), make([]byte, 1000))
	return err == nil && s.content.Size() == 1000
}

// firstN misbehaves on the first n requests.
func firstN(n int64, a answer) script {
	return func(i int64, _ disk.Range) answer {
		if i <= n {
			return a
		}
		return nil
	}
}

// inTurn gives each answer once, then good ones.
func inTurn(answers ...answer) script {
	return func(i int64, _ disk.Range) answer {
		if i <= int64(len(answers)) {
			return answers[i-1]
		}
		return nil
	}
}

func always(a answer) script {
	return func(int64, disk.Range) answer { return a }
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

// host is the Host of a server: its disk is [ds] vm/disk.vmdk.
type host struct {
	addr    string
	pinned  []byte // DER
	uri     string
	size    int64
	text    string // the descriptor; "" is a right one
	cookies atomic.Int64
	files   atomic.Int64 // descriptors that were read
	renew   func() (string, error)
	cookie  atomic.Value // string

	allocated func(disk.Range) ([]disk.Extent, error) // nil: no map
}

func newHost(s *server) *host {
	h := &host{addr: s.listener.Addr().String(), pinned: s.cert.Load().Certificate[0], size: s.content.Size()}
	h.uri = "/folder/vm/disk-flat.vmdk?dcPath=ha-datacenter&dsName=ds"
	h.cookie.Store("")
	return h
}

func (h *host) Addr() string { return h.addr }

func (h *host) TLS() *tls.Config {
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

func (h *host) FileURI(_ string, p inventory.Path) (string, error) {
	if p != (inventory.Path{Datastore: "ds", File: "vm/disk-flat.vmdk"}) {
		return "", fmt.Errorf("unexpected path %v", p)
	}
	return h.uri, nil
}

func (h *host) Cookie(_ context.Context, stale string) (string, error) {
	h.cookies.Add(1)
	now := h.cookie.Load().(string)
	if stale == "" || stale != now || h.renew == nil {
		return now, nil
	}
	fresh, err := h.renew()
	h.cookie.Store(fresh)
	return fresh, err
}

func (h *host) ReadFile(context.Context, string, inventory.Path, int64) ([]byte, error) {
	h.files.Add(1)
	if h.text != "" {
		return []byte(h.text), nil
	}
	return []byte(fmt.Sprintf("# Disk DescriptorFile\nversion=1\nCID=fffffffe\nparentCID=ffffffff\ncreateType=\"vmfs\"\nRW %d VMFS \"disk-flat.vmdk\"\n", h.size/disk.SectorSize)), nil
}

func (h *host) DiskAtSnapshot(context.Context, inventory.MoRef, int32) (*inventory.Disk, error) {
	return nil, fault.New(fault.NotFound, "it has no snapshots").WithHint("take one first")
}

func (h *host) Allocated(_ context.Context, _, _ inventory.MoRef, _ int32, r disk.Range) ([]disk.Extent, error) {
	if h.allocated == nil {
		return nil, fault.New(fault.Unsupported, "no map")
	}
	return h.allocated(r)
}

// testDisk is the one disk of a host.
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

// noSleep is Options for tests: back-off takes no time and is counted.
func noSleep(slept *atomic.Int64) Options {
	return Options{Sleep: func(ctx context.Context, d time.Duration) error {
		slept.Add(1)
		return ctx.Err()
	}}
}

// openTest starts all of it and opens the disk.
func openTest(t *testing.T, content disk.Source, change func(*server, *host, *Options)) (*Source, *server) {
	t.Helper()
	s := startServer(t, content)
	h := newHost(s)
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
