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

// serve serves a map on a listener, until the test ends.
func serve(t testing.TB, m *portmap.Map, network, addr string) string {
	t.Helper()
	l, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	run(t, func(ctx context.Context) error { return server(m).Serve(ctx, l) })
	return l.Addr().String()
}

func server(m *portmap.Map) *oncrpc.Server {
	return oncrpc.NewServer(oncrpc.Options{Programs: []*oncrpc.Program{m.Program()}})
}

func run(t testing.TB, f func(context.Context) error) {
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

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	p, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Results to the byte, written from RFC 1833 sections 2.1 and 3.2.
func TestResultsToTheByte(t *testing.T) {
	addr := serve(t, portmap.NewMap(services...), "tcp", "127.0.0.1:0")
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
		c.Send(portmap.Number, v.version, v.procedure, unhex(t, v.args))
		if got, want := c.Receive()[header:], unhex(t, v.results); !bytes.Equal(got, want) {
			t.Errorf("%s: % x, want % x", name, got, want)
		}
	}
	for name, v := range map[string]struct{ version, procedure uint32 }{
		"CALLIT": {2, 5}, "RPCB_BCAST": {3, 5}, "GETVERSADDR of version 3": {3, 9}, "RPCB_INDIRECT": {4, 10},
	} {
		c.Send(portmap.Number, v.version, v.procedure, nil)
		if p := c.Receive(); len(p) != header || p[23] != 3 {
			t.Errorf("%s is answered with % x, want PROC_UNAVAIL", name, p)
		}
	}
}

func TestRpcbDump(t *testing.T) {
	c := rpctest.Dial(t, serve(t, portmap.NewMap(services...), "tcp", "127.0.0.1:0"))
	d := c.Call(portmap.Number, 4, 4, nil)
	for _, s := range services {
		if !d.Bool() || d.Uint32() != s.Program || d.Uint32() != s.Version || d.String(8) != s.Netid {
			t.Errorf("not listed: %+v", s)
		}
		if got, want := d.String(64), fmt.Sprintf("0.0.0.0.%d.%d", s.Port>>8, s.Port&0xff); got != want {
			t.Errorf("address %q, want %q", got, want)
		}
		if d.String(64) == "" {
			t.Error("no owner")
		}
	}
	if d.Bool() || d.Err() != nil {
		t.Error("the list does not end")
	}
	if now := c.Call(portmap.Number, 3, 6, nil).Uint32(); time.Since(time.Unix(int64(now), 0)).Abs() > time.Hour {
		t.Errorf("GETTIME %d", now)
	}
}

func mapping(program, version, protocol, port uint32) []byte {
	var e xdr.Encoder
	for _, v := range []uint32{program, version, protocol, port} {
		e.Uint32(v)
	}
	return e.Bytes()
}

func TestSetAndUnset(t *testing.T) {
	c := rpctest.Dial(t, serve(t, portmap.NewMap(), "tcp", "127.0.0.1:0"))
	call := func(procedure uint32, args []byte) uint32 {
		t.Helper()
		return c.Call(portmap.Number, 2, procedure, args).Uint32()
	}
	const set, unset, getport = 1, 2, 3
	if call(set, mapping(77, 1, 6, 4711)) != 1 || call(set, mapping(77, 1, 6, 4712)) != 0 {
		t.Error("SET enters twice, or not at all")
	}
	if call(set, mapping(77, 1, 17, 4713)) != 1 || call(set, mapping(77, 2, 99, 1)) != 0 || call(set, mapping(77, 3, 6, 1<<16)) != 0 {
		t.Error("SET takes what it should not, or refuses what it should")
	}
	if got := call(getport, mapping(77, 1, 6, 0)); got != 4711 {
		t.Errorf("port %d", got)
	}
	if call(unset, mapping(77, 1, 0, 0)) != 1 || call(unset, mapping(77, 1, 0, 0)) != 0 {
		t.Error("UNSET takes out twice, or not at all")
	}
	if got := call(getport, mapping(77, 1, 17, 0)); got != 0 {
		t.Errorf("port %d after UNSET", got)
	}
	for i := range uint32(1000) {
		call(set, mapping(i, 1, 6, 1))
	}
	if got := call(getport, mapping(999, 1, 6, 0)); got != 0 {
		t.Error("callers may fill the memory")
	}
}

func TestDatagramsGetTheirAddress(t *testing.T) {
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := portmap.NewMap(services...)
	run(t, func(ctx context.Context) error { return server(m).ServePacket(ctx, pc) })
	c, err := net.Dial("udp", pc.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	call := unhex(t, "00000001 00000000 00000002 000186a0 00000002 00000003 00000000 00000000 00000000 00000000"+
		"000186a5 00000003 00000006 00000000")
	if _, err := c.Write(call); err != nil {
		t.Fatal(err)
	}
	c.SetReadDeadline(time.Now().Add(time.Minute))
	buf := make([]byte, 100)
	n, err := c.Read(buf)
	if want := unhex(t, "00000001 00000001 00000000 00000000 00000000 00000000 00000801"); err != nil || !bytes.Equal(buf[:n], want) {
		t.Errorf("got % x, %v", buf[:n], err)
	}
}

// Services are entered at the system's rpcbind, and taken out again. It is played by a Map
// behind a socket of its own.
func TestRegister(t *testing.T) {
	m := portmap.NewMap()
	r := portmap.Rpcbind{Network: "tcp", Address: serve(t, m, "tcp", "127.0.0.1:0")}
	ours := services[:2]
	if err := r.Register(t.Context(), ours); err != nil {
		t.Fatal(err)
	}
	c := rpctest.Dial(t, r.Address)
	port := func() uint32 {
		return c.Call(portmap.Number, 2, 3, mapping(nfsProgram, 3, 6, 0)).Uint32()
	}
	if got := port(); got != 2049 {
		t.Errorf("port %d", got)
	}
	// What a run left that was killed is replaced: nobody listens there any more.
	moved := []portmap.Service{{Program: nfsProgram, Version: 3, Netid: portmap.TCP, Port: free(t)}}
	left := portmap.NewMap(portmap.Service{Program: nfsProgram, Version: 3, Netid: portmap.TCP, Port: free(t)})
	again := portmap.Rpcbind{Network: "tcp", Address: serve(t, left, "tcp", "127.0.0.1:0")}
	if err := again.Register(t.Context(), moved); err != nil {
		t.Error(err)
	}
	if err := r.Unregister(t.Context(), ours); err != nil {
		t.Fatal(err)
	}
	if got := port(); got != 0 {
		t.Errorf("port %d after Unregister", got)
	}
}

// Another NFS server that answers is not pushed aside.
func TestRegisterLeavesOthersAlone(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	theirs := portmap.Service{Program: mountProgram, Version: 3, Netid: portmap.TCP, Port: uint16(l.Addr().(*net.TCPAddr).Port)}
	r := portmap.Rpcbind{Network: "tcp", Address: serve(t, portmap.NewMap(theirs), "tcp", "127.0.0.1:0")}
	err = r.Register(t.Context(), services[:2])
	if !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
		t.Errorf("got %v", err)
	}
	c := rpctest.Dial(t, r.Address)
	if got := c.Call(portmap.Number, 2, 3, mapping(nfsProgram, 3, 6, 0)).Uint32(); got != 0 {
		t.Errorf("half of it stays registered: port %d", got)
	}
}

// rpcbind's own socket takes registrations, too.
func TestRegisterAtASocket(t *testing.T) {
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
		reply := append(append(call[:4:4], unhex(t, "00000001 00000000 00000000 00000000 00000000")...), 0, 0, 0, 1)
		_, _ = c.Write(rpctest.Record(reply))
	}()
	if err := r.Register(t.Context(), services[:1]); err != nil {
		t.Fatal(err)
	}
	call := <-got
	want := unhex(t, "00000000 00000002 000186a0 00000004 00000001 00000000 00000000 00000000 00000000"+ // RPCBPROC_SET of version 4
		"000186a3 00000003 00000003 74637000"+"0000000b 302e302e302e302e382e3100"+ // NFS 3, tcp, 0.0.0.0.8.1
		"00000006 646563616d700000") // decamp
	if !bytes.Equal(call[4:], want) {
		t.Errorf("called with % x, want % x", call[4:], want)
	}
}

func TestRegisterWithoutRpcbind(t *testing.T) {
	r := portmap.Rpcbind{Network: "unix", Address: filepath.Join(t.TempDir(), "absent")}
	if err := r.Register(t.Context(), services[:1]); !fault.Is(err, fault.Unreachable) || fault.HintOf(err) == "" {
		t.Errorf("got %v", err)
	}
}

// free returns a port that nobody listens at.
func free(t *testing.T) uint16 {
	t.Helper()
	addr, err := netip.ParseAddrPort(loopback.Reserve(t))
	if err != nil {
		t.Fatal(err)
	}
	return addr.Port()
}

// FuzzCalls answers any arguments of any procedure.
func FuzzCalls(f *testing.F) {
	for version := uint32(2); version <= 4; version++ {
		for procedure := range uint32(12) {
			f.Add(version, procedure, mapping(nfsProgram, 3, 6, 2049))
			f.Add(version, procedure, append(mapping(nfsProgram, 3, 3, 0x74637000), mapping(5, 0x302e302e, 0x302e302e, 0)...))
		}
	}
	addr := serve(f, portmap.NewMap(services...), "tcp", "127.0.0.1:0")
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
