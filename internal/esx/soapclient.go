package esx

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"

	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/soap"
)

// pass is the session cookie in the form of the Cookie header: name=value. The value is
// unchanged, including quotes. It is empty before the first login. It is safe for
// concurrent use.
type pass struct {
	mu    sync.Mutex // protects value
	value string     // cookie as name=value
}

// get returns the cookie, or "" before the first login.
func (p *pass) get() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.value
}

// set replaces the cookie.
func (p *pass) set(value string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.value = value
}

// soapTransport is the HTTP transport of SOAP calls. It adds the session cookie, and
// converts statuses without a SOAP response to statusError. A cookie jar would parse
// and quote values, and would accept the cookie of an anonymous session that a server
// sends with NotAuthenticated.
type soapTransport struct {
	base  http.RoundTripper // transport with the pinned certificate
	pass  *pass             // cookie to send
	learn bool              // true to set pass from the response, for a login
}

// RoundTrip is part of http.RoundTripper. Status 500 passes, because SOAP faults have
// it. The body of the response has no characters that XML forbids; see readXML.
func (d *soapTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	// A RoundTripper must not change the request of its caller.
	req = req.Clone(req.Context())
	if value := d.pass.get(); value != "" {
		req.Header.Set("Cookie", value)
	}
	res, err := d.base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK && res.StatusCode != http.StatusInternalServerError {
		res.Body.Close()
		return nil, &statusError{res.StatusCode}
	}
	if value := sessionCookie(res.Header); d.learn && value != "" {
		d.pass.set(value)
	}
	res.Body = readXML(res.Body)
	return res, nil
}

// statusError is an HTTP status other than 200, without a SOAP response.
type statusError struct{ code int }

// Error is part of error.
func (e *statusError) Error() string {
	return fmt.Sprintf("HTTP %d %s", e.code, http.StatusText(e.code))
}

// sessionCookie returns the session cookie from Set-Cookie, or "". The result is the
// unchanged part before the first semicolon, as in virt-v2v.
func sessionCookie(h http.Header) string {
	for _, line := range h.Values("Set-Cookie") {
		value, _, _ := strings.Cut(line, ";")
		if strings.HasPrefix(value, soap.SessionCookieName+"=") {
			return value
		}
	}
	return ""
}

// newSOAP returns an API client that uses the transport d. The client has no cookie
// jar.
func (s *connection) newSOAP(d *soapTransport) *soap.Client {
	c := soap.NewClient(s.end.sdkURL(), true)
	c.Client.Transport = d // pinned; soap's own transport is not used
	c.Client.Jar = nil
	c.Namespace = "urn:" + vim25.Namespace
	c.Version = vim25.Version
	c.UserAgent = "decamp"
	return c
}

// Secret is a password. It prints as *** if it is formatted, logged or encoded.
type Secret string

// masked replaces a password in all output.
const masked = "***"

// String returns ***, for %v and %s.
func (Secret) String() string { return masked }

// GoString returns ***, for %#v.
func (Secret) GoString() string { return masked }

// LogValue returns ***, for package slog.
func (Secret) LogValue() slog.Value { return slog.StringValue(masked) }

// MarshalText returns ***, for JSON.
func (Secret) MarshalText() ([]byte, error) { return []byte(masked), nil }
