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

// isCertificate reports whether err is that nobody vouches for the certificate.
func isCertificate(err error) bool {
	var invalid *tls.CertificateVerificationError
	return errors.As(err, &invalid)
}

// refusal is the error for an answer that is not 200.
func (c *client) refusal(what string, res *http.Response, body []byte) error {
	text := words(res.Status, body)
	e := fault.New(kindOf(res.StatusCode, text), "Proxmox %s: %s: %s", c.host, what, text)
	switch res.StatusCode {
	case http.StatusUnauthorized:
		return e.OfLogin().WithHint("look at the token %s on the node: pveum user token list %s", c.token.name(), fault.Quote(c.user()))
	case http.StatusForbidden:
		return e.WithHint("give the token the privilege, and its user too if the token has privilege separation: pveum acl modify PATH --tokens %s --roles ROLE",
			fault.Quote(c.token.name()))
	}
	return e
}

func (c *client) user() string {
	user, _, _ := strings.Cut(c.token.name(), "!")
	return user
}

// words is what an answer says went wrong. Proxmox has it in the status line, in "message" since
// version 8, and parameter by parameter in "errors".
func words(status string, body []byte) string {
	var said struct {
		Message string            `json:"message"`
		Errors  map[string]string `json:"errors"`
	}
	_ = json.Unmarshal(body, &said) // proxies in between answer HTML
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
	statusNoRoute = 595
	statusTimeout = 596
)

// kindOf tells kinds of refusals apart. Nearly all of Proxmox's are 500, and only its words say
// which they are: these have been the same since version 5.
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

// kindOfWords is kindOf for a line of a task or of a 500.
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
