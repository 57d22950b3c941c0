package libvirt

import (
	"cmp"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/fault"
)

// address is the URI of a libvirt in the syntax of libvirt's tools, with parameters of decamp:
//
// \tqemu:///system?pool=default
// \tqemu+unix:///system?socket=/run/libvirt/virtqemud-sock
// \tqemu+ssh://root@kvm1:2222/system?keyfile=/root/.ssh/id_ed25519&pool=vms
// \tqemu+tls://kvm1/system?pkipath=/etc/pki/decamp
// \tqemu+tcp://127.0.0.1:16509/system
type address struct {
	driver    string // URI for the daemon itself, such as "qemu:///system"
	transport string // "unix", "ssh", "tls" or "tcp"
	user      string // user name for SSH; ssh's default if empty
	host      string // empty for the transport unix
	port      string // default of the transport if empty
	pool      string // pool for disks without an entry in the map

	socket     string // path of libvirt's socket on its host; a default path if empty
	keyFile    string // private key for SSH
	knownHosts string // known_hosts file for SSH
	pki        string // folder with the client's certificates for TLS
}

// parseAddress parses an address. The default transport is unix, or TLS if there is a host, as in
// libvirt's tools. The
// default pool is "default". The error is fault.Invalid.
func parseAddress(text string) (address, error) {
	u, err := url.Parse(text)
	if err != nil {
		return address{}, badAddress(text, err.Error())
	}
	scheme, transport, _ := strings.Cut(u.Scheme, "+")
	a := address{
		driver: "qemu://" + u.Path, transport: transport, host: u.Hostname(), port: u.Port(), user: u.User.Username(),
		pool: "default",
	}
	if a.transport == "" {
		a.transport = "unix"
		if a.host != "" {
			a.transport = "tls" // as in libvirt's tools
		}
	}
	options, err := url.ParseQuery(u.RawQuery)
	if err == nil {
		err = a.parseOptions(options)
	}
	if err != nil {
		return address{}, badAddress(text, err.Error())
	}
	_, secret := u.User.Password()
	switch {
	case scheme != "qemu" || u.Path != "/system" && u.Path != "/session":
		return address{}, badAddress(text, "only qemu:///system and qemu:///session are supported")
	case a.transport != "unix" && a.transport != "ssh" && a.transport != "tls" && a.transport != "tcp":
		return address{}, badAddress(text, "only the transports unix, ssh, tls and tcp are supported")
	case a.transport == "unix" && (u.Host != "" || u.User != nil), a.transport != "unix" && a.host == "":
		return address{}, badAddress(text, "ssh, tls and tcp require a host, and unix accepts none")
	case strings.HasPrefix(a.host, "-") || strings.HasPrefix(a.user, "-"):
		return address{}, badAddress(text, "a host or user must not begin with a dash")
	case secret:
		return address{}, badAddress(text, "a password in the address is not supported")
	}
	return a, nil
}

// parameterFields returns the field for each parameter of an address.
func (a *address) parameterFields() map[string]*string {
	return map[string]*string{
		"pool": &a.pool, "socket": &a.socket, "keyfile": &a.keyFile, "known_hosts": &a.knownHosts, "pkipath": &a.pki,
	}
}

// Parameters returns the names of the parameters of an address in alphabetical order.
func Parameters() []string { return slices.Sorted(maps.Keys(new(address).parameterFields())) }

// parseOptions sets the fields from the query of an address. The last value of a repeated parameter
// counts.
func (a *address) parseOptions(q url.Values) error {
	known := a.parameterFields()
	for name, values := range q {
		field, ok := known[name]
		if !ok {
			return fault.New(fault.Invalid, "unknown option %q", name)
		}
		if *field = values[len(values)-1]; *field == "" {
			return fault.New(fault.Invalid, "option %s is empty", name)
		}
	}
	return nil
}

// badAddress returns the error for an invalid address.
func badAddress(text, why string) error {
	return fault.New(fault.Invalid, "libvirt at %q: %s", text, why).
		WithHint("write it as libvirt:qemu:///system?pool=default, or as libvirt:qemu+ssh://root@HOST/system?pool=default")
}

// String returns the URI for virsh -c, without parameters.
func (a address) String() string {
	if a.transport == "unix" {
		return a.driver
	}
	u := url.URL{Scheme: "qemu+" + a.transport, Host: a.host, Path: strings.TrimPrefix(a.driver, "qemu://")}
	if a.user != "" {
		u.User = url.User(a.user)
	}
	if a.port != "" {
		u.Host = net.JoinHostPort(a.host, a.port)
	} else if strings.Contains(a.host, ":") {
		u.Host = "[" + a.host + "]"
	}
	return u.String()
}

// defaultPort contains the port of each transport.
var defaultPort = map[string]string{"ssh": "22", "tls": "16514", "tcp": "16509"}

// socketPaths returns the paths of libvirt's sockets on its host: those of the monolithic daemon
// libvirtd, and
// of virtqemud.
func (a address) socketPaths() []string {
	if a.socket != "" {
		return []string{a.socket}
	}
	folder := "/run/libvirt"
	if a.driver == "qemu:///session" {
		folder = filepath.Join(cmp.Or(os.Getenv("XDG_RUNTIME_DIR"), "/run"), "libvirt")
	}
	return []string{filepath.Join(folder, "libvirt-sock"), filepath.Join(folder, "virtqemud-sock")}
}

// displayName returns the platform's name for receipts and messages.
func (a address) displayName() string { return "libvirt " + a.String() + " pool " + a.pool }
