package trace

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"
)

const (
	maxQueue    = 2048            // spans that wait
	maxBatch    = 512             // spans in one request
	batchTime   = 5 * time.Second // longest wait for a full batch
	firstPause  = time.Second     // pause after the first failure; each further one doubles it
	maxPause    = time.Minute     // longest pause after failures
	closeTime   = 5 * time.Second // time limit of close
	maxResponse = 64 << 10        // bytes of a response that are read
)

// An exporter sends spans to a collector in a goroutine. It is safe for concurrent use.
type exporter struct {
	config  config        // endpoint and headers
	version string        // release of decamp
	log     *slog.Logger  // receives one warning for each outage of the collector
	pause   time.Duration // firstPause; tests set a shorter one
	batch   time.Duration // batchTime; tests set a shorter one

	full    chan struct{}      // has a value when a batch is full
	stop    context.CancelFunc // ends run
	closing chan struct{}      // closed by close: the last batches are sent without waiting
	ended   sync.WaitGroup     // run

	mu      sync.Mutex // guards the fields below
	queue   []span     // spans that wait, the oldest first
	dropped int64      // spans that were dropped since the last report
	down    bool       // the collector did not accept the last request
}

// newExporter returns an exporter. close must be called.
func newExporter(c config, version string, log *slog.Logger) *exporter {
	return &exporter{config: c, version: version, log: log, pause: firstPause, batch: batchTime, full: make(chan struct{}, 1), closing: make(chan struct{})}
}

// start starts the goroutine.
func (x *exporter) start() {
	ctx, stop := context.WithCancel(context.Background())
	x.stop = stop
	x.ended.Go(func() { x.run(ctx) })
}

// add queues a span. If the queue is full, it drops the span.
func (x *exporter) add(s span) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.queue) >= maxQueue {
		x.dropped++
		return
	}
	x.queue = append(x.queue, s)
	if len(x.queue) >= maxBatch {
		select {
		case x.full <- struct{}{}:
		default: // a batch is full already
		}
	}
}

// run sends batches until close has sent the last one, or ctx ends.
func (x *exporter) run(ctx context.Context) {
	failures := 0
	for {
		last := x.waitForBatch(ctx)
		for batch := x.take(); len(batch) > 0; batch = x.take() {
			for {
				last = last || x.isClosing()
				again, err := x.send(ctx, batch)
				x.report(err, len(batch), again)
				if err == nil || !again {
					failures = 0
					break
				}
				failures++
				if last || ctx.Err() != nil {
					x.count(int64(len(batch)))
					return
				}
				x.waitAfter(ctx, failures)
			}
		}
		if last || ctx.Err() != nil {
			return
		}
	}
}

// waitForBatch returns when a batch is due. It returns true if no further one follows.
func (x *exporter) waitForBatch(ctx context.Context) (last bool) {
	timer := time.NewTimer(x.batch)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return true
	case <-x.closing:
		return true
	case <-x.full:
	case <-timer.C:
	}
	return false
}

// waitAfter waits after a failure, until the pause is over or the exporter is closed.
func (x *exporter) waitAfter(ctx context.Context, failures int) {
	pause := maxPause
	if shift := failures - 1; shift < 6 {
		pause = x.pause << shift
	}
	timer := time.NewTimer(min(pause, maxPause))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-x.closing:
	case <-timer.C:
	}
}

// isClosing reports whether close was called.
func (x *exporter) isClosing() bool {
	select {
	case <-x.closing:
		return true
	default:
		return false
	}
}

// take removes the next batch from the queue.
func (x *exporter) take() []span {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := min(len(x.queue), maxBatch)
	batch := x.queue[:n:n]
	x.queue = x.queue[n:]
	return batch
}

// count adds to the number of dropped spans.
func (x *exporter) count(n int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.dropped += n
}

// report logs the first failure of an outage and its end. n is the number of spans of the request;
// without again they are lost, or those that the collector rejected.
func (x *exporter) report(err error, n int, again bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	lost, text := int64(n), "traces are not exported; the migration continues"
	if part, is := errors.AsType[rejectedError](err); is {
		lost, text = int64(part), "the collector does not accept all traces"
	}
	if err != nil && !again {
		x.dropped += lost
	}
	switch {
	case err != nil && !x.down:
		x.down = true
		x.log.Warn(text, "endpoint", x.config.host(), "err", err)
	case err == nil && x.down:
		x.down = false
		x.log.Info("traces are exported again", "endpoint", x.config.host(), "dropped", x.dropped)
		x.dropped = 0
	}
}

// host returns the host of the endpoint: the rest of the URL may contain a secret.
func (c config) host() string {
	u, err := url.Parse(c.endpoint)
	if err != nil {
		return ""
	}
	return u.Host
}

// send sends one request. again reports whether the same request may succeed later.
func (x *exporter) send(ctx context.Context, batch []span) (again bool, err error) {
	body, err := x.encode(batch)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, x.config.timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, x.config.endpoint, bytes.NewReader(body))
	if err != nil {
		return false, errors.New("the endpoint is not a URL")
	}
	for name, text := range x.config.headers {
		r.Header.Set(name, text)
	}
	r.Header.Set("Content-Type", "application/json")
	if x.config.gzip {
		r.Header.Set("Content-Encoding", "gzip")
	}
	resp, err := x.config.client.Do(r)
	if err != nil {
		var of *url.Error
		if errors.As(err, &of) { // its text contains the URL
			err = of.Err
		}
		return true, err
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxResponse)) // a response that breaks off has no partial success
	return x.checkResponse(resp.StatusCode, text)
}

// checkResponse returns the error of a response. The specification names the codes that permit another
// attempt.
func (x *exporter) checkResponse(code int, text []byte) (again bool, err error) {
	switch code {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true, fmt.Errorf("the collector returned HTTP %d", code)
	}
	if code/100 != 2 {
		return false, fmt.Errorf("the collector returned HTTP %d", code)
	}
	var answer struct {
		PartialSuccess struct {
			RejectedSpans json.Number `json:"rejectedSpans"`
			ErrorMessage  string      `json:"errorMessage"`
		} `json:"partialSuccess"`
	}
	_ = json.Unmarshal(text, &answer) // an empty response is valid
	if n, _ := answer.PartialSuccess.RejectedSpans.Int64(); n > 0 {
		return false, rejectedError(n)
	}
	return false, nil
}

// rejectedError is the number of spans of a request that the collector rejected. It accepted the others.
type rejectedError int64

// Error implements error.
func (n rejectedError) Error() string {
	return fmt.Sprintf("the collector rejected %d spans", int64(n))
}

// encode returns the body of a request.
func (x *exporter) encode(batch []span) ([]byte, error) {
	text, err := json.Marshal(exportRequest{[]resourceSpans{{resource{x.config.resource}, []scopeSpans{{scope{"decamp", x.version}, batch}}}}})
	if err != nil || !x.config.gzip {
		return text, err
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(text) // into memory
	_ = z.Close()
	return b.Bytes(), nil
}

// close sends what is queued, in closeTime at most, and ends the goroutine. It logs the number of
// dropped spans.
func (x *exporter) close() {
	close(x.closing)
	timer := time.AfterFunc(closeTime, x.stop)
	x.ended.Wait()
	timer.Stop()
	x.stop()
	x.mu.Lock()
	defer x.mu.Unlock()
	if lost := x.dropped + int64(len(x.queue)); lost > 0 {
		x.log.Warn("traces were not exported", "spans", lost)
	}
}
