package nfs

import (
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
)

func TestPortOwnerIsReported(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "[::]:0"} {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Skip("no listener:", err)
		}
		if who := PortOwner(l.Addr().String()); !strings.HasSuffix(who, "(process "+strconv.Itoa(os.Getpid())+")") {
			t.Errorf("owner of %s is %q, want this process", l.Addr(), who)
		}
		addr := l.Addr().String()
		l.Close()
		if who := PortOwner(addr); strings.HasSuffix(who, "(process "+strconv.Itoa(os.Getpid())+")") {
			t.Errorf("owner of the free port %s is %q, want another or none", addr, who)
		}
	}
	for _, addr := range []string{"", "nonsense", "127.0.0.1:http", "127.0.0.1:99999"} {
		if who := PortOwner(addr); who != "" {
			t.Errorf("owner of %q is %q, want none", addr, who)
		}
	}
}

func TestListeningSockets(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:0801 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 101 1 0 100 0 0 10 0
   1: 0100007F:0801 0100007F:9C4A 01 00000000:00000000 00:00000000 00000000     0        0 102 1 0 100 0 0 10 0
   2: 0100007F:006F 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 103 1 0 100 0 0 10 0
   3: short line
`
	if got := listeningInodes([]byte(table), 2049); len(got) != 1 || got[0] != "101" {
		t.Errorf("inodes on 2049: %v, want 101", got)
	}
	if got := listeningInodes([]byte(table), 111); len(got) != 1 || got[0] != "103" {
		t.Errorf("inodes on 111: %v, want 103", got)
	}
}
