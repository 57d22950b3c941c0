// Package rpctest is a raw RPC client for tests. It sends any bytes, valid or not, and checks the replies that it
// decodes.
package rpctest

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/nfs/xdr"
)

// patience is the time in which a reply must arrive, on a busy machine too.
const patience = time.Minute

// Client is one connection. Errors of the connection fail the test.
type Client struct {
	t    testing.TB // test that errors fail
	conn net.Conn   // closed when the test ends
	xid  uint32     // transaction ID of the last call

	// UID is the user and the group of later calls, for AUTH_SYS.
	UID uint32
}

// Dial connects to addr over TCP.
func Dial(t testing.TB, addr string) *Client {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return New(t, conn)
}

// New returns a Client of a connection.
func New(t testing.TB, conn net.Conn) *Client {
	t.Cleanup(func() { conn.Close() })
	return &Client{t: t, conn: conn, xid: 0x1000}
}

// Close ends the connection.
func (c *Client) Close() { c.conn.Close() }

// Conn returns the connection.
func (c *Client) Conn() net.Conn { return c.conn }

// Header returns the header of a call with AUTH_SYS.
func (c *Client) Header(xid, program, version, procedure uint32) []byte {
	var e, cred xdr.Encoder
	cred.Uint32(0)
	cred.String("test")
	cred.Uint32(c.UID)
	cred.Uint32(c.UID)
	cred.Uint32(0) // no further groups
	for _, v := range []uint32{xid, 0, 2, program, version, procedure, 1} {
		e.Uint32(v)
	}
	e.Opaque(cred.Bytes())
	e.Uint32(0)
	e.Uint32(0)
	return e.Bytes()
}

// Record returns the one-fragment record of a body.
func Record(body []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))|1<<31), body...)
}

// Send sends a call and returns its xid.
func (c *Client) Send(program, version, procedure uint32, args []byte) uint32 {
	c.t.Helper()
	c.xid++
	c.SendRaw(Record(append(c.Header(c.xid, program, version, procedure), args...)))
	return c.xid
}

// SendRaw sends bytes as they are.
func (c *Client) SendRaw(p []byte) {
	c.t.Helper()
	if _, err := c.conn.Write(p); err != nil {
		c.t.Fatal(err)
	}
}

// Receive returns the next record.
func (c *Client) Receive() []byte {
	c.t.Helper()
	p, err := c.TryReceive()
	if err != nil {
		c.t.Fatalf("receive reply: %v", err)
	}
	return p
}

// TryReceive returns the next record, or the error that ended the connection.
func (c *Client) TryReceive() ([]byte, error) {
	if err := c.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	var mark [4]byte
	if _, err := io.ReadFull(c.conn, mark[:]); err != nil {
		return nil, err
	}
	p := make([]byte, binary.BigEndian.Uint32(mark[:])&^(1<<31))
	_, err := io.ReadFull(c.conn, p)
	return p, err
}

// Call calls a procedure and returns its results; the call must be accepted.
func (c *Client) Call(program, version, procedure uint32, args []byte) *xdr.Decoder {
	c.t.Helper()
	xid := c.Send(program, version, procedure, args)
	got, results := Accepted(c.t, c.Receive())
	if got != xid {
		c.t.Fatalf("reply to %#x, want %#x", got, xid)
	}
	return results
}

// Accepted returns the xid and the results of a successful reply. Any other reply fails the test.
func Accepted(t testing.TB, reply []byte) (xid uint32, results *xdr.Decoder) {
	t.Helper()
	const header = 6 * 4
	if len(reply) < header {
		t.Fatalf("reply of %d bytes", len(reply))
	}
	if want := make([]byte, header-8); !bytes.Equal(reply[4:8], []byte{0, 0, 0, 1}) || !bytes.Equal(reply[8:header], want) {
		t.Fatalf("reply % x is not a success", reply[:header])
	}
	return binary.BigEndian.Uint32(reply), xdr.NewDecoder(bytes.NewReader(reply[header:]))
}
