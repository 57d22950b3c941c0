package openstack

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2"

	"github.com/decamp/decamp/internal/fault"
)

// passes reports whether err may be gone when the same is asked again.
func passes(err error) bool {
	return fault.Is(err, fault.Transient) || fault.Is(err, fault.Unreachable)
}

// refusal is what an error of gophercloud's comes to, and how long the service wants us to wait. Nothing of
// a request is repeated in it.
func (c *cloud) refusal(ctx context.Context, what string, err error) (time.Duration, error) {
	var own *fault.Error
	var status gophercloud.ErrUnexpectedResponseCode
	var again *gophercloud.ErrUnableToReauthenticate
	switch {
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case errors.As(err, &own):
		return 0, err
	case errors.As(err, &again):
		return c.refusal(ctx, "log in again", again.ErrReauth)
	case errors.As(err, &status):
		return c.refused(what, status)
	}
	return 0, c.unanswered(what, err)
}

// refused is refusal for an answer.
func (c *cloud) refused(what string, r gophercloud.ErrUnexpectedResponseCode) (time.Duration, error) {
	text := words(r.Body)
	if text == "" {
		text = http.StatusText(r.Actual)
	}
	after := retryAfter(r.ResponseHeader)
	kind := kindOf(r.Actual, text, after)
	e := fault.New(kind, "OpenStack %s: %s: %s", c.name, what, text)
	switch {
	case r.Actual == http.StatusUnauthorized:
		return 0, e.OfLogin().WithHint("try the same credentials: openstack%s token issue", c.option())
	case kind == fault.Denied:
		return 0, e.WithHint("the role member of the project is what it takes, and for some networks more: openstack%s role assignment list --names --user USER", c.option())
	case kind == fault.Full:
		return 0, e.WithHint("look at the quotas and have them raised, or remove what is not needed: openstack%s quota show --usage", c.option())
	case kind == fault.NotFound:
		return after, e.WithHint("see what there is: openstack%s catalog list", c.option())
	}
	return after, e.WithHint("try it again; if it stays so, ask who runs the cloud, with this answer")
}

// option is how OpenStack's own tool is told the cloud.
func (c *cloud) option() string {
	if !c.named {
		return "" // the environment does
	}
	return " --os-cloud " + fault.Quote(c.name)
}

// kindOf tells refusals apart. Quotas are 403 of Nova, 409 of Neutron, and 413 of Cinder and Glance; Cinder
// has Retry-After: 0 with that, and 413 with another number was a limit of rates.
func kindOf(status int, text string, after time.Duration) fault.Kind {
	quota := strings.Contains(strings.ToLower(text), "quota")
	switch status {
	case http.StatusUnauthorized:
		return fault.Denied
	case http.StatusForbidden:
		if quota {
			return fault.Full
		}
		return fault.Denied
	case http.StatusNotFound:
		return fault.NotFound
	case http.StatusConflict:
		if quota {
			return fault.Full
		}
		return fault.Conflict
	case http.StatusRequestEntityTooLarge:
		if after > 0 {
			return fault.Transient
		}
		return fault.Full
	case http.StatusBadRequest, http.StatusNotAcceptable:
		return fault.Invalid
	case http.StatusInsufficientStorage:
		return fault.Full
	}
	return fault.Transient // 429, 498 and all of 5xx
}

// retryAfter is how long a service asks to wait.
func retryAfter(h http.Header) time.Duration {
	seconds, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return min(time.Duration(min(seconds, 1<<20))*time.Second, longestPause)
}

// unanswered is refusal where there is no answer, or none that is understood.
func (c *cloud) unanswered(what string, err error) error {
	var invalid *tls.CertificateVerificationError
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	var u *url.Error
	switch {
	case errors.As(err, new(*gophercloud.ErrEndpointNotFound)), errors.As(err, new(*gophercloud.ErrServiceNotFound)):
		return fault.New(fault.NotFound, "OpenStack %s has no such service for this project and region: %s", c.name, what).
			WithHint("it takes image, block-storage, network and compute: openstack%s catalog list; region_name in clouds.yaml says which region", c.option())
	case errors.As(err, &syntax), errors.As(err, &kind):
		return fault.New(fault.Corrupt, "OpenStack %s: %s: the answer is not what it should be: %s", c.name, what, fault.Line(err.Error())).
			WithHint("see that auth_url is Keystone's, and no page in front of it")
	case errors.As(err, &u):
		err = u.Err // it would repeat the address
	case !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF):
		return fault.New(fault.Invalid, "OpenStack %s: %s: %s", c.name, what, fault.Line(err.Error())).
			WithHint("try the same credentials: openstack%s token issue", c.option())
	}
	e := fault.New(fault.Unreachable, "OpenStack %s: %s: %s", c.name, what, fault.Line(err.Error()))
	if errors.As(err, &invalid) {
		e.Kind = fault.Denied
		return e.WithHint("name the authority that signed it: cacert in clouds.yaml, or OS_CACERT")
	}
	return e.WithHint("see that the address in clouds.yaml or OS_AUTH_URL, and those of the catalog, are reached from here: openstack%s catalog list", c.option())
}

// words is what an answer says went wrong: {"error": {"message": …}} of Keystone, {"badRequest": {"message":
// …}} of Nova and Cinder, {"NeutronError": {"type": …, "message": …}} of Neutron, HTML of Glance.
func words(body []byte) string {
	var said map[string]json.RawMessage
	_ = json.Unmarshal(body, &said) // HTML is not, and then said is empty
	for _, each := range said {
		var inner struct {
			Type    string `json:"type"`
			Message string `json:"message"`
		}
		if json.Unmarshal(each, &inner) == nil && inner.Message != "" {
			if inner.Type != "" {
				return fault.Line(inner.Type + ": " + inner.Message)
			}
			return fault.Line(inner.Message)
		}
	}
	text := string(body[:min(len(body), 4*fault.MaxLine)])
	if _, after, found := strings.Cut(text, "</h1>"); found { // which repeats the status
		text = after
	}
	return fault.Line(plain(text))
}

// plain takes the tags out of HTML.
func plain(text string) string {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "<")
		out.WriteString(before + " ")
		if !found {
			return out.String()
		}
		_, text, _ = strings.Cut(rest, ">")
	}
}
