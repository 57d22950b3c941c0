package trace

import (
	"cmp"
	"encoding/hex"
	"slices"
	"strconv"
	"time"
)

// The types of this file are the JSON encoding of OTLP: 64-bit integers are text, IDs are hexadecimal.
// https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding

// exportRequest is ExportTraceServiceRequest.
type exportRequest struct {
	ResourceSpans []resourceSpans `json:"resourceSpans"`
}

// resourceSpans are the spans of one process.
type resourceSpans struct {
	Resource   resource     `json:"resource"`
	ScopeSpans []scopeSpans `json:"scopeSpans"`
}

// resource describes a process.
type resource struct {
	Attributes []attribute `json:"attributes"`
}

// scopeSpans are the spans of one library.
type scopeSpans struct {
	Scope scope  `json:"scope"`
	Spans []span `json:"spans"`
}

// scope names a library.
type scope struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// span is a span that has ended.
type span struct {
	TraceID       string      `json:"traceId"`
	SpanID        string      `json:"spanId"`
	ParentSpanID  string      `json:"parentSpanId,omitempty"`
	Name          string      `json:"name"`
	Kind          int         `json:"kind"`
	Start         nanos       `json:"startTimeUnixNano"`
	End           nanos       `json:"endTimeUnixNano"`
	Attributes    []attribute `json:"attributes,omitempty"`
	Events        []spanEvent `json:"events,omitempty"`
	DroppedEvents uint32      `json:"droppedEventsCount,omitempty"`
	Status        status      `json:"status"`
}

// kindInternal is the kind of a span that is no request.
const kindInternal = 1

// spanEvent is something that happened during a span.
type spanEvent struct {
	Time       nanos       `json:"timeUnixNano"`
	Name       string      `json:"name"`
	Attributes []attribute `json:"attributes,omitempty"`
}

// status is the result of a span.
type status struct {
	Code    int    `json:"code,omitempty"` // 0: unset, statusOK or statusError
	Message string `json:"message,omitempty"`
}

// Codes of a status.
const (
	statusOK    = 1 // the operation succeeded
	statusError = 2 // the operation failed
)

// nanos is a time in nanoseconds since 1970.
type nanos time.Time

// MarshalJSON implements json.Marshaler.
func (n nanos) MarshalJSON() ([]byte, error) {
	return strconv.AppendQuote(nil, strconv.FormatInt(time.Time(n).UnixNano(), 10)), nil
}

// attribute is a name with a value.
type attribute struct {
	Key   string `json:"key"`
	Value value  `json:"value"`
}

// value is a value of one type.
type value struct {
	Text   *string  `json:"stringValue,omitempty"`
	Int    *string  `json:"intValue,omitempty"`
	Double *float64 `json:"doubleValue,omitempty"`
	Bool   *bool    `json:"boolValue,omitempty"`
}

// attributes are attributes by name.
type attributes map[string]value

// set sets an attribute.
func (a *attributes) set(key string, v value) {
	if *a == nil {
		*a = attributes{}
	}
	(*a)[key] = v
}

// setText sets an attribute, unless the text is empty.
func (a *attributes) setText(key, text string) {
	if text != "" {
		a.set(key, value{Text: &text})
	}
}

// setInt sets an attribute.
func (a *attributes) setInt(key string, n int64) {
	text := strconv.FormatInt(n, 10)
	a.set(key, value{Int: &text})
}

// setSeconds sets an attribute to a number of seconds, unless it is 0.
func (a *attributes) setSeconds(key string, d time.Duration) {
	if s := d.Seconds(); s != 0 {
		a.set(key, value{Double: &s})
	}
}

// setBool sets an attribute.
func (a *attributes) setBool(key string, b bool) { a.set(key, value{Bool: &b}) }

// sorted returns the attributes by name.
func (a attributes) sorted() []attribute {
	var all []attribute
	for key, v := range a {
		all = append(all, attribute{key, v})
	}
	slices.SortFunc(all, func(x, y attribute) int { return cmp.Compare(x.Key, y.Key) })
	return all
}

// hexText returns an ID as text.
func hexText(id []byte) string { return hex.EncodeToString(id) }
