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

// onNode is what runs on the node, by its perl. It is sent each time: nothing is installed there.
//
//go:embed node.pl
var onNode string

const (
	nodePatience = 2 * time.Minute // for a node to log us in and open a volume
	endPatience  = 20 * time.Second

	maxNoise = 64 << 10 // bytes of greetings that a shell's start-up files may print
)

// A session is one program on the node.
type session struct {
	io.WriteCloser
	*bufio.Reader
	conn net.Conn
	how  string // direct, cached or remote: from where the node reads the volume
}

// dial starts a program on the node by SSH.
func (o Options) dial(command string) (net.Conn, error) {
	conn, err := o.ssh.Start(command)
	if err != nil { // not a nil *ssh.Conn in the interface
		return nil, err
	}
	return conn, nil
}

// parseLogin reads USER@HOST:PORT.
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
	option := strings.HasPrefix(user, "-") || strings.HasPrefix(host, "-") // ssh would take it for one
	if !isName(user) || host == "" || option || strings.ContainsAny(host, " \t\n/@") || strings.Trim(port, "0123456789") != "" {
		return ssh.Login{}, fault.New(fault.Invalid, "%q is no login by SSH", text).WithHint("write ssh=root@HOST, or ssh=root@HOST:PORT")
	}
	return ssh.Login{User: user, Host: host, Port: port, Patience: endPatience, Exit: badExit}, nil
}

// badExit is for a program that ended without a word of ours.
func badExit(status int, err error) error {
	if status == 126 || status == 127 {
		return fault.New(fault.Unsupported, "%w", err).WithHint("ssh= has to be a node of Proxmox VE, where perl is: ssh NODE perl -v")
	}
	return fault.New(fault.Unreachable, "%w", err).WithHint("see what the node says: ssh NODE pvesm status")
}

// A nodeShell runs node.pl on a node by SSH. It has no state and is safe for concurrent use.
type nodeShell struct {
	node string
	dial func(command string) (net.Conn, error) // starts a program on the node
}

// open starts node.pl on the node, and reads its first line.
func (h nodeShell) open(ctx context.Context, mode, volume string) (*session, error) {
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
	_ = conn.SetReadDeadline(time.Now().Add(nodePatience)) // a socket pair has deadlines
	s := &session{conn: conn, WriteCloser: conn, Reader: bufio.NewReaderSize(conn, 64<<10)}
	if err := s.greeting(h.node); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, errors.Join(fmt.Errorf("node %s by ssh: %w", h.node, err), ignoreClosed(conn.Close()))
	}
	_ = conn.SetDeadline(time.Time{})
	return s, nil
}

// greeting reads until the line that node.pl begins with.
func (s *session) greeting(node string) error {
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
	return fault.New(fault.Corrupt, "it says much, and nothing that is expected").WithHint("see what its shell prints at login: ssh NODE true")
}

func noAnswer(err error) error {
	var own *fault.Error
	if errors.As(err, &own) {
		return err
	}
	return fault.New(fault.Unreachable, "no answer: %w", err).WithHint("see how far it comes: ssh -o BatchMode=yes NODE pvesm status")
}

// nodeRefusal is the error for what node.pl does not do.
func nodeRefusal(why, words, node string) error {
	switch why {
	case "node":
		return fault.New(fault.Invalid, "ssh= leads to %s, and the guest is to be on %s", words, node).
			WithHint("name the same machine: proxmox:https://HOST:8006/%s?ssh=root@THE-ADDRESS-OF-%s", node, node)
	case "root":
		return fault.New(fault.Denied, "user %s may not write to volumes", words).WithHint("log in as root: ssh=root@HOST")
	case "tool":
		return fault.New(fault.Unsupported, "the node has no %s", words).
			WithHint("ssh= has to be a node of Proxmox VE, which has it (apt install --reinstall pve-qemu-kvm libpve-storage-perl coreutils); or leave ssh= away: then disks are uploaded")
	case "volume":
		return fault.New(fault.NotFound, "the node does not know the volume: %s", words).WithHint("on the node: pvesm status; pvesm list STORAGE")
	case "inactive":
		return fault.New(fault.Unsupported, "the node cannot activate the volume: %s", words).
			WithHint("on the node: lvs -o lv_name,lv_active, then lvchange -ay VG/LV; or name another storage with storage=")
	case "busy":
		return fault.New(fault.Transient, "the volume is in use: %s", words).WithHint("see by whom, on the node: fuser -v PATH (pvesm path VOLUME tells it)")
	}
	return fault.New(fault.Unsupported, "the node cannot open the volume: %s", words).WithHint("try it there: qemu-nbd -f raw -r PATH (pvesm path VOLUME tells it)")
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// A both is a volume that is open for writing, and for its sums.
type both struct {
	*nbd.Client
	sums *session
}

// attach opens a volume on the node.
func (h nodeShell) attach(ctx context.Context, volume string) (*both, error) {
	w, err := h.open(ctx, "write", volume)
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
	sums, err := h.open(ctx, "sum", volume)
	if err != nil {
		return nil, errors.Join(err, ignoreClosed(client.Close()))
	}
	return &both{client, sums}, nil
}

func (b *both) Close() error {
	return errors.Join(ignoreClosed(b.Client.Close()), ignoreClosed(b.sums.conn.Close()))
}

// check reports whether the login works and the node has the required programs.
func (h nodeShell) check(ctx context.Context) error {
	s, err := h.open(ctx, "check", "")
	if err != nil {
		return err
	}
	return ignoreClosed(s.conn.Close())
}
