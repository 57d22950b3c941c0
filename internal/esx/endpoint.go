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
	user   string
	addr   string // host:port
	host   string
}

const urlHint = "write esxi://root@HOST or vcenter://administrator@vsphere.local@HOST"

// ParseURL reads esxi://user@host[:port] or vcenter://user@host[:port] and refuses
// everything that is not that, a password above all. Its errors never repeat the URL,
// since a password may be in it.
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
	if _, ok := u.User.Password(); ok {
		return endpoint{}, fault.New(fault.Invalid, "the source URL holds a password").
			WithHint("take it out: URLs end up in shell history and process lists; put the password in a file and name the file, or let decamp ask")
	}
	port := u.Port()
	if port == "" {
		port = "443"
	}
	host := u.Hostname()
	return endpoint{u.Scheme, u.User.Username(), net.JoinHostPort(host, port), host}, nil
}

// sdkURL returns the address of the API.
func (e endpoint) sdkURL() *url.URL {
	return &url.URL{Scheme: "https", Host: e.addr, Path: "/sdk"}
}

// checkScheme refuses a server that is not what the URL's scheme says.
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
