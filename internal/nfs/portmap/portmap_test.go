package portmap_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/lab/loopback"
	"github.com/decamp/decamp/internal/nfs/oncrpc"
	"github.com/decamp/decamp/internal/nfs/portmap"
	"github.com/decamp/decamp/internal/nfs/rpctest"
	"github.com/decamp/decamp/internal/nfs/xdr"
)

const (
	nfsProgram   = 100003
	mountProgram = 100005
)

var services = []portmap.Service{
	{Program: nfsProgram, Version: 3, Netid: portmap.TCP, Port: 2049},
	{Program: mountProgram, Version: 3, Netid: portmap.TCP, Port: 2049},
	{Program: portmap.Number, Version: 2, Netid: portmap.UDP, Port: 111},
}

// serveMap serves a map on a listener until the test ends, and returns its address.
func serveMap(t testing.TB, m *portmap.Map, network, addr string) string {
	t.Helper()
	l, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	runUntilEnd(t, func(ctx context.Context) error { return newServer(m).Serve(ctx, l) })
	return l.Addr().String()
}

func newServer(m *portmap.Map) *oncrpc.Server {
	return oncrpc.NewServer(oncrpc.Options{Programs: []*oncrpc.Program{m.Program()}})
}

func runUntilEnd(t testing.TB, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func decodeHex(t *testing.T, s string) []byte {
	t.Helper()
	p, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Results have the bytes of RFC 1833 sections 2.1 and 3.2.
func TestResultBytes(t *testing.T) {
	addr := serveMap(t, portmap.NewMap(services...), "tcp", "127.0.0.1:0")
	c := rpctest.Dial(t, addr)
	const header = 24
	for name, v := range map[string]struct {
		version, procedure uint32
		args, results      string
	}{
		"NULL":                      {2, 0, "", ""},
		"GETPORT of MOUNT":          {2, 3, "000186a5 00000003 00000006 00000000", "00000801"},
		"GETPORT of NFS":            {2, 3, "000186a3 00000003 00000006 00000000", "00000801"},
		"GETPORT of NFS 4":          {2, 3, "000186a3 00000004 00000006 00000000", "00000801"},
		"GETPORT over UDP":          {2, 3, "000186a3 00000003 00000011 00000000", "00000000"},
		"GETPORT of nothing":        {2, 3, "000186b5 00000001 00000006 00000000", "00000000"},
		"GETPORT of an odd network": {2, 3, "000186a3 00000003 00000007 00000000", "00000000"},
		"DUMP": {2, 4, "", "00000001 000186a3 00000003 00000006 00000801" +
			"00000001 000186a5 00000003 00000006 00000801 00000001 000186a0 00000002 00000011 0000006f 00000000"},
		"GETADDR 3": {3, 3, "000186a3 00000003 00000003 74637000 00000000 00000000",
			"0000000d 3132372e302e302e312e382e31000000"}, // 127.0.0.1.8.1
		"GETADDR 4": {4, 3, "000186a3 00000003 00000004 74637036 00000000 00000000",
			"0000000d 3132372e302e302e312e382e31000000"},
		"GETADDR of nothing":     {4, 3, "000186b5 00000001 00000003 74637000 00000000 00000000", "00000000"},
		"GETVERSADDR":            {4, 9, "000186a3 00000003 00000003 74637000 00000000 00000000", "0000000d 3132372e302e302e312e382e31000000"},
		"GETVERSADDR of another": {4, 9, "000186a3 00000004 00000003 74637000 00000000 00000000", "00000000"},
	} {
		c.Send(portmap.Number, v.version, v.procedure, decodeHex(t, v.args))
		if got, want := c.Receive()[header:], decodeHex(t, v.results); !bytes.Equal(got, want) {
			t.Errorf("%s: % x, want % x", name, got, want)
		}
	}
	for name, v := range map[string]struct{ version, procedure uint32 }{
		"CALLIT": {2, 5}, "RPCB_BCAST": {3, 5}, "GETVERSADDR of version 3": {3, 9}, "RPCB_INDIRECT": {4, 10},
	} {
		c.Send(portmap.Number, v.version, v.procedure, nil)
		if p := c.Receive(); len(p) != header || p[23] != 3 {
			t.Errorf("%s: got reply % x, want PROC_UNAVAIL", name, p)
		}
	}
}

func TestRpcbDump(t *testing.T) {
	c := rpctest.Dial(t, serveMap(t, portmap.NewMap(services...), "tcp", "127.0.0.1:0"))
	d := c.Call(portmap.Number, 4, 4, nil)
	for _, s := range services {
		if !d.Bool() || d.Uint32() != s.Program || d.Uint32() != s.Version || d.String(8) != s.Netid {
			t.Errorf("DUMP does not list %+v", s)
		}
		if got, want := d.String(64), fmt.Sprintf("0.0.0.0.%d.%d", s.Port>>8, s.Port&0xff); got != want {
			t.Errorf("address %q, want %q", got, want)
		}
		if d.String(64) == "" {
			t.Error("the owner is empty")
		}
	}
	if d.Bool() || d.Err() != nil {
		t.Error("DUMP lists more services")
	}
	if now := c.Call(portmap.Number, 3, 6, nil).Uint32(); time.Since(time.Unix(int64(now), 0)).Abs() > time.Hour {
		t.Errorf("GETTIME returned %d, want the current time", now)
	}
}

func encodeMapping(program, version, protocol, port uint32) []byte {
	var e xdr.Encoder
	for _, v := range []uint32{program, version, protocol, port} {
		e.Uint32(v)
	}
	return e.Bytes()
}

func TestSetAndUnset(t *testing.T) {
	c := rpctest.Dial(t, serveMap(t, portmap.NewMap(), "tcp", "127.0.0.1:0"))
	call := func(procedure uint32, args []byte) uint32 {
		t.Helper()
		return c.Call(portmap.Number, 2, procedure, args).Uint32()
	}
	const set, unset, getport = 1, 2, 3
	if call(set, encodeMapping(77, 1, 6, 4711)) != 1 || call(set, encodeMapping(77, 1, 6, 4712)) != 0 {
		t.Error("SET does not accept a mapping once, and refuse it the second time")
	}
	if call(set, encodeMapping(77, 1, 17, 4713)) != 1 || call(set, encodeMapping(77, 2, 99, 1)) != 0 || call(set, encodeMapping(77, 3, 6, 1<<16)) != 0 {
		t.Error("SET refuses UDP, or accepts an unknown protocol or an invalid port")
	}
	if got := call(getport, encodeMapping(77, 1, 6, 0)); got != 4711 {
		t.Errorf("port %d, want 4711", got)
	}
	if call(unset, encodeMapping(77, 1, 0, 0)) != 1 || call(unset, encodeMapping(77, 1, 0, 0)) != 0 {
		t.Error("UNSET does not remove a mapping once, and fail the second time")
	}
	if got := call(getport, encodeMapping(77, 1, 17, 0)); got != 0 {
		t.Errorf("port %d after UNSET, want 0", got)
	}
	for i := range uint32(1000) {
		call(set, encodeMapping(i, 1, 6, 1))
	}
	if got := call(getport, encodeMapping(999, 1, 6, 0)); got != 0 {
		t.Error("SET accepts an unlimited number of mappings")
	}
}

func TestGetportOverUDP(t *testing.T) {
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := portmap.NewMap(services...)
	runUntilEnd(t, func(ctx context.Context) error { return newServer(m).ServePacket(ctx, pc) })
	c, err := net.Dial("udp", pc.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	call := decodeHex(t, "00000001 00000000 00000002 000186a0 00000002 00000003 00000000 00000000 00000000 00000000"+
		"000186a5 00000003 00000006 00000000")
	if _, err := c.Write(call); err != nil {
		t.Fatal(err)
	}
	c.SetReadDeadline(time.Now().Add(time.Minute))
	buf := make([]byte, 100)
	n, err := c.Read(buf)
	if want := decodeHex(t, "00000001 00000001 00000000 00000000 00000000 00000000 00000801"); err != nil || !bytes.Equal(buf[:n], want) {
		t.Errorf("got reply % x, error %v, want % x", buf[:n], err, want)
	}
}

// Services are registered with rpcbind and removed again. A Map with a separate socket stands in for rpcbind.
func TestRegister(t *testing.T) {
	m := portmap.NewMap()
	r := portmap.Rpcbind{Network: "tcp", Address: serveMap(t, m, "tcp", "127.0.0.1:0")}
	ours := services[:2]
	if err := r.Register(t.Context(), ours); err != nil {
		t.Fatal(err)
	}
	c := rpctest.Dial(t, r.Address)
	port := func() uint32 {
		return c.Call(portmap.Number, 2, 3, encodeMapping(nfsProgram, 3, 6, 0)).Uint32()
	}
	if got := port(); got != 2049 {
		t.Errorf("port %d, want 2049", got)
	}
	// The mapping of a killed run is replaced, because its port is closed.
	moved := []portmap.Service{{Program: nfsProgram, Version: 3, Netid: portmap.TCP, Port: freePort(t)}}
	left := portmap.NewMap(portmap.Service{Program: nfsProgram, Version: 3, Netid: portmap.TCP, Port: freePort(t)})
	again := portmap.Rpcbind{Network: "tcp", Address: serveMap(t, left, "tcp", "127.0.0.1:0")}
	if err := again.Register(t.Context(), moved); err != nil {
		t.Error(err)
	}
	if err := r.Unregister(t.Context(), ours); err != nil {
		t.Fatal(err)
	}
	if got := port(); got != 0 {
		t.Errorf("port %d after Unregister, want 0", got)
	}
}

// Register fails if another NFS server is registered and listens, and leaves no mapping behind.
func TestRegisterKeepsOtherServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	theirs := portmap.Service{Program: mountProgram, Version: 3, Netid: portmap.TCP, Port: uint16(l.Addr().(*net.TCPAddr).Port)}
	r := portmap.Rpcbind{Network: "tcp", Address: serveMap(t, portmap.NewMap(theirs), "tcp", "127.0.0.1:0")}
	err = r.Register(t.Context(), services[:2])
	if !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
		t.Errorf("got %v, want Conflict and a hint", err)
	}
	c := rpctest.Dial(t, r.Address)
	if got := c.Call(portmap.Number, 2, 3, encodeMapping(nfsProgram, 3, 6, 0)).Uint32(); got != 0 {
		t.Errorf("port %d after the failed Register, want 0", got)
	}
}

// Register can use the Unix socket of rpcbind.
func TestRegisterAtUnixSocket(t *testing.T) {
	r := portmap.Rpcbind{Network: "unix", Address: filepath.Join(t.TempDir(), "rpcbind.sock")}
	l, err := net.Listen(r.Network, r.Address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	got := make(chan []byte, 1)
	go func() { // answers one call with TRUE
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		client := rpctest.New(t, c)
		call, err := client.TryReceive()
		if err != nil {
			return
		}
		got <- call
		reply := append(append(call[:4:4], decodeHex(t, "00000001 00000000 00000000 00000000 00000000")...), 0, 0, 0, 1)
		_, _ = c.Write(rpctest.Record(reply))
	}()
	if err := r.Register(t.Context(), services[:1]); err != nil {
		t.Fatal(err)
	}
	call := <-got
	want := decodeHex(t, "00000000 00000002 000186a0 00000004 00000001 00000000 00000000 00000000 00000000"+ // RPCBPROC_SET of version 4
		"000186a3 00000003 00000003 74637000"+"0000000b 302e302e302e302e382e3100"+ // NFS 3, tcp, 0.0.0.0.8.1
		"00000006 646563616d700000") // decamp
	if !bytes.Equal(call[4:], want) {
		t.Errorf("got call % x, want % x", call[4:], want)
	}
}

func TestRegisterWithoutRpcbind(t *testing.T) {
	r := portmap.Rpcbind{Network: "unix", Address: filepath.Join(t.TempDir(), "absent")}
	if err := r.Register(t.Context(), services[:1]); !fault.Is(err, fault.Unreachable) || fault.HintOf(err) == "" {
		t.Errorf("got %v, want Unreachable and a hint", err)
	}
}

// freePort returns a port without a listener.
func freePort(t *testing.T) uint16 {
	t.Helper()
	addr, err := netip.ParseAddrPort(loopback.Reserve(t))
	if err != nil {
		t.Fatal(err)
	}
	return addr.Port()
}

// FuzzCalls checks that each procedure replies to any arguments.
func FuzzCalls(f *testing.F) {
	for version := uint32(2); version <= 4; version++ {
		for procedure := range uint32(12) {
			f.Add(version, procedure, encodeMapping(nfsProgram, 3, 6, 2049))
			f.Add(version, procedure, append(encodeMapping(nfsProgram, 3, 3, 0x74637000), encodeMapping(5, 0x302e302e, 0x302e302e, 0)...))
		}
	}
	addr := serveMap(f, portmap.NewMap(services...), "tcp", "127.0.0.1:0")
	f.Fuzz(func(t *testing.T, version, procedure uint32, args []byte) {
		if len(args) > 32<<10 {
			t.Skip()
		}
		c := rpctest.Dial(t, addr)
		defer c.Close()
		c.Send(portmap.Number, version, procedure, args)
		if p := c.Receive(); len(p) < 24 || len(p)%4 != 0 {
			t.Fatalf("reply % x", p)
		}
	})
}
