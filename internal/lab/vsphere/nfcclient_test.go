package vsphere

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/lab/fastlz"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// nfcTimeout limits each wait of the test client.
const nfcTimeout = 2 * time.Minute

// nfcTicketFor requests a ticket as clients do, with the reference of the service in the
// internal content.
func nfcTicketFor(c *vim25.Client, vm types.ManagedObjectReference) (types.HostServiceTicket, error) {
	service, err := nfcServiceOf(c)
	if err != nil {
		return types.HostServiceTicket{}, err
	}
	var res nfcGetVMFilesBody
	err = c.RoundTrip(context.Background(), &struct {
		Req    *nfcGetVMFiles `xml:"urn:vim25 NfcGetVmFiles"`
		Fault_ *soap.Fault    `xml:"http://schemas.xmlsoap.org/soap/envelope/ Fault,omitempty"`
		soap.HasFault
	}{Req: &nfcGetVMFiles{This: service, VM: vm}}, &res)
	if err != nil {
		return types.HostServiceTicket{}, err
	}
	return res.Res.Returnval, nil
}

func nfcServiceOf(c *vim25.Client) (types.ManagedObjectReference, error) {
	var res internalContentBody
	err := c.RoundTrip(context.Background(), &struct {
		Req *retrieveInternalContent `xml:"urn:vim25 RetrieveInternalContent"`
		soap.HasFault
	}{Req: &retrieveInternalContent{This: vim25.ServiceInstance}}, &res)
	if err != nil {
		return types.ManagedObjectReference{}, err
	}
	return res.Res.Returnval.NfcService, nil
}

// nfcConn is an NFC connection of the test client.
type nfcConn struct {
	t    testing.TB
	raw  net.Conn
	conn io.ReadWriter
	opID uint32
}

// dialNFC connects and runs the dialogue in the first TLS session. secure selects a second
// TLS session for NFC.
func dialNFC(t testing.TB, ticket types.HostServiceTicket, secure bool) *nfcConn {
	t.Helper()
	c, err := loginNFC(t, ticket, secure)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func loginNFC(t testing.TB, ticket types.HostServiceTicket, secure bool) (*nfcConn, error) {
	t.Helper()
	host := ticket.Host
	if host == "" {
		host = "127.0.0.1"
	}
	raw, err := net.Dial("tcp", net.JoinHostPort(host, strconv.Itoa(int(ticket.Port))))
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { raw.Close() })
	_ = raw.SetDeadline(time.Now().Add(nfcTimeout))
	banner, err := lineOf(raw)
	if err != nil || !strings.HasPrefix(banner, "220 VMware Authentication Daemon Version 1.10: SSL Required, ") {
		return nil, fmt.Errorf("banner %q: %w", banner, err)
	}
	first := tls.Client(raw, nfcTLS(ticket))
	if err := first.Handshake(); err != nil {
		return nil, err
	}
	c := &nfcConn{t: t, raw: raw, conn: raw}
	sendLine := func(line string) { _, _ = io.WriteString(first, line+"\r\n") }
	sendLine("SESSION " + ticket.SessionId)
	sendLine("BANNER ")
	if again, err := lineOf(first); again != banner {
		return nil, fmt.Errorf("banner inside TLS %q: %w", again, err)
	}
	if strings.Contains(banner, "SHA256 supported") {
		sendLine("THUMBPRINT_SHA2 PlainText")
		if reply, err := lineOf(first); !strings.HasPrefix(reply, "200 ") || len(reply) != 4+32*3-1 {
			return nil, fmt.Errorf("thumbprint %q: %w", reply, err)
		}
	}
	service, want := ticket.Service, "200 Connect ha-nfc"
	if secure {
		service, want = service+"ssl", want+"ssl"
	}
	sendLine("PROXY " + service)
	if reply, err := lineOf(first); reply != want {
		return nil, fmt.Errorf("proxy %q: %w", reply, err)
	}
	if secure {
		second := tls.Client(raw, nfcTLS(ticket))
		if err := second.Handshake(); err != nil {
			return nil, err
		}
		c.conn = second
	}
	return c, nil
}

var errThumbprint = errors.New("the certificate differs from the ticket's")

func nfcTLS(ticket types.HostServiceTicket) *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, VerifyConnection: func(s tls.ConnectionState) error {
		if ticket.SslThumbprint != "" && sha1Of(s.PeerCertificates[0].Raw) != ticket.SslThumbprint {
			return errThumbprint
		}
		return nil
	}}
}

// lineOf reads one line, byte by byte.
func lineOf(r io.Reader) (string, error) {
	var line []byte
	for p := make([]byte, 1); ; line = append(line, p[0]) {
		if _, err := io.ReadFull(r, p); err != nil {
			return string(line), err
		}
		if p[0] == '\n' {
			return strings.TrimSuffix(string(line), "\r"), nil
		}
	}
}

// hexBytes decodes the notation of the vectors: hex with spaces, and "+NN x 00" for NN zero bytes.
func hexBytes(t testing.TB, text string) []byte {
	t.Helper()
	text, zeros, _ := strings.Cut(text, "+")
	p, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(text), " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	if zeros != "" {
		n, err := strconv.Atoi(strings.Fields(zeros)[0])
		if err != nil {
			t.Fatal(err)
		}
		p = append(p, make([]byte, n)...)
	}
	return p
}

func (c *nfcConn) send(vector string) {
	c.t.Helper()
	if _, err := c.conn.Write(hexBytes(c.t, vector)); err != nil {
		c.t.Fatal(err)
	}
}

// expect reads a reply and compares it with a vector.
func (c *nfcConn) expect(vector string) {
	c.t.Helper()
	want := hexBytes(c.t, vector)
	if got := c.readBytes(len(want)); !bytes.Equal(got, want) {
		c.t.Fatalf("got  %x\nwant %x", got, want)
	}
}

func (c *nfcConn) readBytes(n int) []byte {
	c.t.Helper()
	p := make([]byte, n)
	if _, err := io.ReadFull(c.conn, p); err != nil {
		c.t.Fatalf("read %d bytes: %v", n, err)
	}
	return p
}

// runHandshake runs the handshake with the vectors of ESXi 8. It sends message 43 if tagged.
func (c *nfcConn) runHandshake(tagged bool, version string) {
	c.t.Helper()
	if tagged {
		c.send("2b000000 506c6169 6e546578 74000000 +248 x 00")
	}
	c.send("21000000 +260 x 00")
	c.send("33000000 0b000000 +256 x 00")
	c.expect("24000000 00000000 00000000 00000000 01000000 +244 x 00")
	c.expect("33000000 " + version + " +256 x 00")
	c.send("36000000 04000000 07000000 +252 x 00")
	c.send("7664646b")
	c.send("6e62646d6f6465")
	c.send("37000000 03000000 +256 x 00")
	c.send("34000000 +260 x 00")
	c.expect("34000000 +260 x 00")
}

// sendRequest sends a request and returns its id.
func (c *nfcConn) sendRequest(kind uint32, payload []byte, trailer string) uint32 {
	c.t.Helper()
	id := c.opID
	c.opID++
	p := binary.LittleEndian.AppendUint32(nil, 0xA100DA7A)
	for _, v := range []uint32{kind, uint32(len(payload)), id} {
		p = binary.LittleEndian.AppendUint32(p, v)
	}
	_, _ = c.conn.Write(append(append(p, payload...), trailer...)) // readReply returns the error
	return id
}

// nfcReply is one AIO message of the host.
type nfcReply struct {
	kind, opID uint32
	payload    []byte
	data       []byte
}

func (m *nfcReply) u32(at int) uint32 { return binary.LittleEndian.Uint32(m.payload[at:]) }
func (m *nfcReply) u64(at int) uint64 { return binary.LittleEndian.Uint64(m.payload[at:]) }

// nfcError is an ERROR record.
type nfcError struct {
	opID uint32
	code uint64
	text string
}

func (e *nfcError) Error() string { return fmt.Sprintf("ERROR %d %s", e.code, e.text) }

// readReply reads one message. It returns an ERROR record as an *nfcError.
func (c *nfcConn) readReply() (*nfcReply, error) {
	head := make([]byte, 16)
	if _, err := io.ReadFull(c.conn, head); err != nil {
		return nil, err
	}
	if binary.LittleEndian.Uint32(head) != 0xA100DA7A {
		return nil, fmt.Errorf("magic %x", head[:4])
	}
	m := &nfcReply{kind: binary.LittleEndian.Uint32(head[4:]), opID: binary.LittleEndian.Uint32(head[12:])}
	m.payload = make([]byte, binary.LittleEndian.Uint32(head[8:]))
	if _, err := io.ReadFull(c.conn, m.payload); err != nil {
		return nil, err
	}
	size := 0
	switch m.kind {
	case 1, 11:
		size = int(m.u32(12))
	case 7:
		size = int(m.u32(36))
	case 13:
		size = (int(m.u64(32)) + 31) / 32 * 4
	}
	if size > 64<<20 {
		return nil, fmt.Errorf("trailer of %d bytes", size)
	}
	m.data = make([]byte, size)
	if _, err := io.ReadFull(c.conn, m.data); err != nil {
		return nil, err
	}
	if m.kind == 1 {
		return nil, &nfcError{m.opID, m.u64(0), string(m.data)}
	}
	return m, nil
}

// call sends a request and reads its reply. After an ERROR record, it also reads the reply of
// zeros that follows.
func (c *nfcConn) call(kind uint32, payload []byte, trailer string) (*nfcReply, error) {
	c.t.Helper()
	id := c.sendRequest(kind, payload, trailer)
	m, err := c.readReply()
	var refused *nfcError
	if errors.As(err, &refused) {
		zero, tailErr := c.readReply()
		if tailErr != nil || zero.kind != kind || zero.opID != id || len(bytes.Trim(zero.payload, "\x00")) != 0 {
			c.t.Fatalf("after %v: %+v %v", err, zero, tailErr)
		}
		return nil, err
	}
	if err == nil && (m.opID != id || m.kind != kind) {
		c.t.Fatalf("reply %d of type %d to request %d of type %d", m.opID, m.kind, id, kind)
	}
	return m, err
}

func wordBytes(values ...uint32) (p []byte) {
	for _, v := range values {
		p = binary.LittleEndian.AppendUint32(p, v)
	}
	return p
}

func longBytes(values ...uint64) (p []byte) {
	for _, v := range values {
		p = binary.LittleEndian.AppendUint64(p, v)
	}
	return p
}

// openFile opens a session with buffers, and then a file.
func (c *nfcConn) openFile(size, count uint32, path string) (*nfcFile, error) {
	c.t.Helper()
	if _, err := c.call(2, wordBytes(0, size, count, 0), ""); err != nil {
		return nil, err
	}
	m, err := c.call(4, append(wordBytes(uint32(len(path)), 0, 0, 0, 2, 0x1e), make([]byte, 36)...), path)
	if err != nil {
		return nil, err
	}
	if status := m.u64(0); status != 0 {
		return nil, fmt.Errorf("open status %d", status)
	}
	return &nfcFile{nfcConn: c, handle: m.u64(8), size: int64(m.u64(28)), open: m}, nil
}

// nfcFile is an open disk.
type nfcFile struct {
	*nfcConn
	handle uint64
	size   int64
	open   *nfcReply
}

func (f *nfcFile) requestRead(off, n int64, packing uint32) uint32 {
	f.t.Helper()
	return f.sendRequest(7, append(append(longBytes(f.handle), wordBytes(1, packing)...), append(longBytes(uint64(off), uint64(n)), wordBytes(uint32(n), uint32(n), 0)...)...), "")
}

// readAt reads a range with one request. The fragments may arrive in any order.
func (f *nfcFile) readAt(off, n int64, packing uint32) ([]byte, error) {
	f.t.Helper()
	got, err := f.collectReads(map[uint32][2]int64{f.requestRead(off, n, packing): {off, n}})
	for _, p := range got {
		return p, err
	}
	return nil, err
}

// collectReads returns the data of several reads, by request id.
func (f *nfcFile) collectReads(reads map[uint32][2]int64) (map[uint32][]byte, error) {
	got, left := map[uint32][]byte{}, map[uint32]int64{}
	for id, r := range reads {
		got[id], left[id] = make([]byte, r[1]), r[1]
	}
	for len(left) > 0 {
		m, err := f.readReply()
		if err != nil {
			return got, err
		}
		r, known := reads[m.opID]
		start, length := int64(m.u32(28)), int64(m.u32(32))
		switch {
		case m.kind != 7 || !known || left[m.opID] == 0:
			return got, fmt.Errorf("message %d to request %d", m.kind, m.opID)
		case m.u64(0) != 0:
			return got, fmt.Errorf("status %d", m.u64(0))
		case int64(m.u64(16)) != r[0] || int64(m.u32(24)) != r[1] || m.u32(8) != 1 || m.u32(40) != 0:
			return got, fmt.Errorf("the fragment is for %d+%d, not %v", m.u64(16), m.u32(24), r)
		case length == 0 || start+length > r[1]:
			return got, fmt.Errorf("fragment %d+%d of %d", start, length, r[1])
		}
		if err := unpackFragment(got[m.opID][start:start+length], m.u32(12), m.data); err != nil {
			return got, err
		}
		if left[m.opID] -= length; left[m.opID] == 0 {
			delete(left, m.opID)
		}
	}
	return got, nil
}

// unpackFragment decompresses a fragment with one of the four compressions.
func unpackFragment(dst []byte, packing uint32, data []byte) error {
	switch packing {
	case 0:
		if len(data) != len(dst) {
			return fmt.Errorf("stored: %d bytes for %d", len(data), len(dst))
		}
		copy(dst, data)
		return nil
	case 1:
		z, err := zlib.NewReader(bytes.NewReader(data))
		if err != nil {
			return err
		}
		plain, err := io.ReadAll(bufio.NewReader(z))
		if err == nil && copy(dst, plain) != len(plain) || len(plain) != len(dst) {
			err = errors.Join(err, fmt.Errorf("zlib: %d bytes for %d", len(plain), len(dst)))
		}
		return err
	case 2:
		return fastlz.Decompress(dst, data)
	case 3:
		return unpackSkipZ(dst, data)
	}
	return fmt.Errorf("compression %d", packing)
}

func unpackSkipZ(dst, data []byte) error {
	if len(data) < 8 || int(binary.LittleEndian.Uint32(data)) != len(dst) {
		return fmt.Errorf("skipz: head %x", data[:min(8, len(data))])
	}
	clear(dst)
	last := 0
	for data = data[8:]; len(data) > 0; {
		if len(data) < 8 {
			return errors.New("skipz: cut run")
		}
		start, n := int(binary.LittleEndian.Uint32(data)), int(binary.LittleEndian.Uint32(data[4:]))
		if data = data[8:]; start < last || n == 0 || start+n > len(dst) || n > len(data) {
			return fmt.Errorf("skipz: run %d+%d after %d", start, n, last)
		}
		last = start + copy(dst[start:], data[:n])
		data = data[n:]
	}
	return nil
}
