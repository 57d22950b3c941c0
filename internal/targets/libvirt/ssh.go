package libvirt

import (
	"net"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/targets/ssh"
)

// dialSSH starts ssh and connects to libvirt's socket on its host.
func dialSSH(a address) (net.Conn, error) {
	conn, err := sshLogin(a).Start(remoteCommand(a))
	if err != nil { // not a nil *ssh.Conn in the interface
		return nil, err
	}
	return conn, nil
}

// sshLogin returns the login of the address. A failure of the remote command means that libvirt is not
// running.
func sshLogin(a address) ssh.Login {
	return ssh.Login{
		Host: a.host, Port: a.port, User: a.user, KeyFile: a.keyFile, KnownHosts: a.knownHosts,
		Exit: func(_ int, err error) error {
			return fault.New(fault.Unreachable, "%w", err).WithHint("start libvirt there: systemctl start libvirtd, or virtqemud.socket; the host needs virt-ssh-helper or nc")
		},
	}
}

// remoteCommand returns the shell command that connects its input and output to libvirt's socket: with
// virt-ssh-helper, or with nc if that is not installed.
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
