package esx

import (
	"net"
	"net/url"
	"strings"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// endpoint is a parsed esxi:// or vcenter:// URL.
type endpoint struct {
	scheme string // esxi or vcenter
	user   string // user name, with its SSO domain for a vCenter
	addr   string // host:port of the API
	host   string // host name or address without port
}

// urlHint is the remedy for all errors in a source URL.
const urlHint = "write esxi://root@HOST or vcenter://administrator@vsphere.local@HOST"

// ParseURL parses esxi://user@host[:port] or vcenter://user@host[:port]. All other URLs
// are fault.Invalid, including URLs with a password. Errors never contain the URL,
// because it may contain a password.
func ParseURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil {
		return nil, fault.New(fault.Invalid, "the source is not a URL").WithHint(urlHint)
	}
	if _, err := parseEndpoint(u); err != nil {
		return nil, err
	}
	return u, nil
}

// parseEndpoint validates a source URL and splits it. The default port is 443.
func parseEndpoint(u *url.URL) (endpoint, error) {
	switch {
	case u == nil:
		return endpoint{}, fault.New(fault.Invalid, "no source given").WithHint(urlHint)
	case u.Scheme != "esxi" && u.Scheme != "vcenter":
		return endpoint{}, fault.New(fault.Invalid, "scheme %q is neither esxi nor vcenter", u.Scheme).WithHint(urlHint)
	case u.Hostname() == "":
		return endpoint{}, fault.New(fault.Invalid, "the source URL names no host").WithHint(urlHint)
	case u.User.Username() == "":
		return endpoint{}, fault.New(fault.Invalid, "the source URL names no user").WithHint(urlHint)
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		return endpoint{}, fault.New(fault.Invalid, "the source URL has more than user, host and port").WithHint(urlHint)
	}
	// Checked last, so that the hint about passwords is only given for otherwise valid
	// URLs.
	if _, ok := u.User.Password(); ok {
		return endpoint{}, fault.New(fault.Invalid, "the source URL contains a password").
			WithHint("remove it, because shell history and process lists show URLs; write the password to a file and set it with --password-file, or enter it at the prompt")
	}
	port := u.Port()
	if port == "" {
		port = "443"
	}
	host := u.Hostname()
	return endpoint{u.Scheme, u.User.Username(), net.JoinHostPort(host, port), host}, nil
}

// sdkURL returns the URL of the SOAP API.
func (e endpoint) sdkURL() *url.URL {
	return &url.URL{Scheme: "https", Host: e.addr, Path: "/sdk"}
}

// checkScheme returns fault.Invalid if the server's product does not match the scheme
// of the URL.
func (e endpoint) checkScheme(a inventory.About) error {
	if a.VCenter == (e.scheme == "vcenter") {
		return nil
	}
	right := "esxi"
	if a.VCenter {
		right = "vcenter"
	}
	return fault.New(fault.Invalid, "%s is %s, not what %s:// means", e.addr, a.Name, e.scheme).
		WithHint("use %s://%s@%s", right, e.user, e.addr)
}
