package server

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/planfile"
)

// Problem is an error in the format of RFC 9457, with the kind and the remedy of a fault.
type Problem struct {
	Type   string `json:"type" doc:"about:blank: the status is the type"` // URI of the problem type
	Title  string `json:"title"`                                          // text of the status
	Status int    `json:"status"`                                         // HTTP status
	Detail string `json:"detail" doc:"what happened"`                     // text of the error
	// name of the fault.Kind
	Kind   string `json:"kind" enum:"internal,transient,unreachable,denied,not-found,conflict,unsupported,corrupt,full,invalid,canceled,changed" doc:"kind of the error, for programs"`
	Remedy string `json:"remedy,omitempty" doc:"what to do, for people"` // remedy of the fault
	// errors in a plan file
	Findings planfile.Findings `json:"findings,omitempty" nullable:"false" doc:"of a plan: each with its line"`
	// errors in the parameters of a request
	Errors []*huma.ErrorDetail `json:"errors,omitempty" nullable:"false" doc:"of a request: each with its place"`

	header http.Header // headers of the response, such as Retry-After
}

// problemType is the media type of a Problem.
const problemType = "application/problem+json"

// statuses are the HTTP statuses of the kinds. A migration that decamp does not support is not an error
// of the server.
var statuses = map[fault.Kind]int{
	fault.Internal:    http.StatusInternalServerError,
	fault.Transient:   http.StatusServiceUnavailable,
	fault.Unreachable: http.StatusServiceUnavailable,
	fault.Denied:      http.StatusForbidden,
	fault.NotFound:    http.StatusNotFound,
	fault.Conflict:    http.StatusConflict,
	fault.Unsupported: http.StatusUnprocessableEntity,
	fault.Corrupt:     http.StatusInternalServerError,
	fault.Full:        http.StatusInsufficientStorage,
	fault.Invalid:     http.StatusUnprocessableEntity,
	fault.Canceled:    http.StatusServiceUnavailable,
	fault.Changed:     http.StatusConflict,
}

// kinds are the kinds of the HTTP statuses that the library and the mux return.
var kinds = map[int]fault.Kind{
	http.StatusUnauthorized:          fault.Denied,
	http.StatusForbidden:             fault.Denied,
	http.StatusNotFound:              fault.NotFound,
	http.StatusConflict:              fault.Conflict,
	http.StatusServiceUnavailable:    fault.Transient,
	http.StatusRequestTimeout:        fault.Transient,
	http.StatusTooManyRequests:       fault.Transient,
	http.StatusInternalServerError:   fault.Internal,
	http.StatusInsufficientStorage:   fault.Full,
	http.StatusUnsupportedMediaType:  fault.Invalid,
	http.StatusRequestEntityTooLarge: fault.Invalid,
}

// errAway is the response for an unreachable database, without its address and user: those are in the
// server's log.
var errAway = fault.New(fault.Unreachable, "the database does not answer").
	WithHint("try again later: plans continue when it responds; the server's log has the reason")

// problemOf returns err as a Problem. Details of an unreachable database are removed.
func problemOf(err error) *Problem {
	var p *Problem
	if errors.As(err, &p) {
		return p
	}
	if fault.Is(err, fault.Unreachable) {
		err = errAway
	}
	kind := fault.KindOf(err)
	p = newProblem(statuses[kind], err.Error())
	p.Kind, p.Remedy = kind.String(), fault.HintOf(err)
	var mistakes *PlanError
	if errors.As(err, &mistakes) {
		p.Findings = mistakes.Findings
	}
	p.setRetryHeaders(err)
	return p
}

// setRetryHeaders sets the status and the headers that HTTP defines for a missing login, for a
// throttled client, and for an unavailable server.
func (p *Problem) setRetryHeaders(err error) {
	var many *tooManyError
	switch {
	case errors.Is(err, errNobody):
		p.setStatus(http.StatusUnauthorized)
		p.header.Set("WWW-Authenticate", `Bearer realm="decamp"`)
	case errors.As(err, &many):
		p.setStatus(http.StatusTooManyRequests)
		p.header.Set("Retry-After", many.retrySeconds())
	case p.Status == http.StatusServiceUnavailable:
		p.header.Set("Retry-After", "5")
	}
}

// newProblem returns the Problem for a status. An unknown client error is fault.Invalid.
func newProblem(status int, detail string) *Problem {
	kind, ok := kinds[status]
	if !ok && status < http.StatusInternalServerError {
		kind = fault.Invalid
	}
	p := &Problem{Type: "about:blank", Detail: detail, Kind: kind.String(), header: http.Header{}}
	p.setStatus(status)
	return p
}

// setStatus sets the status and its text.
func (p *Problem) setStatus(status int) { p.Status, p.Title = status, http.StatusText(status) }

// Error implements error. With the methods below, a Problem is an error that the library returns to the
// client.
func (p *Problem) Error() string { return p.Detail }

// Text returns the error with the places of its Errors.
func (p *Problem) Text() string {
	text := p.Detail
	for _, e := range p.Errors {
		text += "; " + e.Location + ": " + e.Message
	}
	return text
}

// GetStatus implements huma.StatusError.
func (p *Problem) GetStatus() int { return p.Status }

// GetHeaders implements huma.HeadersError.
func (p *Problem) GetHeaders() http.Header { return p.header }

// ContentType implements huma.ContentTypeFilter.
func (p *Problem) ContentType(string) string { return problemType }

// writeTo writes the problem as the response, for handlers outside of the library.
func (p *Problem) writeTo(w http.ResponseWriter) {
	for name, values := range p.header {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Type", problemType)
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // fails if the client has disconnected
}

// The library creates errors for requests that contradict its document through this variable only.
func init() {
	huma.NewError = func(status int, message string, errs ...error) huma.StatusError {
		p := newProblem(status, message)
		for _, err := range errs {
			p.addDetail(err)
		}
		return p
	}
}

// addDetail adds an error that the library found in a request.
func (p *Problem) addDetail(err error) {
	var d huma.ErrorDetailer
	switch {
	case err == nil:
	case errors.As(err, &d):
		p.Errors = append(p.Errors, d.ErrorDetail())
	default:
		p.Errors = append(p.Errors, &huma.ErrorDetail{Message: err.Error()})
	}
}

// errNobody is the error for a request without a user.
var errNobody = fault.New(fault.Denied, "who are you?").WithHint("send a token: Authorization: Bearer …, or a client certificate")
