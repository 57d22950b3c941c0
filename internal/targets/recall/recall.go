// Package recall has the places that take VMs asked once for what many VMs want to know.
//
// Within a Begin, a question that was answered is not asked again: the answer is that of the first time, as
// if all VMs were looked at in one moment. A connection that takes a login to make is kept until the end.
// Nothing is recalled of what failed, nor of what changes anything. Without a Begin all is asked anew.
package recall

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync"
)

// memory is what is known within a Begin.
type memory struct {
	mu      sync.Mutex
	answers map[question]answer
	kept    map[any]any
	ends    []func()
}

// A question is a URL that was asked by one client, with one login.
type question struct {
	by  *Transport
	url string
}

type answer struct {
	header http.Header
	body   []byte
}

type key struct{}

// Begin returns a context in which answers are recalled, and what ends that: it closes what was kept.
func Begin(ctx context.Context) (context.Context, func()) {
	m := &memory{answers: map[question]answer{}, kept: map[any]any{}}
	return context.WithValue(ctx, key{}, m), m.end
}

func of(ctx context.Context) *memory {
	m, _ := ctx.Value(key{}).(*memory)
	return m
}

func (m *memory) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, end := range m.ends {
		end()
	}
	m.ends = nil
}

// Keep returns what open opened for a name before, or now. Release gives it back, to who keeps it or for
// good. A name is a pointer, or has one, to whose thing it is.
func Keep[T any](ctx context.Context, name any, open func(context.Context) (T, error), shut func(T)) (thing T, release func(), err error) {
	m := of(ctx)
	if m == nil {
		if thing, err = open(ctx); err != nil {
			return thing, nil, err
		}
		return thing, func() { shut(thing) }, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if had, ok := m.kept[name].(T); ok {
		return had, func() {}, nil
	}
	if thing, err = open(ctx); err != nil {
		return thing, nil, err
	}
	m.kept[name] = thing
	m.ends = append(m.ends, func() { shut(thing) })
	return thing, func() {}, nil
}

// Transport is a client's way to a server, with one login. It recalls what was answered to GET with 200.
type Transport struct{ Next http.RoundTripper }

// most is the longest answer that is kept, in bytes.
const most = 32 << 20

// RoundTrip satisfies http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	m := of(r.Context())
	if m == nil || r.Method != http.MethodGet {
		return t.Next.RoundTrip(r)
	}
	q := question{t, r.URL.String()}
	if a, ok := m.answered(q); ok {
		return a.response(r), nil
	}
	res, err := t.Next.RoundTrip(r)
	if err != nil || res.StatusCode != http.StatusOK {
		return res, err
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, most+1))
	if err != nil || len(body) > most { // whoever reads it is told what is wrong with it
		res.Body = rest{io.MultiReader(bytes.NewReader(body), failing{err}, res.Body), res.Body}
		return res, nil
	}
	_ = res.Body.Close() // all of it was read
	a := answer{res.Header, body}
	m.note(q, a)
	return a.response(r), nil
}

// CloseIdleConnections has http.Client's reach what is below.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.Next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func (m *memory) answered(q question) (answer, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a, ok := m.answers[q]
	return a, ok
}

func (m *memory) note(q question, a answer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answers[q] = a
}

func (a answer) response(r *http.Request) *http.Response {
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: a.header.Clone(), Body: io.NopCloser(bytes.NewReader(a.body)), ContentLength: int64(len(a.body)), Request: r,
	}
}

// rest is a body that was begun to be read.
type rest struct {
	io.Reader
	io.Closer
}

// failing is an error where there is one.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) {
	if f.err == nil {
		return 0, io.EOF
	}
	return 0, f.err
}
