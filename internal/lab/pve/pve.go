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
	Dir      string        // an empty folder for all that it keeps
	Node     string        // its name; pve1 if empty
	Version  string        // "8.4.1" if empty
	Storages []Storage     // local and local-lvm if nil
	Tokens   []Token       // one that may do all if nil
	Networks []Network     // bridges vmbr0 to vmbr3 if nil
	Offline  []string      // nodes of its cluster that are down
	Skew     time.Duration // how far its clock is ahead
	NextID   int           // the first VMID that it gives; 100 if 0

	RegisteredTags []string // tags that require Sys.Modify on the cluster
}

// Server is the node.
type Server struct {
	config      Config
	http        *http.Server
	listener    net.Listener
	fingerprint string
	work        sync.WaitGroup  // tasks, and the listener
	alive       context.Context // until Close
	stop        context.CancelFunc

	mu       sync.Mutex
	guests   map[int]*guest
	tasks    []*task
	faults   Faults
	sshd     []*SSH
	requests []Request
}

// Request is one that the node got, as far as a test wants to know of it.
type Request struct {
	Method string
	Path   string              // below /api2/json
	Form   map[string][]string // its parameters; none of an upload
}

// Start starts the node at a free port of the loopback interface.
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

// Close stops guests, tasks and the listener, and waits for them.
func (s *Server) Close() {
	s.stop()
	for _, d := range s.sshd {
		d.Close()
	}
	_ = s.http.Close()
	s.work.Wait()
}

// URL is where it answers.
func (s *Server) URL() string { return "https://" + s.listener.Addr().String() }

// Fingerprint is the SHA-256 of its certificate, as AA:BB:….
func (s *Server) Fingerprint() string { return s.fingerprint }

// Node is its name.
func (s *Server) Node() string { return s.config.Node }

// Token is the first token, as a client sends it.
func (s *Server) Token() string { return s.config.Tokens[0].String() }

// VMIDs lists the guests, in order.
func (s *Server) VMIDs() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sortedVMIDs()
}

func (s *Server) sortedVMIDs() []int {
	var ids []int
	for id := range s.guests {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// Guest returns the configuration of a guest; nil if it does not exist.
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

// Uploads lists the files that were uploaded and are there.
func (s *Server) Uploads() []string {
	found, _ := filepath.Glob(filepath.Join(s.config.Dir, "*", "import", "*"))
	temporary, _ := filepath.Glob(filepath.Join(s.config.Dir, "tmp", "pveupload-*"))
	return append(found, temporary...)
}

// Requests lists what the node was asked, in order.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Serial is the file that what a guest writes to its serial port goes to.
func (s *Server) Serial(vmid int) string {
	return filepath.Join(s.config.Dir, fmt.Sprintf("serial-%d.log", vmid))
}
