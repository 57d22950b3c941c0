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

// isTemporary reports whether the same call may succeed later.
func isTemporary(err error) bool {
	return fault.Is(err, fault.Transient) || fault.Is(err, fault.Unreachable)
}

// convertError converts an error of gophercloud to a fault, and returns the wait that the service
// requests. If ctx has
// ended, the error is ctx.Err(). A fault in the chain is returned unchanged.
//
// The message contains nothing of the request, which may contain secrets.
func (c *cloud) convertError(ctx context.Context, what string, err error) (time.Duration, error) {
	var own *fault.Error
	var status gophercloud.ErrUnexpectedResponseCode
	var again *gophercloud.ErrUnableToReauthenticate
	switch {
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case errors.As(err, &own):
		return 0, err
	case errors.As(err, &again):
		return c.convertError(ctx, "log in again", again.ErrReauth)
	case errors.As(err, &status):
		return c.statusError(what, status)
	}
	return 0, c.networkError(what, err)
}

// statusError converts an answer with an error status. The remedy depends on the kind. The returned
// wait is zero for
// errors of authentication, permission and quota, because a repetition does not help.
func (c *cloud) statusError(what string, r gophercloud.ErrUnexpectedResponseCode) (time.Duration, error) {
	text := errorText(r.Body)
	if text == "" {
		text = http.StatusText(r.Actual)
	}
	after := retryAfter(r.ResponseHeader)
	kind := kindOf(r.Actual, text, after)
	e := fault.New(kind, "OpenStack %s: %s: %s", c.name, what, text)
	switch {
	case r.Actual == http.StatusUnauthorized:
		return 0, e.OfLogin().WithHint("test the credentials: openstack%s token issue", c.cloudOption())
	case kind == fault.Denied:
		return 0, e.WithHint("the account requires the role member in the project, and for some networks more: openstack%s role assignment list --names --user USER", c.cloudOption())
	case kind == fault.Full:
		return 0, e.WithHint("raise the quotas, or remove unused resources: openstack%s quota show --usage", c.cloudOption())
	case kind == fault.NotFound:
		return after, e.WithHint("list the services: openstack%s catalog list", c.cloudOption())
	}
	return after, e.WithHint("run the same command again; if the error persists, send this answer to the cloud's administrator")
}

// cloudOption returns the option of the openstack command that selects the cloud, with a leading space.
// It is empty if the
// environment selects the cloud.
func (c *cloud) cloudOption() string {
	if !c.named {
		return ""
	}
	return " --os-cloud " + fault.Quote(c.name)
}

// kindOf returns the kind of a status. An exhausted quota is 403 in Nova, 409 in Neutron, and 413 in
// Cinder and Glance.
// Cinder then sends Retry-After: 0. A 413 with another value is an old form of rate limiting.
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

// retryAfter returns the wait that a service requests, at most longestPause.
func retryAfter(h http.Header) time.Duration {
	seconds, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return min(time.Duration(min(seconds, 1<<20))*time.Second, longestPause)
}

// networkError converts an error without an answer, or with a malformed one. A service that is missing
// in the catalog is
// fault.NotFound, malformed JSON is fault.Corrupt, and an untrusted certificate is fault.Denied. Other
// network errors
// are fault.Unreachable, and all remaining errors of gophercloud are fault.Invalid.
func (c *cloud) networkError(what string, err error) error {
	var invalid *tls.CertificateVerificationError
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	var u *url.Error
	switch {
	case errors.As(err, new(*gophercloud.ErrEndpointNotFound)), errors.As(err, new(*gophercloud.ErrServiceNotFound)):
		return fault.New(fault.NotFound, "OpenStack %s has no such service for this project and region: %s", c.name, what).
			WithHint("the services image, block-storage, network and compute are required: openstack%s catalog list; the region is region_name in clouds.yaml", c.cloudOption())
	case errors.As(err, &syntax), errors.As(err, &kind):
		return fault.New(fault.Corrupt, "OpenStack %s: %s: the answer is malformed: %s", c.name, what, fault.Line(err.Error())).
			WithHint("check that auth_url is the URL of Keystone, not of a web page")
	case errors.As(err, &u):
		err = u.Err // url.Error repeats the address
	case !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF):
		return fault.New(fault.Invalid, "OpenStack %s: %s: %s", c.name, what, fault.Line(err.Error())).
			WithHint("test the credentials: openstack%s token issue", c.cloudOption())
	}
	e := fault.New(fault.Unreachable, "OpenStack %s: %s: %s", c.name, what, fault.Line(err.Error()))
	if errors.As(err, &invalid) {
		e.Kind = fault.Denied
		return e.WithHint("set the CA that signed it: cacert in clouds.yaml, or OS_CACERT")
	}
	return e.WithHint("check that the addresses in clouds.yaml or OS_AUTH_URL, and in the catalog, are reachable from this host: openstack%s catalog list", c.cloudOption())
}

// errorText returns the message in an error's body: {"error": {"message": …}} of Keystone,
// {"badRequest": {"message": …}}
// of Nova and Cinder, {"NeutronError": {"type": …, "message": …}} of Neutron, HTML of Glance.
func errorText(body []byte) string {
	var said map[string]json.RawMessage
	_ = json.Unmarshal(body, &said) // an HTML body leaves the map empty
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
	if _, after, found := strings.Cut(text, "</h1>"); found { // the heading repeats the status
		text = after
	}
	return fault.Line(stripTags(text))
}

// stripTags removes the tags from HTML.
func stripTags(text string) string {
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
