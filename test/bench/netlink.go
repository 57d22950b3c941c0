package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
)

// A netLink is two network namespaces with a virtual link between them, whose rate and
// MTU can be set. One end represents the host, the other this machine. It requires
// root. The namespaces end with the processes that own them.
type netLink struct {
	host, here *linkEnd // ends of the link
}

// linkEnd is a network namespace with the process that owns it.
type linkEnd struct {
	holder *exec.Cmd // process that owns the namespace
	stdin  io.Closer // closing it ends the process
}

// The addresses of the ends (RFC 2544, for benchmarks).
const (
	hostAddr = "198.18.0.1" // address of the host's end
	hereAddr = "198.18.0.2" // address of this machine's end

	wireName = "wire" // name of the interface at both ends
	wireNet  = "/30"  // prefix length of the addresses

	// bucket of tbf: several of the largest frames
	wireBurst   = "64k"
	wireLatency = "50ms" // limit of tbf's queue
)

// newNetLink creates both namespaces and the link. The link is down until setRate. The
// caller must close the result.
func newNetLink(ctx context.Context) (w *netLink, err error) {
	if err := requirePrograms("unshare", "nsenter", "ip", "tc"); err != nil {
		return nil, err
	}
	w = &netLink{}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	if w.host, err = newLinkEnd(ctx); err != nil {
		return nil, err
	}
	if w.here, err = newLinkEnd(ctx); err != nil {
		return nil, err
	}
	// A veth pair is the link. Its other end is created in the namespace of this
	// machine.
	if err := w.host.runCommand(ctx, "ip", "link", "add", wireName, "type", "veth", "peer", "name", wireName, "netns", strconv.Itoa(w.here.holder.Process.Pid)); err != nil {
		return nil, err
	}
	for _, e := range []struct {
		*linkEnd
		addr string
	}{{w.host, hostAddr}, {w.here, hereAddr}} {
		if err := e.runCommand(ctx, "ip", "addr", "add", e.addr+wireNet, "dev", wireName); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// newLinkEnd creates a namespace that contains only a loopback interface.
func newLinkEnd(ctx context.Context) (*linkEnd, error) {
	e := &linkEnd{holder: exec.CommandContext(ctx, "unshare", "--net", "sh", "-c", "ip link set lo up && echo up && exec cat")}
	e.holder.Stderr = os.Stderr
	stdin, err := e.holder.StdinPipe()
	if err != nil {
		return nil, err
	}
	said, err := e.holder.StdoutPipe()
	if err != nil {
		return nil, err
	}
	e.stdin = stdin
	if err := e.holder.Start(); err != nil {
		return nil, err
	}
	if _, err := bufio.NewReader(said).ReadString('\n'); err != nil {
		e.close()
		return nil, fmt.Errorf("make a network of one's own (needs root): %w", err)
	}
	return e, nil
}

// close ends the process that owns the namespace. e may be nil.
func (e *linkEnd) close() {
	if e == nil {
		return
	}
	e.stdin.Close()
	_ = e.holder.Wait() // the process ends when its input is closed
}

// close removes both namespaces.
func (w *netLink) close() {
	w.host.close()
	w.here.close()
}

// setRate sets the MTU of both ends, and the rate of frames from the host in bits per
// second. It also brings the link up.
func (w *netLink) setRate(ctx context.Context, bits int64, mtu int) error {
	for _, e := range []*linkEnd{w.host, w.here} {
		if err := e.runCommand(ctx, "ip", "link", "set", wireName, "mtu", strconv.Itoa(mtu), "up"); err != nil {
			return err
		}
	}
	// Only the host's direction carries data, so only it has a limit.
	return w.host.runCommand(ctx, "tc", "qdisc", "replace", "dev", wireName, "root", "tbf", "rate", formatInt(bits)+"bit", "burst", wireBurst, "latency", wireLatency)
}

// command returns a command that runs a program in the namespace. The started process
// becomes the program.
func (e *linkEnd) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	ns := fmt.Sprintf("--net=/proc/%d/ns/net", e.holder.Process.Pid)
	return exec.CommandContext(ctx, "nsenter", append([]string{ns, name}, args...)...)
}

// runCommand runs a command in the namespace until it ends. The error contains the last
// line of its output.
func (e *linkEnd) runCommand(ctx context.Context, name string, args ...string) error {
	if out, err := e.command(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %q: %w: %s", name, args, err, lastLine(string(out)))
	}
	return nil
}

// roleCommand returns the command for one of this program's roles in the namespace.
func (e *linkEnd) roleCommand(ctx context.Context, role string, job any) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	spec, err := json.Marshal(job)
	if err != nil {
		return nil, err
	}
	cmd := e.command(ctx, self, "child", role, string(spec))
	cmd.Stderr = os.Stderr
	return cmd, nil
}
