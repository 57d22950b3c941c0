package server

import (
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// router passes requests to the handlers of the mux, within limits. It is safe for concurrent use.
type router struct {
	mux     *http.ServeMux // handlers by pattern
	trail   *auditTrail    // records requests from other sites
	metrics *metrics       // counts requests
	log     *slog.Logger   // receives panics of handlers
}

// guardHandler returns a handler around all others. It limits the time of requests, refuses those of
// other sites, counts them, and turns a panic into an error response.
func (o *router) guardHandler(next http.Handler) http.Handler {
	cross := http.NewCrossOriginProtection()
	cross.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := fault.New(fault.Denied, "the request comes from another site's page")
		o.trail.noteRefusal(r.Context(), User{From: peerAddress(r)}, "a request of another site", r.URL.Path, err)
		problemOf(err).writeTo(w)
	}))
	inner := cross.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		rec := &recorder{ResponseWriter: w}
		rc := http.NewResponseController(w)
		_ = rc.SetReadDeadline(began.Add(requestTime)) // HTTP/2 and tests may have none
		_ = rc.SetWriteDeadline(began.Add(requestTime))
		setSecurityHeaders(w.Header())
		defer func() {
			o.recoverPanic(rec, r, recover())
			o.metrics.countRequest(o.routeOf(r), rec.statusCode(), time.Since(began))
		}()
		inner.ServeHTTP(rec, r)
	})
}

// setSecurityHeaders sets the security headers of all responses.
func setSecurityHeaders(h http.Header) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
}

// recoverPanic logs a panic, and writes an error response if none was begun. http.ErrAbortHandler is
// passed on.
func (o *router) recoverPanic(w *recorder, r *http.Request, panicked any) {
	if panicked == nil {
		return
	}
	if panicked == http.ErrAbortHandler {
		panic(panicked)
	}
	o.log.Error("handler panicked", "route", o.routeOf(r), "err", panicked, "stack", string(debug.Stack()))
	if w.status == 0 {
		problemOf(fault.New(fault.Internal, "this is a bug in decamp").WithHint("the server's log has the details")).writeTo(w)
	}
}

// routeOf returns the pattern of a request's handler; "" if no pattern matches.
func (o *router) routeOf(r *http.Request) string {
	_, pattern := o.mux.Handler(r)
	return pattern
}

// methodOf returns the method of a request, or "other" for unknown ones, which any client can choose.
func methodOf(r *http.Request) string {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodOptions:
		return r.Method
	}
	return "other"
}

// recorder records the status of a response.
type recorder struct {
	http.ResponseWriter
	status int // status of the response; 0 before it begins
}

// WriteHeader implements http.ResponseWriter.
func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter. Without WriteHeader, the status is 200.
func (r *recorder) Write(p []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return r.ResponseWriter.Write(p)
}

// Unwrap returns the original writer, for http.ResponseController.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// statusCode returns the status of the finished response.
func (r *recorder) statusCode() int {
	if r.status == 0 {
		return http.StatusOK
	}
	return r.status
}

// routeRequest passes a request to the mux. If no handler matches, it writes a Problem with the status
// that the mux would return.
func (o *router) routeRequest(w http.ResponseWriter, r *http.Request) {
	h, pattern := o.mux.Handler(r)
	if pattern != "" {
		o.mux.ServeHTTP(w, r)
		return
	}
	said := &discardWriter{header: http.Header{}}
	h.ServeHTTP(said, r) // the mux determines the status, 404 or 405, and the allowed methods
	if said.status/100 == 3 {
		w.Header().Set("Location", said.header.Get("Location"))
		w.WriteHeader(said.status)
		return
	}
	p := newProblem(said.status, fmt.Sprintf("there is no %s %s", methodOf(r), shortenText(r.URL.Path)))
	if allow := said.header.Get("Allow"); allow != "" {
		p.header.Set("Allow", allow)
	}
	p.Remedy = "GET /openapi.json lists the API"
	p.writeTo(w)
}

// discardWriter is a response writer that discards the body.
type discardWriter struct {
	header http.Header // headers of the response
	status int         // status of the response
}

// Header implements http.ResponseWriter.
func (s *discardWriter) Header() http.Header { return s.header }

// Write implements http.ResponseWriter.
func (s *discardWriter) Write(p []byte) (int, error) { return len(p), nil }

// WriteHeader implements http.ResponseWriter.
func (s *discardWriter) WriteHeader(status int) { s.status = status }
