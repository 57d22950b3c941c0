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

// An address is where a libvirt is, as its own tools write it, and which of its pools takes images:
//
//	qemu:///system?pool=default
//	qemu+unix:///system?socket=/run/libvirt/virtqemud-sock
//	qemu+ssh://root@kvm1:2222/system?keyfile=/root/.ssh/id_ed25519&pool=vms
//	qemu+tls://kvm1/system?pkipath=/etc/pki/decamp
//	qemu+tcp://127.0.0.1:16509/system
type address struct {
	driver    string // what libvirt itself is asked to open: qemu:///system
	transport string // unix, ssh, tls or tcp
	user      string
	host      string
	port      string
	pool      string

	socket     string // of libvirt, on its machine
	keyFile    string // for SSH
	knownHosts string // for SSH
	pki        string // folder with a client's certificates, for TLS
}

// parseAddress reads an address.
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
			a.transport = "tls" // as libvirt's own tools have it
		}
	}
	options, err := url.ParseQuery(u.RawQuery)
	if err == nil {
		err = a.options(options)
	}
	if err != nil {
		return address{}, badAddress(text, err.Error())
	}
	_, secret := u.User.Password()
	switch {
	case scheme != "qemu" || u.Path != "/system" && u.Path != "/session":
		return address{}, badAddress(text, "only qemu:///system and qemu:///session are known")
	case a.transport != "unix" && a.transport != "ssh" && a.transport != "tls" && a.transport != "tcp":
		return address{}, badAddress(text, "only unix, ssh, tls and tcp are known ways")
	case a.transport == "unix" && (u.Host != "" || u.User != nil), a.transport != "unix" && a.host == "":
		return address{}, badAddress(text, "ssh, tls and tcp need a host, and unix has none")
	case strings.HasPrefix(a.host, "-") || strings.HasPrefix(a.user, "-"):
		return address{}, badAddress(text, "no host or user begins with a dash")
	case secret:
		return address{}, badAddress(text, "it takes no password")
	}
	return a, nil
}

// parameters returns the field of each parameter of an address.
func (a *address) parameters() map[string]*string {
	return map[string]*string{
		"pool": &a.pool, "socket": &a.socket, "keyfile": &a.keyFile, "known_hosts": &a.knownHosts, "pkipath": &a.pki,
	}
}

// Parameters returns the names of the parameters of an address, sorted.
func Parameters() []string { return slices.Sorted(maps.Keys(new(address).parameters())) }

// options takes what stands behind the question mark.
func (a *address) options(q url.Values) error {
	known := a.parameters()
	for name, values := range q {
		field, ok := known[name]
		if !ok {
			return fault.New(fault.Invalid, "no option %q", name)
		}
		if *field = values[len(values)-1]; *field == "" {
			return fault.New(fault.Invalid, "option %s is empty", name)
		}
	}
	return nil
}

func badAddress(text, why string) error {
	return fault.New(fault.Invalid, "libvirt at %q: %s", text, why).
		WithHint("write it as libvirt:qemu:///system?pool=default, or as libvirt:qemu+ssh://root@HOST/system?pool=default")
}

// String is the address as virsh takes it, without options.
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

var defaultPort = map[string]string{"ssh": "22", "tls": "16514", "tcp": "16509"}

// sockets are the places where libvirt listens on its machine: of the one daemon for all, and of that
// for QEMU alone.
func (a address) sockets() []string {
	if a.socket != "" {
		return []string{a.socket}
	}
	folder := "/run/libvirt"
	if a.driver == "qemu:///session" {
		folder = filepath.Join(cmp.Or(os.Getenv("XDG_RUNTIME_DIR"), "/run"), "libvirt")
	}
	return []string{filepath.Join(folder, "libvirt-sock"), filepath.Join(folder, "virtqemud-sock")}
}

// name is what receipts and messages call the place.
func (a address) name() string { return "libvirt " + a.String() + " pool " + a.pool }
