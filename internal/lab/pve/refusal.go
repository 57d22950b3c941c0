package pve

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// A refusal is an answer that is not 200.
type refusal struct {
	status     int
	text       string
	parameters map[string]string // errors of a 400 by parameter
}

func (r *refusal) Error() string { return r.text }

func newRefusal(status int, format string, args ...any) error {
	return &refusal{status: status, text: fmt.Sprintf(format, args...)}
}

// serverError is how most of Proxmox fails: a line of text, and 500.
func serverError(format string, args ...any) error {
	return newRefusal(http.StatusInternalServerError, format, args...)
}

func refuseParameter(name, format string, args ...any) error {
	return &refusal{
		status: http.StatusBadRequest, text: "Parameter verification failed.",
		parameters: map[string]string{name: fmt.Sprintf(format, args...)},
	}
}

// writeRefusal puts the words where pveproxy has them: into the status line. net/http has no way
// to say so, therefore the connection is taken over, and ends.
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
