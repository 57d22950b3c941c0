package export

import (
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/fault"
)

// Clients get a name that they can verify and a port that they can reach.
func TestURIs(t *testing.T) {
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	secure := &tls.Config{}
	for listen, want := range map[string]string{"localhost:0": "nbds://localhost:", "127.0.0.1:0": "nbds://127.0.0.1:", ":0": "nbds://" + name + ":"} {
		p := &place{tls: secure}
		if err := p.listenTCP(Address{Listen: listen}); err != nil {
			t.Fatalf("%s: %v", listen, err)
		}
		_, port, err := net.SplitHostPort(p.listener.Addr().String())
		if got := p.uri("disk-2000"); err != nil || got != want+port+"/disk-2000" {
			t.Errorf("%s: %s, want %s%s, %v", listen, got, want, port, err)
		}
		if err := p.close(); err != nil {
			t.Error(err)
		}
	}
	p := &place{socket: "/run/a b/nbd.sock"}
	if got := p.uri("disk-1"); got != "nbd+unix:///disk-1?socket=/run/a%20b/nbd.sock" {
		t.Errorf("got URI %s", got)
	}
}

// A socket without a server is replaced. Another file is kept.
func TestOldSocketIsReplaced(t *testing.T) {
	dir, err := os.MkdirTemp("", "nbd-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, socketName)
	old, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openPlace(Address{Socket: dir}); !fault.Is(err, fault.Conflict) {
		t.Errorf("a socket in use: %v", err)
	}
	old.SetUnlinkOnClose(false)
	old.Close() // leaves the socket, as a killed server does
	p, err := openPlace(Address{Socket: dir})
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the socket has mode %v, want 0600; %v", st.Mode(), err)
	}
	if err := p.close(); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openPlace(Address{Socket: dir}); err == nil || !strings.Contains(err.Error(), "listen on") {
		t.Errorf("a file at the place of the socket: %v", err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "mine" {
		t.Errorf("the file contains %q, %v; want it unchanged", text, err)
	}
}
