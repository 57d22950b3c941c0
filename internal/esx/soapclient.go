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

// pass is the session cookie as it stands in a Cookie header: name=value, the value
// untouched, quotes included. Empty before the first login.
type pass struct {
	mu    sync.Mutex
	value string
}

func (p *pass) get() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.value
}

func (p *pass) set(value string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.value = value
}

// door is the HTTP transport under SOAP: it shows the pass and turns statuses that are
// not SOAP answers into errors that can be told apart. A cookie jar would do it, but it
// parses and quotes values anew, and would take the cookie of an anonymous session that
// a server hands out along with "not authenticated".
type soapTransport struct {
	base  http.RoundTripper
	pass  *pass
	learn bool // take the pass from the answer: for a login
}

func (d *soapTransport) RoundTrip(req *http.Request) (*http.Response, error) {
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

// statusError is an HTTP status that stands for no answer.
type statusError struct{ code int }

func (e *statusError) Error() string {
	return fmt.Sprintf("HTTP %d %s", e.code, http.StatusText(e.code))
}

// sessionCookie returns the session's cookie out of Set-Cookie: the part before the
// first semicolon, untouched, as virt-v2v passes it on.
func sessionCookie(h http.Header) string {
	for _, line := range h.Values("Set-Cookie") {
		value, _, _ := strings.Cut(line, ";")
		if strings.HasPrefix(value, soap.SessionCookieName+"=") {
			return value
		}
	}
	return ""
}

// newSOAP returns an API client that goes through d.
func (s *connection) newSOAP(d *soapTransport) *soap.Client {
	c := soap.NewClient(s.end.sdkURL(), true)
	c.Client.Transport = d // pinned; soap's own transport is not used
	c.Client.Jar = nil
	c.Namespace = "urn:" + vim25.Namespace
	c.Version = vim25.Version
	c.UserAgent = "decamp"
	return c
}

// Secret is a password. It prints as *** wherever it is formatted or logged.
type Secret string

const masked = "***"

// String returns ***, so that %v and %s do not tell.
func (Secret) String() string { return masked }

// GoString returns ***, so that %#v does not tell.
func (Secret) GoString() string { return masked }

// LogValue returns ***.
func (Secret) LogValue() slog.Value { return slog.StringValue(masked) }

// MarshalText returns ***, so that JSON does not tell.
func (Secret) MarshalText() ([]byte, error) { return []byte(masked), nil }
