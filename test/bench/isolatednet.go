package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// An isolatedNet is a network namespace with a port mapper. A server in it can use the
// ports of NFS without a conflict with servers of this machine. It requires root.
type isolatedNet struct {
	rpcbind *exec.Cmd // process of the port mapper, which owns the namespaces
	dir     string    // directory for ganesha's configuration, log and pid file
}

// isolatedScript sets up the new namespaces, prints a line, and becomes the port
// mapper.
const isolatedScript = `ip link set lo up && mount -t tmpfs tmpfs /run && mkdir -p /run/rpcbind && echo up && exec rpcbind -w -f`

// startPatience limits the start of a server.
const startPatience = 30 * time.Second

// newIsolatedNet starts the port mapper in new namespaces. dir is for files of ganesha.
// The caller must close the result.
func newIsolatedNet(ctx context.Context, dir string) (*isolatedNet, error) {
	if err := requirePrograms("unshare", "nsenter", "ip", "mount", "rpcbind", "ganesha.nfsd"); err != nil {
		return nil, err
	}
	a := &isolatedNet{dir: dir, rpcbind: exec.CommandContext(ctx, "unshare", "--net", "--mount", "sh", "-c", isolatedScript)}
	a.rpcbind.Stderr = os.Stderr
	said, err := a.rpcbind.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := a.rpcbind.Start(); err != nil {
		return nil, err
	}
	// A process that joins before the namespace exists stays in the namespace of this
	// machine.
	if _, err := bufio.NewReader(said).ReadString('\n'); err != nil {
		a.close()
		return nil, fmt.Errorf("start a network of one's own (needs root): %w", err)
	}
	return a, nil
}

// close ends the port mapper, and with it the namespaces.
func (a *isolatedNet) close() {
	_ = a.rpcbind.Process.Kill() // rpcbind has no state to lose
	_ = a.rpcbind.Wait()
}

// command returns a command that runs a program in the namespaces. The started process
// becomes the program, so that its process ID is that of the program.
func (a *isolatedNet) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	// The namespaces are those of the port mapper's process.
	ns := fmt.Sprintf("/proc/%d/ns/", a.rpcbind.Process.Pid)
	return exec.CommandContext(ctx, "nsenter", append([]string{"--net=" + ns + "net", "--mount=" + ns + "mnt", name}, args...)...)
}

// runRole runs one of this program's roles in the namespaces and decodes its result;
// see runChild.
func (a *isolatedNet) runRole(ctx context.Context, result any, role string, job any) error {
	cmd, err := a.roleCommand(ctx, role, job)
	if err != nil {
		return err
	}
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("child %s: %w", role, err)
	}
	return json.Unmarshal(out, result)
}

// roleCommand returns the command for a role with its input as JSON.
func (a *isolatedNet) roleCommand(ctx context.Context, role string, job any) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	spec, err := json.Marshal(job)
	if err != nil {
		return nil, err
	}
	cmd := a.command(ctx, self, "child", role, string(spec))
	cmd.Stderr = os.Stderr
	return cmd, nil
}

// An nfsServer is a server in a separate process.
type nfsServer struct {
	serverFacts
	path string    // path of the export
	cmd  *exec.Cmd // process of the server
	end  func()    // makes the server end; nil before it was started
}

// startServer starts one of this program's servers in the namespaces.
func (a *isolatedNet) startServer(ctx context.Context, role string, job any) (*nfsServer, error) {
	cmd, err := a.roleCommand(ctx, role, job)
	if err != nil {
		return nil, err
	}
	s, err := startServer(cmd)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", role, err)
	}
	return s, nil
}

// startServer starts a command of a role that serves, and waits until it prints its
// addresses.
func startServer(cmd *exec.Cmd) (*nfsServer, error) {
	s := &nfsServer{path: landExport, cmd: cmd}
	stdin, err := s.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	s.end = func() { stdin.Close() }
	// The server prints its addresses in one line when it listens.
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &s.serverFacts)
	}
	if err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// ganeshaConf is a usual configuration of ganesha for ESXi, without optional protocols.
const ganeshaConf = `
NFS_CORE_PARAM { Protocols = 3; Enable_NLM = false; Enable_RQUOTA = false; mount_path_pseudo = false; }
EXPORT { Export_Id = 1; Path = %s; Pseudo = /x; Access_Type = RW; Squash = No_Root_Squash; SecType = sys; Protocols = 3; FSAL { Name = VFS; } }
`

// startGanesha starts nfs-ganesha, which exports a folder, and waits until the folder
// can be mounted.
func (a *isolatedNet) startGanesha(ctx context.Context, dir string) (*nfsServer, error) {
	conf, log := filepath.Join(a.dir, "ganesha.conf"), filepath.Join(a.dir, "ganesha.log")
	if err := os.WriteFile(conf, fmt.Appendf(nil, ganeshaConf, dir), 0o600); err != nil {
		return nil, err
	}
	s := &nfsServer{path: dir, serverFacts: serverFacts{Portmap: "127.0.0.1:111"}}
	s.cmd = a.command(ctx, "ganesha.nfsd", "-F", "-f", conf, "-L", log, "-p", filepath.Join(a.dir, "ganesha.pid"))
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	s.end = func() { _ = s.cmd.Process.Kill() } // fails if the process has ended
	if err := a.awaitMount(ctx, s); err != nil {
		s.stop()
		said, _ := os.ReadFile(log) // the first error counts
		return nil, fmt.Errorf("start ganesha: %w: %s", err, lastLine(string(said)))
	}
	return s, nil
}

// awaitMount waits until a server can be mounted.
func (a *isolatedNet) awaitMount(ctx context.Context, s *nfsServer) error {
	var t measurement
	return a.runRole(ctx, &t, "mounts", streamJob{Server: s.serverFacts, Path: s.path})
}

// stop ends the server and waits. It does nothing if the server was not started.
func (s *nfsServer) stop() {
	if s.end == nil {
		return
	}
	s.end()
	_ = s.cmd.Wait() // its errors are on stderr
}

// ticksPerSecond is USER_HZ, the unit of processor time in /proc.
const ticksPerSecond = 100

// cpuOf returns the processor seconds that a process has used. It fails if the process
// does not exist.
func cpuOf(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, ok := strings.Cut(string(text), ") ")
	f := strings.Fields(rest)
	const utime, stime = 11, 12 // fields 14 and 15 of proc_pid_stat(5), without the two fields that are cut off
	if !ok || len(f) <= stime {
		return 0, fmt.Errorf("%q is no /proc/PID/stat", text)
	}
	var sum float64
	for _, field := range []string{f[utime], f[stime]} {
		ticks, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return 0, err
		}
		sum += ticks
	}
	return sum / ticksPerSecond, nil
}
