// Package recall caches answers of platforms while decamp checks many VMs.
//
// Begin puts a cache into a context. Until its end, a GET request that was answered with status 200 is not
// sent again, and connections that require a login are kept open. Failed requests, and requests that change
// something, are not cached. A context without a cache has no effect.
package recall

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync"
)

// cache contains the answers and values of one Begin. It is safe for concurrent use.
type cache struct {
	mu      sync.Mutex          // guards the fields below; Keep holds it while it opens a value
	answers map[question]answer // answers to GET requests with status 200
	kept    map[any]any         // values of Keep by name
	closers []func()            // close the values of Keep, in the order in which they were opened
}

// question identifies a GET request: the URL, and the transport that sends it with its login.
type question struct {
	by  *Transport // the transport; each has one login
	url string     // the whole URL with its query
}

// answer is the header and the body of a response with status 200.
type answer struct {
	header http.Header // cloned for each response
	body   []byte      // read-only, shared by all responses
}

// cacheKey is the context key of the cache.
type cacheKey struct{}

// Begin returns a context with a new cache, and a function that closes the values that Keep opened.
func Begin(ctx context.Context) (context.Context, func()) {
	m := &cache{answers: map[question]answer{}, kept: map[any]any{}}
	return context.WithValue(ctx, cacheKey{}, m), m.closeAll
}

// cacheOf returns the cache of a context, or nil if it has none.
func cacheOf(ctx context.Context) *cache {
	m, _ := ctx.Value(cacheKey{}).(*cache)
	return m
}

// closeAll closes all values that Keep opened. A second call does nothing.
func (m *cache) closeAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, end := range m.closers {
		end()
	}
	m.closers = nil
}

// Keep returns the value that open returned for the same name before, or calls open. The name must be
// unique to its owner: a pointer to it, or a struct with such a pointer.
//
// The caller must call release. With a cache, release does nothing, and the function that Begin
// returned
// calls shut. Without one, release calls shut.
func Keep[T any](ctx context.Context, name any, open func(context.Context) (T, error), shut func(T)) (thing T, release func(), err error) {
	m := cacheOf(ctx)
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
	m.closers = append(m.closers, func() { shut(thing) })
	return thing, func() {}, nil
}

// Transport is an http.RoundTripper for one client with one login. If the context of a request has a
// cache,
// it returns cached answers to GET requests and stores answers with status 200.
type Transport struct {
	Next http.RoundTripper // sends requests that the cache does not answer
}

// maxBody is the size of the largest body that is stored, in bytes.
const maxBody = 32 << 20

// RoundTrip implements http.RoundTripper. Two concurrent requests for one URL may both be sent.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	m := cacheOf(r.Context())
	if m == nil || r.Method != http.MethodGet {
		return t.Next.RoundTrip(r)
	}
	q := question{t, r.URL.String()}
	if a, ok := m.cachedAnswer(q); ok {
		return a.toResponse(r), nil
	}
	res, err := t.Next.RoundTrip(r)
	if err != nil || res.StatusCode != http.StatusOK {
		return res, err
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxBody+1))
	if err != nil || len(body) > maxBody { // the reader of the body gets the error
		res.Body = remainingBody{io.MultiReader(bytes.NewReader(body), errReader{err}, res.Body), res.Body}
		return res, nil
	}
	_ = res.Body.Close() // all of it was read
	a := answer{res.Header, body}
	m.storeAnswer(q, a)
	return a.toResponse(r), nil
}

// CloseIdleConnections forwards the call of http.Client.CloseIdleConnections to Next.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.Next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// cachedAnswer returns the stored answer to a request. ok is false if the request was not answered yet.
func (m *cache) cachedAnswer(q question) (answer, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a, ok := m.answers[q]
	return a, ok
}

// storeAnswer stores an answer, and replaces an earlier one. The cache then owns a.
func (m *cache) storeAnswer(q question, a answer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answers[q] = a
}

// toResponse returns a new response to r with its own copy of the header and a reader of the shared
// body.
func (a answer) toResponse(r *http.Request) *http.Response {
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: a.header.Clone(), Body: io.NopCloser(bytes.NewReader(a.body)), ContentLength: int64(len(a.body)), Request: r,
	}
}

// remainingBody is a partly read body. It reads that part again, and closes the
// original body.
type remainingBody struct {
	io.Reader
	io.Closer
}

// errReader is a reader that returns err, or io.EOF if err is nil.
type errReader struct{ err error }

// Read implements io.Reader. It never returns data.
func (f errReader) Read([]byte) (int, error) {
	if f.err == nil {
		return 0, io.EOF
	}
	return 0, f.err
}
