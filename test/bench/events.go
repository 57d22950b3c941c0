package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/server"
	"github.com/decamp/decamp/internal/server/servertest"
)

const (
	eventVMs       = 10_000           // number of VMs in the plan
	eventTransfers = 200              // number of running transfers
	eventTime      = 20 * time.Second // duration of each measurement
	eventClients   = 1000             // number of clients in the last measurement
	oldestEvent    = 1.0              // limit of an event's age at a client, in seconds
	mostEventCPU   = 2.0              // limit of the additional processor time for one client, in percent of a core
)

// eventFigures measures the event stream of a server whose plan has 10,000 VMs, 200 of
// which transfer: the age of events at clients, and the processor time for sending
// them.
func eventFigures(ctx context.Context, b *bench) error {
	s, err := startEvents(ctx, filepath.Join(b.dir, "events"))
	if err != nil {
		return err
	}
	defer s.stop()
	alone, err := s.measureEvents(ctx, 0)
	if err != nil {
		return err
	}
	one, err := s.measureEvents(ctx, 1)
	if err != nil {
		return err
	}
	many, err := s.measureEvents(ctx, eventClients)
	if err != nil {
		return err
	}
	b.addRow(Row{Figure: "processor of the server with 200 reported transfers and no client", Value: alone.cpu, Unit: "% of a core"})
	b.atMost(oldestEvent, Row{Figure: "a browser with 200 live transfers: oldest event", Value: one.oldest, Unit: "s", Note: one.describeAges()})
	b.atMost(mostEventCPU, Row{Figure: "a browser with 200 live transfers: processor, in addition to no client", Value: one.cpu - alone.cpu, Unit: "% of a core",
		Note: fmt.Sprintf("%.1f %% with it", one.cpu)})
	b.atMost(oldestEvent, Row{Figure: "1,000 clients with 200 live transfers: oldest event, 99 of 100", Value: many.p99, Unit: "s",
		Note: many.describeAges() + "; the clients share the machine"})
	b.addRow(Row{Figure: "1,000 clients with 200 live transfers: processor of the server", Value: many.cpu, Unit: "% of a core",
		Note: fmt.Sprintf("%.0f MiB resident, %d clients dropped", float64(many.resident)/(1<<20), many.dropped)})
	return nil
}

// eventFacts is the output of the server's process: once after its start, then for each
// input line.
type eventFacts struct {
	URL      string  `json:"url,omitempty"`   // address of the API; only at the start
	Token    string  `json:"token,omitempty"` // token with the role view; only at the start
	CPU      float64 `json:"cpu"`             // seconds until now
	Resident int64   `json:"resident"`        // resident memory in bytes
}

// eventServer is the process of the server.
type eventServer struct {
	eventFacts
	cmd   *exec.Cmd      // running process
	stdin io.WriteCloser // a line requests the usage; closing it ends the process
	said  *bufio.Reader  // output of the process
}

// startEvents starts the server with an empty state in dir.
func startEvents(ctx context.Context, dir string) (*eventServer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	s := &eventServer{cmd: exec.CommandContext(ctx, self, "child", "events", dir)}
	s.cmd.Stderr = os.Stderr
	if s.stdin, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s.said = bufio.NewReader(out)
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	if err := s.readFacts(&s.eventFacts); err != nil {
		s.stop()
		return nil, fmt.Errorf("start the server: %w", err)
	}
	return s, nil
}

// stop ends the server and waits.
func (s *eventServer) stop() {
	s.stdin.Close()
	_ = s.cmd.Wait() // the process ends when its input is closed; its errors are on stderr
}

// readFacts reads the next line of the output.
func (s *eventServer) readFacts(f *eventFacts) error {
	line, err := s.said.ReadBytes('\n')
	if err != nil {
		return err
	}
	return json.Unmarshal(line, f)
}

// readUsage returns the processor time and memory that the server has used so far.
func (s *eventServer) readUsage() (f eventFacts, err error) {
	if _, err := io.WriteString(s.stdin, "\n"); err != nil {
		return f, err
	}
	return f, s.readFacts(&f)
}

// eventStats is the result of a measurement with some clients.
type eventStats struct {
	cpu         float64 // percent of a core
	resident    int64   // resident memory of the server in bytes
	events      int     // number of events at all clients
	oldest, p99 float64 // ages in seconds: the largest, and the 99th percentile
	dropped     int     // clients whose stream ended early
}

// describeAges returns the ages for the note of a row.
func (f eventStats) describeAges() string {
	return fmt.Sprintf("%d events, 99 of 100 within %.2f s, the oldest %.2f s", f.events, f.p99, f.oldest)
}

// measureEvents connects clients, each with a separate connection, and measures for
// eventTime. clients may be 0.
func (s *eventServer) measureEvents(ctx context.Context, clients int) (f eventStats, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	seen := make([]eventClient, clients)
	for i := range seen {
		all.Go(func() { seen[i].followEvents(ctx, s) })
	}
	waitFor(ctx, eventTime/4) // wait until all clients are connected and have received the earlier events
	before, err := s.readUsage()
	if err != nil {
		return f, err
	}
	for i := range seen {
		seen[i].startMeasuring()
	}
	began := time.Now()
	waitFor(ctx, eventTime)
	after, err := s.readUsage()
	took := time.Since(began).Seconds()
	cancel()
	all.Wait()
	f = addUp(seen)
	f.cpu, f.resident = 100*(after.CPU-before.CPU)/took, after.Resident
	if err == nil && clients > 0 && f.events == 0 {
		err = errors.New("no client received an event")
	}
	return f, err
}

// waitFor waits for a time, or until ctx ends.
func waitFor(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// addUp combines the results of clients, which must have ended.
func addUp(seen []eventClient) (f eventStats) {
	var ages []float64
	for i := range seen {
		ages = append(ages, seen[i].ages...)
		if seen[i].broke {
			f.dropped++
		}
	}
	f.events = len(ages)
	if f.events == 0 {
		return f
	}
	slices.Sort(ages)
	// The ages are sorted, so the last one is the largest.
	f.oldest, f.p99 = ages[len(ages)-1], ages[len(ages)*99/100]
	return f
}

// eventClient is one client with the ages of the events that it received.
type eventClient struct {
	mu    sync.Mutex // protects the fields below
	ages  []float64  // ages in seconds
	count bool       // true while ages are recorded
	broke bool       // true if the stream ended before the measurement
}

// startMeasuring makes the client record ages from now on.
func (c *eventClient) startMeasuring() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count = true
}

// followEvents reads the stream until ctx ends, and records an early end.
func (c *eventClient) followEvents(ctx context.Context, s *eventServer) {
	err := c.readStream(ctx, s)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broke = ctx.Err() == nil
	if c.broke {
		fmt.Fprintln(os.Stderr, "  client:", err)
	}
}

// readStream reads events of the server until an error.
func (c *eventClient) readStream(ctx context.Context, s *eventServer) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/v1/events", nil)
	if err != nil {
		return err
	}
	// Each client logs in with the token of the role view, like a browser.
	req.Header.Set("Authorization", "Bearer "+s.Token)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	// Only the start of an event is needed: longer lines are read in parts.
	lines := bufio.NewReaderSize(resp.Body, 64<<10)
	progress := false
	for {
		line, err := lines.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
		switch {
		case bytes.HasPrefix(line, []byte("event: ")):
			progress = bytes.HasPrefix(line, []byte("event: progress"))
		case progress && bytes.HasPrefix(line, []byte("data: ")):
			c.recordAge(line)
		}
	}
}

// recordAge records the age of an event's first transfer. All transfers of an event
// have the same time.
func (c *eventClient) recordAge(line []byte) {
	_, rest, found := bytes.Cut(line, []byte(`"at":"`))
	text, _, _ := bytes.Cut(rest, []byte(`"`))
	at, err := time.Parse(time.RFC3339Nano, string(text))
	if !found || err != nil {
		return
	}
	age := time.Since(at).Seconds()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count {
		c.ages = append(c.ages, age)
	}
}

// childEvents runs the server, and a worker that reports 200 transfers each second. It
// prints its usage for each input line, and ends with its input.
func childEvents(ctx context.Context, args []string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f, err := servertest.New(ctx, args[0], nil)
	if err != nil {
		return err
	}
	if err := f.Plan(ctx, "bench", eventVMs); err != nil {
		return err
	}
	claims, err := f.Run(ctx, "bench", 1, eventTransfers)
	if err != nil {
		return err
	}
	go func() {
		for part := int64(0); ctx.Err() == nil; part = (part + 1) % 100 {
			if err := f.Report(ctx, claims, part); err != nil && ctx.Err() == nil {
				fmt.Fprintln(os.Stderr, "report:", err)
			}
			waitFor(ctx, time.Second)
		}
	}()
	facts := eventFacts{URL: f.URL, Token: f.Tokens[server.View]}
	out, orders := json.NewEncoder(os.Stdout), bufio.NewScanner(os.Stdin)
	for more := true; more; more = orders.Scan() {
		facts.CPU, facts.Resident = cpuSeconds(), residentBytes()
		if err := out.Encode(facts); err != nil {
			return err
		}
	}
	return nil // the process ends with its server
}

// residentBytes returns VmRSS of this process in bytes, or 0 if it cannot be read.
func residentBytes() int64 {
	var kib int64
	if _, err := fmt.Sscan(readField("/proc/self/status", "VmRSS"), &kib); err != nil {
		return 0
	}
	return kib << 10
}
