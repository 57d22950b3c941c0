package proxmox

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/nbd"
	"github.com/decamp/decamp/internal/targets/ssh"
)

// onNode is the Perl program that runs on the node. It is sent with each session, so that nothing is
// installed there.
//
//go:embed node.pl
var onNode string

const (
	nodeTimeout  = 2 * time.Minute  // limit for a login with the opening of a volume
	closeTimeout = 20 * time.Second // limit for the end of ssh

	maxNoise = 64 << 10 // bytes of output of the shell's start-up files that are skipped
)

// session is a running program on the node.
type session struct {
	io.WriteCloser
	*bufio.Reader
	conn net.Conn // connection to the program
	how  string   // how the node reads the volume: direct, cached or remote
}

// dialNode runs a command on the node over SSH.
func (o Options) dialNode(command string) (net.Conn, error) {
	conn, err := o.ssh.Start(command)
	if err != nil { // not a nil *ssh.Conn in the interface
		return nil, err
	}
	return conn, nil
}

// parseLogin parses USER@HOST:PORT; the default user is root. Names that ssh would parse as options are
// fault.Invalid.
func parseLogin(text string) (ssh.Login, error) {
	user, host, found := strings.Cut(text, "@")
	if !found {
		user, host = "root", text
	}
	port := ""
	if h, p, err := net.SplitHostPort(host); err == nil {
		host, port = h, p
	}
	host = strings.Trim(host, "[]")
	option := strings.HasPrefix(user, "-") || strings.HasPrefix(host, "-") // ssh would parse it as an option
	if !isName(user) || host == "" || option || strings.ContainsAny(host, " \t\n/@") || strings.Trim(port, "0123456789") != "" {
		return ssh.Login{}, fault.New(fault.Invalid, "%q is not an SSH login", text).WithHint("write ssh=root@HOST, or ssh=root@HOST:PORT")
	}
	return ssh.Login{User: user, Host: host, Port: port, Patience: closeTimeout, Exit: badExit}, nil
}

// badExit returns the error for a program that ended before its first line.
func badExit(status int, err error) error {
	if status == 126 || status == 127 {
		return fault.New(fault.Unsupported, "%w", err).WithHint("ssh= must name a node of Proxmox VE, which has perl: ssh NODE perl -v")
	}
	return fault.New(fault.Unreachable, "%w", err).WithHint("test the login: ssh NODE pvesm status")
}

// nodeShell runs node.pl on a node over SSH. It is safe for concurrent use.
type nodeShell struct {
	node string                                 // expected name of the node
	dial func(command string) (net.Conn, error) // runs a command on the node
}

// openSession runs node.pl and reads its first line. mode is "check", "write" or "sum". volume may be
// empty for "check".
//
// It fails if the line does not arrive within nodeTimeout. The caller closes the session's connection.
func (h nodeShell) openSession(ctx context.Context, mode, volume string) (*session, error) {
	command := "exec perl -e " + fault.Quote(onNode) + " " + mode + " " + fault.Quote(h.node)
	if volume != "" {
		command += " " + fault.Quote(volume)
	}
	conn, err := h.dial(command)
	if err != nil {
		return nil, fmt.Errorf("node %s by ssh: %w", h.node, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	_ = conn.SetReadDeadline(time.Now().Add(nodeTimeout)) // a socket pair has deadlines
	s := &session{conn: conn, WriteCloser: conn, Reader: bufio.NewReaderSize(conn, 64<<10)}
	if err := s.readGreeting(h.node); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, errors.Join(fmt.Errorf("node %s by ssh: %w", h.node, err), ignoreClosed(conn.Close()))
	}
	_ = conn.SetDeadline(time.Time{})
	return s, nil
}

// readGreeting reads until the first line of node.pl. It skips other output of the login shell.
func (s *session) readGreeting(node string) error {
	for noise := 0; noise < maxNoise; {
		text, err := s.ReadString('\n')
		if err != nil {
			return noAnswer(err)
		}
		if how, ok := strings.CutPrefix(text, "decamp: ready "); ok {
			s.how = strings.TrimSpace(how)
			return nil
		}
		if no, ok := strings.CutPrefix(text, "decamp: no "); ok {
			why, words, _ := strings.Cut(fault.Line(no), " ")
			return nodeRefusal(why, words, node)
		}
		noise += len(text)
	}
	return fault.New(fault.Corrupt, "its output does not contain the expected line").WithHint("remove the output of its shell at login: ssh NODE true")
}

// noAnswer returns the error for a session that ended unexpectedly.
func noAnswer(err error) error {
	var own *fault.Error
	if errors.As(err, &own) {
		return err
	}
	return fault.New(fault.Unreachable, "no answer: %w", err).WithHint("test the login: ssh -o BatchMode=yes NODE pvesm status")
}

// nodeRefusal returns the error for a reason that node.pl reports. why is a keyword, words the rest of
// the line, and node
// the expected node.
func nodeRefusal(why, words, node string) error {
	switch why {
	case "node":
		return fault.New(fault.Invalid, "ssh= connects to %s, but the target node is %s", words, node).
			WithHint("use the same node in both: proxmox:https://HOST:8006/%s?ssh=root@THE-ADDRESS-OF-%s", node, node)
	case "root":
		return fault.New(fault.Denied, "user %s may not write to volumes", words).WithHint("log in as root: ssh=root@HOST")
	case "tool":
		return fault.New(fault.Unsupported, "the node has no %s", words).
			WithHint("ssh= must name a node of Proxmox VE (apt install --reinstall pve-qemu-kvm libpve-storage-perl coreutils); or remove ssh=, to upload disks")
	case "volume":
		return fault.New(fault.NotFound, "the node does not have the volume: %s", words).WithHint("on the node: pvesm status; pvesm list STORAGE")
	case "inactive":
		return fault.New(fault.Unsupported, "the node cannot activate the volume: %s", words).
			WithHint("on the node: lvs -o lv_name,lv_active, then lvchange -ay VG/LV; or set another storage with storage=")
	case "busy":
		return fault.New(fault.Transient, "the volume is in use: %s", words).WithHint("find the process, on the node: fuser -v PATH (PATH is the output of pvesm path VOLUME)")
	}
	return fault.New(fault.Unsupported, "the node cannot open the volume: %s", words).WithHint("try it on the node: qemu-nbd -f raw -r PATH (PATH is the output of pvesm path VOLUME)")
}

// ignoreClosed returns nil for net.ErrClosed, which closing a broken connection returns.
func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// nodeVolume is an open volume on the node: an NBD connection for reads and writes, and a session for
// sums.
type nodeVolume struct {
	*nbd.Client
	sums *session // session in the mode "sum"
}

// openVolume opens a volume on the node for writing. It runs two sessions: qemu-nbd, and a program that
// computes sums.
// The caller closes the volume.
func (h nodeShell) openVolume(ctx context.Context, volume string) (*nodeVolume, error) {
	w, err := h.openSession(ctx, "write", volume)
	if err != nil {
		return nil, err
	}
	client, err := nbd.New(struct {
		io.Reader
		io.WriteCloser
	}{w.Reader, w.conn})
	if err != nil {
		return nil, err
	}
	if err := client.Writable(); err != nil {
		return nil, errors.Join(err, ignoreClosed(client.Close()))
	}
	sums, err := h.openSession(ctx, "sum", volume)
	if err != nil {
		return nil, errors.Join(err, ignoreClosed(client.Close()))
	}
	return &nodeVolume{client, sums}, nil
}

// Close closes both connections.
func (b *nodeVolume) Close() error {
	return errors.Join(ignoreClosed(b.Client.Close()), ignoreClosed(b.sums.conn.Close()))
}

// checkNode returns an error unless the login works and the node has the required programs.
func (h nodeShell) checkNode(ctx context.Context) error {
	s, err := h.openSession(ctx, "check", "")
	if err != nil {
		return err
	}
	return ignoreClosed(s.conn.Close())
}
