package server

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"golang.org/x/sync/semaphore"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetdb"
)

// Times of one client of the event stream.
const (
	keepAliveTime = 15 * time.Second // interval of comments, so that proxies keep an idle stream open
	writeTime     = 10 * time.Second // time limit of a client to read a frame
	retryAfter    = 2 * time.Second  // time after which browsers reconnect
	maxReads      = 4                // concurrent clients that read missed changes from the fleet database
)

// eventPath is the path of the event stream.
const eventPath = "/v1/events"

// eventQuery are the parameters of followEvents.
type eventQuery struct {
	Plan  string `query:"plan" maxLength:"128" pattern:"^[A-Za-z0-9._-]*$" doc:"events of this plan; empty: all plans"`
	Since int64  `query:"since" minimum:"-1" default:"-1" doc:"the revision to continue from; 0: all rows; -1: from now on"`
	Last  string `header:"Last-Event-ID" doc:"sent by browsers that reconnect; it takes precedence over since"`
}

// eventAPI serves the event stream.
type eventAPI struct {
	hub      *hub                // source of events
	feed     *fleetdb.Feed       // changes that the hub has no more
	cache    *fleetCache         // progress and scheduler state for the start of a stream
	auth     *authenticator      // checks that the user's permission lasts
	metrics  *metrics            // counts sent bytes
	catchUps *semaphore.Weighted // slots of clients that read missed changes from the database
}

// registerRoutes implements resource.
func (a *eventAPI) registerRoutes(api huma.API) {
	schema := &huma.Schema{Type: huma.TypeString, Description: "server-sent events: hello, changes (with an id to resume from), progress, plans, fleet, trouble, lost, bye"}
	r := route{method: http.MethodGet, path: eventPath, id: "followEvents", what: "follow the events", role: View,
		details: "An endless stream. Rows are sent whole in their current state, so receiving one twice is harmless.",
		answer: &huma.Response{Description: "the events", Content: map[string]*huma.MediaType{
			"text/event-stream": {Schema: schema},
		}}}
	register(api, r, a.follow)
}

// follow returns the stream. The header Last-Event-ID takes precedence over since.
func (a *eventAPI) follow(_ context.Context, in *eventQuery) (*huma.StreamResponse, error) {
	since := in.Since
	if last, err := strconv.ParseInt(in.Last, 10, 64); err == nil && last >= 0 {
		since = last
	}
	return &huma.StreamResponse{Body: func(ctx huma.Context) {
		r, w := humago.Unwrap(ctx)
		a.streamEvents(w, r, in.Plan, since)
	}}, nil
}

// streamEvents sends events of a plan, or of all plans, until the client or the server ends the stream.
func (a *eventAPI) streamEvents(w http.ResponseWriter, r *http.Request, plan string, since int64) {
	if err := a.hub.waitKnown(r.Context()); err != nil {
		problemOf(err).writeTo(w)
		return
	}
	l, rev, missed, whole := a.hub.addListener(plan, since)
	if l == nil {
		p := problemOf(fault.New(fault.Transient, "too many clients follow the events, or the server stops").WithHint("try again later"))
		p.writeTo(w)
		return
	}
	defer a.hub.removeListener(l)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // proxies that gather answers would gather for ever
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return
	}
	c := &streamClient{api: a, r: r, w: w, rc: http.NewResponseController(w), l: l}
	_ = c.rc.SetReadDeadline(time.Time{}) // nothing more is read; the request's own would end the stream
	if c.sendMissed(rev, since, missed, whole) == nil {
		c.sendLoop()
	}
}

// streamClient is the connection of a listener. It is used by one goroutine.
type streamClient struct {
	api *eventAPI                // API of the stream
	r   *http.Request            // request of the client
	w   http.ResponseWriter      // response of the client
	rc  *http.ResponseController // deadlines and flushes of the response
	l   *listener                // listener of the hub
}

// sendMissed sends the missed changes, and after them a revision: a client that is disconnected before
// must not resume after it.
func (c *streamClient) sendMissed(rev, since int64, missed []*frame, whole bool) error {
	if err := c.sendTexts([]byte("retry: " + strconv.FormatInt(retryAfter.Milliseconds(), 10) + "\n\n")); err != nil {
		return err
	}
	from := int64(0) // events that were missed have their own
	switch {
	case since < 0 || since > rev: // a revision that does not exist yet belongs to another database
		from = rev
	case whole:
		if err := c.sendFrames(missed); err != nil {
			return err
		}
	default:
		if err := c.catchUp(since, rev); err != nil {
			return err
		}
	}
	return c.sendTexts(append(eventText(eventHello, from, hello{rev}), c.currentState()...))
}

// catchUp reads missed changes from the fleet database, for a few clients at a time.
func (c *streamClient) catchUp(since, rev int64) error {
	ctx := c.r.Context()
	if err := c.api.catchUps.Acquire(ctx, 1); err != nil {
		return err
	}
	defer c.api.catchUps.Release(1)
	for since < rev {
		changes, err := c.api.feed.Changes(ctx, since)
		if err != nil || changes.Rev <= since {
			return err
		}
		since = changes.Rev
		if err := c.sendFrames([]*frame{changesFrame(changes)}); err != nil {
			return err
		}
	}
	return nil
}

// currentState returns the progress and the resources in use, for the start of the stream; nil if they
// cannot be read.
func (c *streamClient) currentState() []byte {
	b, err := c.api.cache.readState(c.r.Context())
	if err != nil {
		return nil // the hub reports it
	}
	text := progressFrame(b.progress).textFor(c.l.plan)
	return append(text, sameFrame(eventFleet, newSummary(b)).textFor("")...)
}

// sendLoop sends the hub's frames until the client or the hub ends the stream.
func (c *streamClient) sendLoop() {
	breath := time.NewTicker(keepAliveTime)
	defer breath.Stop()
	for {
		var err error
		select {
		case frames := <-c.l.queue:
			err = c.sendFrames(frames)
		case <-c.l.lost:
			_ = c.sendTexts(eventText(eventLost, 0, trouble{"events were not read in time; connect again"}))
			return
		case <-c.api.hub.closing:
			_ = c.sendTexts(eventText(eventBye, 0, trouble{"the server stops"}))
			return
		case <-breath.C:
			err = c.sendKeepAlive()
		case <-c.r.Context().Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// sendKeepAlive sends a comment. It returns an error if the user may not view the fleet any more.
func (c *streamClient) sendKeepAlive() error {
	who, err := c.api.auth.identifyUser(c.r)
	if err == nil && !who.Role.May(View) {
		err = errNobody
	}
	if err != nil {
		return err
	}
	return c.sendTexts([]byte(":\n\n"))
}

// sendFrames sends events, together with those that are queued after them.
func (c *streamClient) sendFrames(frames []*frame) error {
	var texts [][]byte
	for {
		for _, f := range frames {
			texts = append(texts, f.textFor(c.l.plan))
		}
		select {
		case frames = <-c.l.queue:
			continue
		default:
		}
		return c.sendTexts(texts...)
	}
}

// sendTexts writes texts, which may be shared with other clients, and flushes them. A client that does
// not read for writeTime is an error.
func (c *streamClient) sendTexts(texts ...[]byte) error {
	if !slices.ContainsFunc(texts, func(text []byte) bool { return len(text) > 0 }) {
		return nil
	}
	if err := c.rc.SetWriteDeadline(time.Now().Add(writeTime)); err != nil {
		return err
	}
	sent := 0
	for _, text := range texts {
		n, err := c.w.Write(text)
		if err != nil {
			return err
		}
		sent += n
	}
	c.api.metrics.sent.Add(int64(sent))
	if err := c.rc.Flush(); err != nil {
		return err
	}
	return c.rc.SetWriteDeadline(time.Time{}) // HTTP/2 ends a stream whose deadline passes, also one that has nothing to write
}
