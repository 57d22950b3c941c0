package pve

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// Config describes the node. The zero value, with a Dir, is a node pve1 of 8.4 with a storage local of
// files, a storage local-lvm of block devices, and one token with all privileges.
type Config struct {
	Dir      string        // empty folder for all files of the node
	Node     string        // name of the node; pve1 if empty
	Version  string        // version of Proxmox VE; 8.4.1 if empty
	Storages []Storage     // storages of the node; local and local-lvm if nil
	Tokens   []Token       // API tokens; one with all privileges if nil
	Networks []Network     // networks of the node; bridges vmbr0 to vmbr3 if nil
	Offline  []string      // other nodes of the cluster, which are down
	Skew     time.Duration // how far the node's clock is ahead of this machine's
	NextID   int           // lowest VMID that /cluster/nextid returns; 100 if 0

	RegisteredTags []string // tags that require Sys.Modify on the cluster
}

// Server is the emulated node: its API over HTTPS, its storages in a folder, and its running guests.
// Its methods may be called concurrently.
type Server struct {
	config      Config             // configuration with defaults; read-only after Start
	http        *http.Server       // API server; ends by Close
	listener    net.Listener       // TLS listener on a free port of 127.0.0.1
	fingerprint string             // SHA-256 of the certificate, hex pairs with colons
	work        sync.WaitGroup     // tasks, and the listener
	alive       context.Context    // until Close
	stop        context.CancelFunc // ends alive

	mu       sync.Mutex     // guards the fields below and the fields of guests
	guests   map[int]*guest // guests by VMID
	tasks    []*task        // all tasks since Start, oldest first
	faults   Faults         // simulated failures; counters in it decrease
	sshd     []*SSH         // SSH servers, which Close ends
	requests []Request      // authenticated requests, oldest first
}

// Request is a request that the node received, for assertions of tests.
type Request struct {
	Method string              // HTTP method
	Path   string              // escaped path below /api2/json
	Form   map[string][]string // parameters of query and body; empty for an upload
}

// Start starts the node on a free port of the loopback interface.
func Start(c Config) (*Server, error) {
	c.Node, c.Version = cmp.Or(c.Node, "pve1"), cmp.Or(c.Version, "8.4.1")
	if c.Storages == nil {
		c.Storages = []Storage{
			{ID: "local", Type: "dir", Content: []string{"iso", "vztmpl", "backup", "images", "import"}, Size: 8 << 30},
			{ID: "local-lvm", Type: "lvmthin", Content: []string{"images", "rootdir"}, Size: 8 << 30},
		}
	}
	if c.Networks == nil {
		c.Networks = []Network{{Name: "vmbr0"}, {Name: "vmbr1"}, {Name: "vmbr2"}, {Name: "vmbr3"}}
	}
	if c.Tokens == nil {
		c.Tokens = []Token{{User: "root@pam", ID: "decamp", Secret: "11111111-2222-3333-4444-555555555555", ACL: ACL{"/": All()}}}
	}
	pair, fingerprint, err := newCertificate(c.Node)
	if err != nil {
		return nil, err
	}
	s := &Server{config: c, fingerprint: fingerprint, guests: map[int]*guest{}}
	s.alive, s.stop = context.WithCancel(context.Background())
	if err := s.makeStorages(); err != nil {
		return nil, err
	}
	// HTTP/1.1 and no other, as pveproxy.
	s.listener, err = tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}})
	if err != nil {
		return nil, err
	}
	s.http = &http.Server{Handler: s, ErrorLog: log.New(io.Discard, "", 0)}
	s.work.Go(func() { _ = s.http.Serve(s.listener) }) // ends by Close
	return s, nil
}

// makeStorages creates the folders of the storages, and tmp for uploads in progress.
func (s *Server) makeStorages() error {
	for _, st := range s.config.Storages {
		for _, folder := range []string{"images", "import"} {
			if err := os.MkdirAll(filepath.Join(s.config.Dir, st.ID, folder), 0o755); err != nil {
				return err
			}
		}
	}
	return os.MkdirAll(filepath.Join(s.config.Dir, "tmp"), 0o755)
}

// Close ends guests, tasks, SSH servers and the listener, and waits for them.
func (s *Server) Close() {
	s.stop()
	for _, d := range s.sshd {
		d.Close()
	}
	_ = s.http.Close()
	s.work.Wait()
}

// URL returns the base URL of the API: https://127.0.0.1:PORT.
func (s *Server) URL() string { return "https://" + s.listener.Addr().String() }

// Fingerprint returns the SHA-256 of the node's certificate, as AA:BB:….
func (s *Server) Fingerprint() string { return s.fingerprint }

// Node returns the node's name.
func (s *Server) Node() string { return s.config.Node }

// Token returns the first token in the form of the Authorization header: user@realm!id=secret.
func (s *Server) Token() string { return s.config.Tokens[0].String() }

// VMIDs lists the guests in ascending order.
func (s *Server) VMIDs() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sortedVMIDs()
}

// sortedVMIDs implements VMIDs. mu must be held.
func (s *Server) sortedVMIDs() []int {
	var ids []int
	for id := range s.guests {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// Guest returns a copy of a guest's configuration; nil if the guest does not exist.
func (s *Server) Guest(vmid int) map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.guests[vmid]; g != nil {
		return g.apiConfig()
	}
	return nil
}

// AddGuest creates a guest of another user.
func (s *Server) AddGuest(vmid int, config map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.guests[vmid] = newGuest(vmid, config)
}

// Uploads lists the files of uploads on all storages, and those in progress.
func (s *Server) Uploads() []string {
	found, _ := filepath.Glob(filepath.Join(s.config.Dir, "*", "import", "*"))
	temporary, _ := filepath.Glob(filepath.Join(s.config.Dir, "tmp", "pveupload-*"))
	return append(found, temporary...)
}

// Requests returns a copy of the list of requests, oldest first.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Serial returns the file that receives the output of a guest's serial port.
func (s *Server) Serial(vmid int) string {
	return filepath.Join(s.config.Dir, fmt.Sprintf("serial-%d.log", vmid))
}
