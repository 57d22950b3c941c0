package libvirt

import (
	"net"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/targets/ssh"
)

// dialSSH starts ssh, which connects us with libvirt's socket on its machine.
func dialSSH(a address) (net.Conn, error) {
	conn, err := login(a).Start(remoteCommand(a))
	if err != nil { // not a nil *ssh.Conn in the interface
		return nil, err
	}
	return conn, nil
}

func login(a address) ssh.Login {
	return ssh.Login{
		Host: a.host, Port: a.port, User: a.user, KeyFile: a.keyFile, KnownHosts: a.knownHosts,
		Exit: func(_ int, err error) error {
			return fault.New(fault.Unreachable, "%w", err).WithHint("start libvirt there: systemctl start libvirtd, or virtqemud.socket; without virt-ssh-helper it takes nc")
		},
	}
}

// remoteCommand has the other side join its end to libvirt's socket: by libvirt's own helper, or by netcat
// where that is missing.
func remoteCommand(a address) string {
	if a.socket != "" {
		return "exec nc -U " + fault.Quote(a.socket)
	}
	script := "if command -v virt-ssh-helper >/dev/null 2>&1; then exec virt-ssh-helper " + fault.Quote(a.driver) + "; fi; "
	for _, path := range []string{"/run/libvirt/libvirt-sock", "/run/libvirt/virtqemud-sock"} {
		script += "[ ! -S " + path + " ] || exec nc -U " + path + "; "
	}
	return "sh -c " + fault.Quote(script+"echo 'no libvirt listens here' >&2; exit 9")
}
