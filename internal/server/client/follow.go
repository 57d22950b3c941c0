package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/server"
	"github.com/decamp/decamp/internal/sleep"
)

const (
	reconnectPause = 2 * time.Second // pause before a broken stream is opened again
	// silenceLimit is the time without data after which a stream counts as broken; the server sends a comment every 15 s
	silenceLimit = 45 * time.Second
	maxEvent     = 64 << 20 // limit of one event, in bytes; changes of some thousand VMs have 4 MiB
)

// Follow passes on changes as they arrive. A broken stream is opened again at its position until ctx
// ends. An unreachable server or a refusal is an error.
func (c *Client) Follow(ctx context.Context, since int64, tell func(fleetdb.Changes) error) error {
	began := false
	for {
		err := c.streamEvents(ctx, since, func(e event) error {
			began = true
			return e.passChanges(&since, tell)
		})
		var told *callbackError
		switch {
		case errors.As(err, &told):
			return told.error
		case ctx.Err() != nil:
			return ctx.Err()
		case !began || !isTransient(err):
			return err
		}
		if err := sleep.For(ctx, reconnectPause); err != nil {
			return err
		}
	}
}

// isTransient reports whether another attempt may succeed. A stream that ended without an error counts
// as such.
func isTransient(err error) bool {
	return err == nil || fault.Is(err, fault.Unreachable) || fault.Is(err, fault.Transient)
}

// callbackError is an error of the caller's function, which ends Follow.
type callbackError struct{ error }

// An event is one server-sent event.
type event struct {
	name string // name of the event
	id   int64  // revision to resume from; 0 if it has none
	data []byte // data as JSON; nil if it has none
}

// passChanges passes changes to tell, and sets since to the event's revision afterwards.
func (e event) passChanges(since *int64, tell func(fleetdb.Changes) error) error {
	if e.name == "changes" {
		var changes server.Changes
		if err := json.Unmarshal(e.data, &changes); err != nil {
			return fault.New(fault.Transient, "event: %w", err)
		}
		if err := tell(fleetdb.Changes(changes)); err != nil {
			return &callbackError{err}
		}
	}
	if e.id > 0 {
		*since = e.id
	}
	return nil
}

// streamEvents calls each for the events of one connection, until the connection breaks or each returns
// an error.
func (c *Client) streamEvents(ctx context.Context, since int64, each func(event) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	query := url.Values{"since": {strconv.FormatInt(since, 10)}}
	resp, err := c.sendRequest(ctx, http.MethodGet, "/v1/events", query, "", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	silence := time.AfterFunc(silenceLimit, cancel)
	defer silence.Stop()
	alive := func() { silence.Reset(silenceLimit) }
	err = readEvents(resp.Body, alive, each)
	if _, own := err.(*fault.Error); own || err == nil {
		return err
	}
	var told *callbackError
	if errors.As(err, &told) {
		return err
	}
	return fault.New(fault.Unreachable, "events of %s: %w", c.base.Host, err)
}

// readEvents reads server-sent events (WHATWG HTML) until they end. alive is called at every line.
func readEvents(r io.Reader, alive func(), each func(event) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), maxEvent)
	var e event
	for lines.Scan() {
		alive()
		if len(lines.Bytes()) > 0 {
			e.addLine(lines.Bytes())
			continue
		}
		if e.data != nil {
			if err := each(e); err != nil {
				return err
			}
		}
		e = event{}
	}
	return lines.Err()
}

// addLine parses one line of an event. Unknown fields are ignored, as the standard requires.
func (e *event) addLine(line []byte) {
	field, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(field) {
	case "event":
		e.name = string(value)
	case "id":
		if id, err := strconv.ParseInt(string(value), 10, 64); err == nil && id > 0 {
			e.id = id
		}
	case "data":
		e.addData(value)
	}
}

// addData appends a line of data. Several lines are joined by line breaks.
func (e *event) addData(value []byte) {
	if e.data != nil {
		e.data = append(e.data, '\n')
	}
	e.data = append(e.data, value...)
	if e.data == nil {
		e.data = []byte{}
	}
}
