package path

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/doctor"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/nfs"
	"github.com/decamp/decamp/internal/proxy"
)

// checkPorts connects to the ports of the host that the transport needs.
func (e *examiner) checkPorts(ctx context.Context) []doctor.Finding {
	found := []doctor.Finding{e.checkPort(ctx, net.JoinHostPort(e.Host, strconv.Itoa(e.Port)), "for the API and HTTPS", "vSphereClient", doctor.Failure)}
	switch e.Transport {
	case NFC:
		found = append(found, e.checkNFC(ctx, "for --transport nfc", doctor.Failure))
	case "":
		found = append(found, e.checkNFC(ctx, "only for --transport nfc", doctor.Advice))
	}
	return found
}

// checkNFC looks for one NFC server that answers, because the transport also tries the
// next one. If none does, it returns the finding of the first.
func (e *examiner) checkNFC(ctx context.Context, what string, bad doctor.Status) (first doctor.Finding) {
	places := e.NFC
	if len(places) == 0 {
		places = []string{net.JoinHostPort(e.Host, strconv.Itoa(NFCPort))}
	}
	for i, at := range places {
		f := e.checkPort(ctx, at, what, "NFC", bad)
		if f.Status == doctor.OK {
			return f
		}
		// The finding of the first place is returned if none answers.
		if i == 0 {
			first = f
		}
	}
	return first
}

// checkPort connects to host:port. rules is the name of the ruleset in ESXi's firewall.
// bad is the status if the port does not answer.
func (e *examiner) checkPort(ctx context.Context, at, what, rules string, bad doctor.Status) doctor.Finding {
	_, port, _ := net.SplitHostPort(at) // the dialer reports an invalid address
	f := doctor.Finding{On: at, Want: fmt.Sprintf("open TCP port %s, %s", port, what)}
	d, dial := &net.Dialer{Timeout: dialWait}, proxy.Dial
	if rules == "NFC" { // it never uses an HTTP proxy
		dial = func(ctx context.Context, d *net.Dialer, at string) (net.Conn, error) {
			return d.DialContext(ctx, "tcp", at)
		}
	}
	c, err := dial(ctx, d, at)
	var known *fault.Error
	switch {
	case err == nil:
		_ = c.Close() // no data was sent
		f.Found = "the port is open"
	case errors.As(err, &known): // of an HTTP proxy
		f.Status, f.Found, f.Remedy = bad, known.Error(), known.Hint
	case errors.Is(err, syscall.ECONNREFUSED):
		f.Status, f.Found = bad, "the port is closed: the service does not run, or the address is not an ESXi host"
		f.Remedy = "# on the host:\n/etc/init.d/hostd status && /etc/init.d/rhttpproxy status"
	case errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) || isTimeout(err):
		f.Status, f.Found = bad, "no answer: a firewall drops the packets"
		f.Remedy = fmt.Sprintf("# on the host:\nesxcli network firewall ruleset set --ruleset-id=%s --enabled=true", rules)
	default:
		f.Status, f.Found, f.Remedy = bad, err.Error(), "ip route get "+e.Host
	}
	return f
}

// isTimeout reports whether err is a network timeout.
func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

// bindRemedy gives the worker of a systemd unit the capability to listen on port 111. In a user
// namespace the capability has no effect.
const bindRemedy = `# a worker of systemd, or run decamp as root:
sudo install -d /etc/systemd/system/decamp-worker.service.d
printf '[Service]\nAmbientCapabilities=CAP_NET_BIND_SERVICE\nCapabilityBoundingSet=CAP_NET_BIND_SERVICE\nPrivateUsers=no\n' | sudo tee /etc/systemd/system/decamp-worker.service.d/landing.conf
sudo systemctl daemon-reload && sudo systemctl restart decamp-worker`

// firstOpenPort is the file with the lowest port that a process without capabilities may listen on.
const firstOpenPort = "/proc/sys/net/ipv4/ip_unprivileged_port_start"

// mayListen reports whether this process has the permission to listen on a port. It opens no socket,
// because another process may need the port.
func mayListen(port int) bool {
	first := 1024
	if text, err := os.ReadFile(firstOpenPort); err == nil {
		if n, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			first = n
		}
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData // each entry has 32 capabilities
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return true // the landing itself reports an error
	}
	return port >= first || sets[0].Effective&(1<<unix.CAP_NET_BIND_SERVICE) != 0
}

// checkLanding checks whether other programs use the ports of a landing, and whether this process may
// listen on them. The system's rpcbind may use port 111, because the landing registers there.
func (e *examiner) checkLanding(ctx context.Context) (found []doctor.Finding) {
	if e.Transport != Landing {
		return nil
	}
	for _, port := range []int{portmapPort, nfsPort} {
		at := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		f := doctor.Finding{On: "port " + strconv.Itoa(port), Found: "the port is free", Want: "a free port"}
		d := net.Dialer{Timeout: dialWait}
		if c, err := d.DialContext(ctx, "tcp", at); err == nil {
			_ = c.Close() // no data was sent
			f = e.portInUse(f, port, at)
		} else if !e.MayListen(port) {
			f.Status, f.Found, f.Want = doctor.Failure, "this process may not listen on the port", "root, or the capability CAP_NET_BIND_SERVICE"
			f.Remedy = bindRemedy
		}
		found = append(found, f)
	}
	return found
}

// portInUse returns the finding for a port that another process uses.
func (e *examiner) portInUse(f doctor.Finding, port int, at string) doctor.Finding {
	who := nfs.PortOwner(at)
	if port == portmapPort && !strings.HasPrefix(who, "decamp ") {
		f.Found = "the system's port mapper uses the port; the landing registers with it"
		return f
	}
	f.Status, f.Found, f.Remedy = doctor.Failure, "the port is in use by "+who, "stop this process, or wait until it ends: "+who
	if who == "" {
		f.Found, f.Remedy = "the port is in use by the kernel's NFS server or by another user's process", "systemctl stop nfs-server\n# or find the process:\nsudo ss -ltnp"
	}
	return f
}
