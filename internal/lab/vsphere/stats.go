package vsphere

import (
	"maps"
	"net/http"
	"sync"

	"github.com/decamp/decamp/internal/lab/nfchost"
)

// maxPaths bounds the memory that requests for ever new paths can take.
const maxPaths = 10_000

// Stats counts the requests to the lab and the data sent.
type Stats struct {
	Conns        int64                `json:"conns"`        // TLS connections accepted
	ConnsRefused int64                `json:"connsRefused"` // reset above the limit
	ConnsPeak    int64                `json:"connsPeak"`    // most at a time
	Requests     int64                `json:"requests"`     // HTTP requests of every kind
	BodyBytes    int64                `json:"bodyBytes"`    // bytes of files sent, without heads and TLS
	Status       map[int]int64        `json:"status"`       // /folder replies by status
	SOAP         map[string]int64     `json:"soap"`         // SOAP calls by method
	REST         map[string]int64     `json:"rest"`         // calls to the tagging service by operation
	VimCmd       map[string]int64     `json:"vimCmd"`       // calls of vim-cmd by command, for all hosts
	Paths        map[string]PathStats `json:"paths"`        // counters by decoded URL path
	SSHRefused   int64                `json:"sshRefused"`   // logins by SSH with a password that was refused
	NFC          nfchost.Stats        `json:"nfc"`          // counters of all hosts
}

// PathStats is what happened to one path.
type PathStats struct {
	Methods map[string]int64 `json:"methods"` // requests by HTTP method
	Bytes   int64            `json:"bytes"`
}

// counters is Stats while it grows.
type counters struct {
	mu sync.Mutex
	s  Stats
}

func newCounters() *counters {
	c := &counters{}
	c.reset()
	return c
}

func (c *counters) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	open := c.s.NFC.SessionsOpen // open sessions continue
	c.s = Stats{Status: map[int]int64{}, SOAP: map[string]int64{}, REST: map[string]int64{}, VimCmd: map[string]int64{}, Paths: map[string]PathStats{}}
	c.s.NFC.SessionsOpen, c.s.NFC.SessionsPeak = open, open
}

func (c *counters) snapshot() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.s
	s.Status, s.SOAP, s.REST, s.VimCmd, s.Paths = maps.Clone(s.Status), maps.Clone(s.SOAP), maps.Clone(s.REST), maps.Clone(s.VimCmd), maps.Clone(s.Paths)
	for path, p := range s.Paths {
		p.Methods = maps.Clone(p.Methods)
		s.Paths[path] = p
	}
	return s
}

func (c *counters) acceptConn(open int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.s.Conns++
	c.s.ConnsPeak = max(c.s.ConnsPeak, open)
}

func (c *counters) refuseConn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.s.ConnsRefused++
}

func (c *counters) countRequest(r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.s.Requests++
	p, known := c.s.Paths[r.URL.Path]
	if !known {
		if len(c.s.Paths) >= maxPaths {
			return
		}
		p.Methods = map[string]int64{}
	}
	p.Methods[r.Method]++
	c.s.Paths[r.URL.Path] = p
}

func (c *counters) countSent(path string, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.s.BodyBytes += n
	if p, known := c.s.Paths[path]; known {
		p.Bytes += n
		c.s.Paths[path] = p
	}
}

// countReply counts a /folder reply; 0 is a connection broken before any.
func (c *counters) countReply(status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.s.Status[status]++
}

func (c *counters) countSOAP(method string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.s.SOAP[method]++
}

func (c *counters) countREST(operation string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.s.REST[operation]++
}

func (c *counters) countVimCmd(command string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.s.VimCmd[command]++
}

// nfc changes the counters of NFC.
func (c *counters) countRefusedSSH() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.s.SSHRefused++
}

func (c *counters) countNFC(change func(*nfchost.Stats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.s.NFC)
}
