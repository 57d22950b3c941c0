// Package postgres starts a real PostgreSQL for tests: Debian's, in a temporary folder, on a reserved
// loopback port. Tests can stop, suspend and kill it.
package postgres

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/lab/loopback"
)

// binaries matches the folders in which Debian installs the server programs, outside of the PATH.
const binaries = "/usr/lib/postgresql/*/bin"

// A Server is a running PostgreSQL. Its methods must be called by the goroutine of the test.
type Server struct {
	t       testing.TB // test that the server belongs to
	dir     string     // folder with the data and the Unix socket
	addr    string     // host:port
	options []string   // arguments of the server process
	cmd     *exec.Cmd  // server process; nil before the first start
}

// Start runs a PostgreSQL until the test ends, and then removes its data. The data survive Kill, but not a
// power loss: writes that the disk must confirm cost most of the time of small transactions.
func Start(t testing.TB) *Server {
	t.Helper()
	return StartAt(t, "127.0.0.1")
}

// StartAt is Start at another address of this machine. The server requires no password. Under -short
// the test is skipped, because a server takes seconds to start.
func StartAt(t testing.TB, host string) *Server {
	t.Helper()
	return start(t, memoryFolder(), host, "fsync=off", "full_page_writes=off")
}

// StartDurable is Start with the durability of PostgreSQL's default configuration, for benchmarks.
func StartDurable(t testing.TB) *Server {
	t.Helper()
	return start(t, "", "127.0.0.1")
}

// start starts a server with these settings, whose files are in a new folder under parent.
func start(t testing.TB, parent, host string, settings ...string) *Server {
	t.Helper()
	if testing.Short() {
		t.Skip("starts PostgreSQL")
	}
	dir, err := os.MkdirTemp(parent, "decamp-postgres-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &Server{t: t, dir: dir, addr: loopback.ReserveAt(t, host)}
	_, port := s.hostPort()
	s.options = []string{"-D", s.data(), "-p", port, "-k", dir}
	for _, setting := range append(settings, "listen_addresses="+host, "max_connections=200") {
		s.options = append(s.options, "-c", setting)
	}
	s.setOwner(dir)
	s.createData()
	s.allowRemote()
	s.Restart()
	t.Cleanup(s.Kill)
	return s
}

// data returns the folder with the data.
func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// allowRemote permits connections from 10.0.0.0/8, for tests in network namespaces.
func (s *Server) allowRemote() {
	s.t.Helper()
	rules, err := os.OpenFile(filepath.Join(s.data(), "pg_hba.conf"), os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		_, err = rules.WriteString("host all all 10.0.0.0/8 trust\n")
		err = errors.Join(err, rules.Close())
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// URL returns the connection URL of the database.
func (s *Server) URL() string {
	return fmt.Sprintf("postgres://decamp@%s/postgres?sslmode=disable", s.addr)
}

// Addr returns the host:port of the server.
func (s *Server) Addr() string { return s.addr }

// hostPort returns host and port of the address.
func (s *Server) hostPort() (host, port string) {
	s.t.Helper()
	host, port, err := net.SplitHostPort(s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	return host, port
}

// Restart starts the server again after Stop or Kill, and returns when it accepts connections.
func (s *Server) Restart() {
	s.t.Helper()
	s.cmd = s.command("postgres", s.options...)
	if err := s.cmd.Start(); err != nil {
		s.t.Fatalf("start postgres: %v", err)
	}
	const patience = time.Minute
	for began := time.Now(); !s.isReady(); time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > patience {
			s.t.Fatalf("postgres does not come up within %v", patience)
		}
	}
}

// isReady reports whether the server accepts connections. It writes that to its PID file, after the PID.
func (s *Server) isReady() bool {
	text, err := os.ReadFile(filepath.Join(s.data(), "postmaster.pid"))
	words := strings.Fields(string(text))
	return err == nil && len(words) > 0 && words[0] == strconv.Itoa(s.cmd.Process.Pid) && words[len(words)-1] == "ready"
}

// Stop ends the server in order (fast shutdown): connections are closed, no data is lost.
func (s *Server) Stop() { s.signalAndWait(syscall.SIGINT) }

// Kill ends the server and its children at once (immediate shutdown), as a crash does.
func (s *Server) Kill() { s.signalAndWait(syscall.SIGQUIT) }

// Suspend suspends the server and its children until Continue. Connections stay open.
func (s *Server) Suspend() { s.signalAll(syscall.SIGSTOP) }

// Continue resumes the server after Suspend.
func (s *Server) Continue() { s.signalAll(syscall.SIGCONT) }

// signalAndWait sends a signal to the server, if it runs, and waits for its end.
func (s *Server) signalAndWait(how syscall.Signal) {
	if s.cmd == nil || s.cmd.ProcessState != nil {
		return
	}
	_ = s.cmd.Process.Signal(how) // fails if it has ended
	_ = s.cmd.Wait()              // the error is the signal
}

// Processes returns the PIDs of the server and its children, one for each connection.
func (s *Server) Processes() (pids []int) {
	s.t.Helper()
	pid := s.cmd.Process.Pid
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		s.t.Fatalf("find children of postgres: %v", err)
	}
	for _, child := range strings.Fields(string(text)) {
		n, err := strconv.Atoi(child)
		if err != nil {
			s.t.Fatalf("find children of postgres: %v", err)
		}
		pids = append(pids, n)
	}
	return append(pids, pid)
}

// signalAll sends a signal to the server and its children, which have separate process groups.
func (s *Server) signalAll(sig syscall.Signal) {
	s.t.Helper()
	for _, pid := range s.Processes() {
		if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			s.t.Fatalf("signal postgres: %v", err)
		}
	}
}

// command returns a program of PostgreSQL, as the user postgres if this process is root. The program
// ends with this process.
func (s *Server) command(name string, args ...string) *exec.Cmd {
	s.t.Helper()
	found, err := filepath.Glob(filepath.Join(binaries, name))
	if err != nil || len(found) == 0 {
		s.t.Fatalf("no %s in %s: install postgresql", name, binaries)
	}
	cmd := exec.Command(found[len(found)-1], args...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGQUIT}
	if os.Geteuid() == 0 {
		uid, gid := s.postgresIDs()
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uid, Gid: gid}
	}
	return cmd
}

// setOwner gives a folder to the user postgres if this process is root.
func (s *Server) setOwner(dir string) {
	s.t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	uid, gid := s.postgresIDs()
	if err := os.Chown(dir, int(uid), int(gid)); err != nil {
		s.t.Fatal(err)
	}
}

// postgresIDs returns the account that Debian's package creates.
func (s *Server) postgresIDs() (uid, gid uint32) {
	s.t.Helper()
	u, err := user.Lookup("postgres")
	if err != nil {
		s.t.Fatalf("install postgresql: %v", err)
	}
	n, nerr := strconv.ParseUint(u.Uid, 10, 32)
	g, gerr := strconv.ParseUint(strings.TrimSpace(u.Gid), 10, 32)
	if err := errors.Join(nerr, gerr); err != nil {
		s.t.Fatal(err)
	}
	return uint32(n), uint32(g)
}
