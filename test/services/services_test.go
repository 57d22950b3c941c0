// Package services tests the systemd units with the tools of systemd, and starts decamp with the command lines of the
// units.
package services

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/lab/executable"
	"github.com/decamp/decamp/internal/lab/postgres"
	"github.com/decamp/decamp/test/program"
)

// binary is the path of the decamp that TestMain built.
var binary string

func TestMain(m *testing.M) { os.Exit(program.Main(m, &binary)) }

// unitsFolder is the folder of the units.
const unitsFolder = "../../packaging/systemd"

// waitLimit is the maximum time that a test waits for another process.
const waitLimit = 2 * time.Minute

// maxExposure are the highest permitted results of systemd-analyze security.
var maxExposure = map[string]float64{"decamp-server.service": 2.0, "decamp-worker.service": 2.0}

// systemd-analyze verify finds no errors in the units.
func TestUnitsAreValid(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "usr/lib/systemd/system")
	must(t, os.MkdirAll(dir, 0o755))
	must(t, os.MkdirAll(filepath.Join(root, "usr/bin"), 0o755))
	executable.Write(t, filepath.Join(root, "usr/bin/decamp"), "#!/bin/true\n")
	var names []string
	for _, pattern := range []string{"*.service", "*.socket", "*.target"} {
		found, err := filepath.Glob(filepath.Join(unitsFolder, pattern))
		must(t, err)
		for _, path := range found {
			text, err := os.ReadFile(path)
			must(t, err)
			must(t, os.WriteFile(filepath.Join(dir, filepath.Base(path)), text, 0o644))
			names = append(names, filepath.Base(path))
		}
	}
	if len(names) != 4 {
		t.Fatalf("units %q", names)
	}
	for _, standard := range []string{"sysinit.target", "basic.target", "shutdown.target", "multi-user.target", "network-online.target", "sockets.target", "-.mount", "tmp.mount", "system.slice", "paths.target", "slices.target", "timers.target", "local-fs.target"} {
		text, err := os.ReadFile(filepath.Join("/usr/lib/systemd/system", standard))
		if err != nil { // created by systemd itself
			continue
		}
		must(t, os.WriteFile(filepath.Join(dir, standard), text, 0o644))
	}
	out, err := exec.CommandContext(t.Context(), "systemd-analyze", append([]string{"verify", "--root=" + root, "--man=no", "--recursive-errors=no"}, names...)...).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	broken := filepath.Join(dir, "broken.service")
	must(t, os.WriteFile(broken, []byte("[Service]\nExecStart=/usr/bin/decamp\nProtectSystm=yes\n"), 0o644))
	if out, _ := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--root="+root, "--man=no", "broken.service").CombinedOutput(); !strings.Contains(string(out), "ProtectSystm") {
		t.Errorf("systemd-analyze verify accepts an unknown key: %s", out)
	}
}

// The exposure of each service is below its limit.
func TestServicesAreHardened(t *testing.T) {
	for unit, limit := range maxExposure {
		out, err := exec.CommandContext(t.Context(), "systemd-analyze", "security", "--offline=true", "--no-pager", filepath.Join(unitsFolder, unit)).CombinedOutput()
		must(t, err)
		found := regexp.MustCompile(`Overall exposure level for \S+: ([0-9.]+)`).FindSubmatch(out)
		if found == nil {
			t.Fatalf("%s", out)
		}
		exposure, err := strconv.ParseFloat(string(found[1]), 64)
		must(t, err)
		if t.Logf("%s: %.1f", unit, exposure); exposure > limit {
			t.Errorf("the exposure of %s is %.1f, want at most %.1f:\n%s", unit, exposure, limit, out)
		}
	}
}

// systemd-sysusers and systemd-tmpfiles create the user and the folders of the units.
func TestUserAndFoldersAreCreated(t *testing.T) {
	root := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(root, "etc"), 0o755))
	run := func(tool string, args ...string) {
		t.Helper()
		path, err := filepath.Abs(filepath.Join(unitsFolder, strings.Replace(tool, "systemd-", "decamp.", 1)+".conf"))
		must(t, err)
		if out, err := exec.CommandContext(t.Context(), tool, append(args, "--root="+root, path)...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", tool, err, out)
		}
	}
	run("systemd-sysusers")
	users, err := os.ReadFile(filepath.Join(root, "etc/passwd"))
	must(t, err)
	if !regexp.MustCompile(`(?m)^decamp:x:\d+:\d+:decamp:/var/lib/decamp:/usr/sbin/nologin$`).Match(users) {
		t.Errorf("users:\n%s", users)
	}
	groups, err := os.ReadFile(filepath.Join(root, "etc/group"))
	must(t, err)
	if !regexp.MustCompile(`(?m)^kvm:`).Match(groups) {
		t.Errorf("the worker's group kvm does not exist:\n%s", groups)
	}
	run("systemd-tmpfiles", "--create")
	for name, mode := range map[string]os.FileMode{"etc/decamp": 0o755, "etc/credstore": 0o700, "var/lib/decamp": 0o711, "var/lib/decamp/server": 0o700, "var/lib/decamp/worker": 0o700} {
		info, err := os.Stat(filepath.Join(root, name))
		must(t, err)
		if info.Mode().Perm() != mode {
			t.Errorf("/%s has the mode %v, want %v", name, info.Mode().Perm(), mode)
		}
	}
}

// unitValues returns the values of a key in a unit.
func unitValues(t *testing.T, unit, key string) (values []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(unitsFolder, unit))
	must(t, err)
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, key+"="); ok {
			values = append(values, strings.TrimSpace(value))
		}
	}
	return values
}

// A service is a decamp process that a test starts like systemd.
type service struct {
	*exec.Cmd
	t      *testing.T
	notify *net.UnixConn
	state  string
	stderr *bufio.Reader
}

// startUnit starts the command line of a unit with the protocols of systemd: a socket for notifications, a folder of
// credentials, and sockets. It waits until the service is ready.
func startUnit(t *testing.T, unit string, credentials map[string]string, socket *os.File, env ...string) *service {
	t.Helper()
	dir := t.TempDir()
	s := &service{t: t, state: filepath.Join(dir, "state")}
	must(t, os.MkdirAll(filepath.Join(dir, "credentials"), 0o700))
	must(t, os.MkdirAll(filepath.Join(s.state, "decamp", "worker"), 0o700))
	for _, name := range unitValues(t, unit, "LoadCredential") {
		name, _, _ = strings.Cut(name, ":")
		if text, given := credentials[name]; given {
			must(t, os.WriteFile(filepath.Join(dir, "credentials", name), []byte(text), 0o400))
		}
		delete(credentials, name)
	}
	if len(credentials) > 0 {
		t.Fatalf("%s does not load %v", unit, credentials)
	}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"})
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	s.notify = conn
	line := unitValues(t, unit, "ExecStart")[0]
	line = strings.NewReplacer("/usr/bin/decamp", "exec "+binary, "%S", s.state, "--log-format journal", "--log-format json").Replace(line)
	if socket != nil {
		line = "LISTEN_PID=$$ LISTEN_FDS=1 " + line
	}
	s.Cmd = exec.Command("/bin/sh", "-c", line)
	s.Env = append([]string{"PATH=" + os.Getenv("PATH"), "NOTIFY_SOCKET=" + filepath.Join(dir, "notify"), "CREDENTIALS_DIRECTORY=" + filepath.Join(dir, "credentials"), "HOME=" + dir}, env...)
	if seconds := unitValues(t, unit, "WatchdogSec"); len(seconds) > 0 {
		s.Env = append(s.Env, "WATCHDOG_USEC=200000") // shorter than the limit of the unit, so that a test can wait for it
	}
	if socket != nil {
		s.ExtraFiles = []*os.File{socket}
	}
	s.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	pipe, err := s.StderrPipe()
	must(t, err)
	s.stderr = bufio.NewReader(pipe)
	must(t, s.Start())
	t.Cleanup(func() { _ = s.Process.Kill(); _ = s.Wait() })
	return s
}

// waitNotification waits for a notification with a prefix and returns it.
func (s *service) waitNotification(prefix string) string {
	s.t.Helper()
	_ = s.notify.SetReadDeadline(time.Now().Add(waitLimit))
	for text := make([]byte, 1000); ; {
		n, err := s.notify.Read(text)
		if err != nil {
			rest, _ := io.ReadAll(s.stderr)
			s.t.Fatalf("no notification %s: %v\n%s", prefix, err, rest)
		}
		if strings.HasPrefix(string(text[:n]), prefix) {
			return string(text[:n])
		}
	}
}

// stop sends SIGTERM and waits for the notification and the end of the service.
func (s *service) stop() {
	s.t.Helper()
	must(s.t, s.Process.Signal(syscall.SIGTERM))
	s.waitNotification("STOPPING=1")
	if err := s.Wait(); err != nil {
		s.t.Errorf("SIGTERM ends the service with %v", err)
	}
}

// The server uses the socket of decamp-server.socket, and reads the fleet key and the access file from credentials. It
// sends notifications when it is ready, for the watchdog and when it stops. All lines of its log are JSON.
func TestServerRunsAsItsUnit(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	socket, err := l.(*net.TCPListener).File()
	must(t, err)
	defer socket.Close()
	key := newKey(t)
	s := startUnit(t, "decamp-server.service", map[string]string{"fleet.key": key, "access.yaml": "version: 1\n"}, socket)
	if got := s.waitNotification("READY=1"); !strings.Contains(got, "serving on "+l.Addr().String()) {
		t.Errorf("notification %q", got)
	}
	s.waitNotification("WATCHDOG=1")
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	resp, err := client.Get("https://" + l.Addr().String() + "/readyz")
	must(t, err)
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("GET /readyz: %s", resp.Status)
	}
	if _, err := os.Stat(filepath.Join(s.state, "decamp", "fleet.key")); err == nil {
		t.Error("the server created a fleet key although it has the credential")
	}
	client.CloseIdleConnections()
	log := make(chan string)
	go func() {
		text, _ := io.ReadAll(s.stderr)
		log <- string(text)
	}()
	must(t, s.Process.Signal(syscall.SIGTERM))
	s.waitNotification("STOPPING=1")
	text := <-log
	if err := s.Wait(); err != nil {
		t.Errorf("SIGTERM ends the service with %v", err)
	}
	for line := range strings.Lines(text) {
		if !json.Valid([]byte(line)) {
			t.Errorf("the log contains the line %q, which is not JSON", line)
		}
	}
	if strings.Contains(text, strings.TrimSpace(key)) {
		t.Error("the log contains the fleet key")
	}
}

// The worker reads the database and its flags from its environment and its key from a credential. It sends notifications
// when it is ready and when it stops.
func TestWorkerRunsAsItsUnit(t *testing.T) {
	db := postgres.Start(t)
	s := startUnit(t, "decamp-worker.service", map[string]string{"fleet.key": newKey(t)}, nil,
		"DECAMP_DB="+db.URL(), "DECAMP_WORKER_OPTIONS=--name rack1 --offer "+t.TempDir())
	if got := s.waitNotification("READY=1"); !strings.Contains(got, "STATUS=worker rack1") {
		t.Errorf("notification %q", got)
	}
	go func() { _, _ = io.Copy(io.Discard, s.stderr) }()
	s.stop()
}

// The server ends with an error that contains the file if a credential is invalid.
func TestServerRefusesABadCredential(t *testing.T) {
	for name, text := range map[string]string{"fleet.key": "no key\n", "access.yaml": "version: 1\ncredentals: {}\n"} {
		s := startUnit(t, "decamp-server.service", map[string]string{name: text}, nil, "DECAMP_SERVE_OPTIONS=--listen 127.0.0.1:0")
		output, err := io.ReadAll(s.stderr)
		must(t, err)
		if err := s.Wait(); err == nil || !strings.Contains(string(output), "credentials/"+name) {
			t.Errorf("with an invalid %s the server ends with %v: %s", name, err, output)
		}
	}
}

// newKey returns the text of a fleet key.
func newKey(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fleet.key")
	if out, err := exec.CommandContext(t.Context(), binary, "key", "new", path).CombinedOutput(); err != nil {
		t.Fatalf("decamp key new: %v\n%s", err, out)
	}
	text, err := os.ReadFile(path)
	must(t, err)
	return string(text)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
