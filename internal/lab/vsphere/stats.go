package vsphere

import (
	"maps"
	"net/http"
	"sync"

	"github.com/decamp/decamp/internal/lab/nfchost"
)

// maxPaths limits the memory for counters of paths.
const maxPaths = 10_000

// Stats counts the requests to the emulator and the data it sent.
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

// PathStats counts the requests for one path.
type PathStats struct {
	Methods map[string]int64 `json:"methods"` // requests by HTTP method
	Bytes   int64            `json:"bytes"`   // bytes of files sent
}

// counters are the current Stats.
type counters struct {
	mu sync.Mutex // guards s
	s  Stats      // current values
}

// newCounters returns counters of zero.
func newCounters() *counters {
	c := &counters{}
	c.reset()
	return c
}

// reset sets all counters to zero, except that of open NFC sessions.
func (c *counters) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	open := c.s.NFC.SessionsOpen // open sessions continue
	c.s = Stats{Status: map[int]int64{}, SOAP: map[string]int64{}, REST: map[string]int64{}, VimCmd: map[string]int64{}, Paths: map[string]PathStats{}}
	c.s.NFC.SessionsOpen, c.s.NFC.SessionsPeak = open, open
}

// snapshot returns a deep copy of the counters.
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

// acceptConn counts a connection; open is the number of open ones.
func (c *counters) acceptConn(open int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.s.Conns++
	c.s.ConnsPeak = max(c.s.ConnsPeak, open)
}

// refuseConn counts a connection above the limit.
func (c *counters) refuseConn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.s.ConnsRefused++
}

// countRequest counts an HTTP request. Beyond maxPaths, new paths are not counted.
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

// countSent counts n bytes of a file.
func (c *counters) countSent(path string, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.s.BodyBytes += n
	if p, known := c.s.Paths[path]; known {
		p.Bytes += n
		c.s.Paths[path] = p
	}
}

// countReply counts a /folder reply; status 0 is a connection that broke before the reply.
func (c *counters) countReply(status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.s.Status[status]++
}

// countSOAP counts a SOAP call.
func (c *counters) countSOAP(method string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.s.SOAP[method]++
}

// countREST counts a call of the tagging service.
func (c *counters) countREST(operation string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.s.REST[operation]++
}

// countVimCmd counts a call of vim-cmd.
func (c *counters) countVimCmd(command string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.s.VimCmd[command]++
}

// countRefusedSSH counts a rejected password.
func (c *counters) countRefusedSSH() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.s.SSHRefused++
}

// countNFC runs change on the counters of NFC.
func (c *counters) countNFC(change func(*nfchost.Stats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.s.NFC)
}
