package proxmox

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/fault"
)

// isCertificate reports whether the server's certificate is not trusted.
func isCertificate(err error) bool {
	var invalid *tls.CertificateVerificationError
	return errors.As(err, &invalid)
}

// statusError returns the error for an answer with a status other than 200.
func (c *client) statusError(what string, res *http.Response, body []byte) error {
	text := errorText(res.Status, body)
	e := fault.New(kindOf(res.StatusCode, text), "Proxmox %s: %s: %s", c.host, what, text)
	switch res.StatusCode {
	case http.StatusUnauthorized:
		return e.OfLogin().WithHint("check the token %s on the node: pveum user token list %s", c.token.name(), fault.Quote(c.userName()))
	case http.StatusForbidden:
		return e.WithHint("give the token the privilege, and its user too if the token has privilege separation: pveum acl modify PATH --tokens %s --roles ROLE",
			fault.Quote(c.token.name()))
	}
	return e
}

// userName returns the user that the token belongs to.
func (c *client) userName() string {
	user, _, _ := strings.Cut(c.token.name(), "!")
	return user
}

// errorText returns the message of an answer. Proxmox puts it into the status line, into "message"
// since version 8, and by
// parameter into "errors".
func errorText(status string, body []byte) string {
	var said struct {
		Message string            `json:"message"`
		Errors  map[string]string `json:"errors"`
	}
	_ = json.Unmarshal(body, &said) // a proxy may answer with HTML
	_, text, _ := strings.Cut(status, " ")
	if said.Message != "" {
		text = said.Message
	}
	text = fault.Line(text)
	for _, name := range slices.Sorted(maps.Keys(said.Errors)) {
		text += fmt.Sprintf(" %s: %s", fault.Line(name), fault.Line(said.Errors[name]))
	}
	return fault.Line(text)
}

// Status codes that pveproxy made up: for a node of its cluster that it cannot reach.
const (
	statusNoRoute = 595 // pveproxy cannot connect to the node
	statusTimeout = 596 // the node does not answer pveproxy
)

// kindOf returns the kind of an error status. Most errors of Proxmox have the status 500 and differ
// only in the text. These
// texts have not changed since version 5.
func kindOf(status int, text string) fault.Kind {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fault.Denied
	case http.StatusBadRequest:
		return fault.Invalid
	case http.StatusNotImplemented:
		return fault.Unsupported
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout, statusTimeout:
		return fault.Transient
	case statusNoRoute:
		return fault.Unreachable
	}
	return kindOfWords(text)
}

// kindOfWords returns the kind for the text of a status 500, or for a line of a task's log.
func kindOfWords(text string) fault.Kind {
	text = strings.ToLower(text)
	for _, each := range []struct {
		words string
		kind  fault.Kind
	}{
		{"already exists", fault.Conflict},
		{"is running", fault.Conflict},
		{"protection mode", fault.Conflict},
		{"does not exist", fault.NotFound},
		{"no space left", fault.Full},
		{"insufficient free space", fault.Full},
		{"not enough free space", fault.Full},
		{"out of space", fault.Full},
		{"checksum mismatch", fault.Corrupt},
		{"got timeout", fault.Transient},
		{"interrupted by signal", fault.Canceled},
		{"permission check failed", fault.Denied},
	} {
		if strings.Contains(text, each.words) {
			return each.kind
		}
	}
	return fault.Internal
}
