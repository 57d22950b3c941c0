package nfs_test

import (
	"context"
	"net"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/nfs"
	"github.com/decamp/decamp/internal/nfs/rpctest"
)

// A client mounts as ESXi does: it gets the port of MOUNT from the port mapper and a handle from MOUNT.
func TestRunWithPortmap(t *testing.T) {
	r := newRig(t, nil)
	s, err := nfs.New(nfs.Options{Exports: r.opts.Exports})
	if err != nil {
		t.Fatal(err)
	}
	l, err := nfs.Listen(t.Context(), nfs.Ports{NFS: "127.0.0.1:0", Portmap: "127.0.0.1:0"})
	for fault.Is(err, fault.Conflict) { // the port is free for TCP but in use for UDP
		l, err = nfs.Listen(t.Context(), nfs.Ports{NFS: "127.0.0.1:0", Portmap: "127.0.0.1:0"})
	}
	if err != nil {
		t.Fatal(err)
	}
	mapper, port := l.Portmap.Addr().String(), l.NFS.Addr().(*net.TCPAddr).Port
	ended := make(chan error, 1)
	go func() { ended <- s.Run(context.Background(), l) }()
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if _, err := net.Dial("tcp", mapper); err == nil {
			t.Error("the port mapper still answers")
		}
	}()
	c := rpctest.Dial(t, mapper)
	for _, program := range []int{100003, 100005} {
		if got := c.Call(100000, 2, 3, args(program, 3, 6, 0)).Uint32(); int(got) != port {
			t.Errorf("program %d has port %d, want %d", program, got, port)
		}
	}
	nc, err := net.Dial("udp", l.PortmapUDP.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if l.PortmapUDP.LocalAddr().(*net.UDPAddr).Port != l.Portmap.Addr().(*net.TCPAddr).Port {
		t.Error("TCP and UDP have different ports")
	}
	d := rpctest.Dial(t, l.NFS.Addr().String()).Call(100005, 3, 1, args("/land"))
	if stat := d.Uint32(); stat != 0 {
		t.Errorf("MNT: status %d, want 0", stat)
	}
}

func TestUsedPortsAreReportedWithOwner(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = nfs.Listen(t.Context(), nfs.Ports{NFS: l.Addr().String(), Portmap: nfs.NoPortmap})
	if !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "nfs.test (process ") || fault.HintOf(err) == "" {
		t.Errorf("got error %v (hint %q), want Conflict with the process", err, fault.HintOf(err))
	}
	_, err = nfs.Listen(t.Context(), nfs.Ports{NFS: "192.0.2.1:2049", Portmap: nfs.NoPortmap})
	if !fault.Is(err, fault.Unreachable) || fault.HintOf(err) == "" {
		t.Errorf("got error %v, want Unreachable and a hint", err)
	}
}
