package pve

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// A refusal is an error with an HTTP status. Its text becomes the reason of the status line.
type refusal struct {
	status     int               // HTTP status, or one of pveproxy's: 595 and 596
	text       string            // reason in the status line
	parameters map[string]string // errors of a 400 by parameter
}

// Error returns the reason without the status.
func (r *refusal) Error() string { return r.text }

// newRefusal returns a refusal with a formatted reason.
func newRefusal(status int, format string, args ...any) error {
	return &refusal{status: status, text: fmt.Sprintf(format, args...)}
}

// serverError returns a refusal of status 500: the result of die in Proxmox's Perl code, which is its
// usual way to fail.
func serverError(format string, args ...any) error {
	return newRefusal(http.StatusInternalServerError, format, args...)
}

// refuseParameter returns a refusal of status 400 with an error for one parameter.
func refuseParameter(name, format string, args ...any) error {
	return &refusal{
		status: http.StatusBadRequest, text: "Parameter verification failed.",
		parameters: map[string]string{name: fmt.Sprintf(format, args...)},
	}
}

// writeRefusal writes the reason into the status line, as pveproxy does. net/http cannot send a custom
// reason; therefore the connection is hijacked, and closed after the response. Other errors become
// status 500.
func writeRefusal(w http.ResponseWriter, err error) {
	var r *refusal
	if !errors.As(err, &r) {
		r = &refusal{status: http.StatusInternalServerError, text: err.Error()}
	}
	body := map[string]any{"data": nil}
	if r.parameters != nil {
		body["errors"] = r.parameters
	}
	text, _ := json.Marshal(body) // strings always can be
	conn, buffer, hijackErr := w.(http.Hijacker).Hijack()
	if hijackErr != nil {
		return // the client has gone
	}
	defer conn.Close()
	reason := strings.Join(strings.Fields(r.text), " ")
	fmt.Fprintf(buffer, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		r.status, reason, len(text), text)
	_ = buffer.Flush()
}
