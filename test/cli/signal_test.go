package cli

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/decamp/decamp/test/program"
)

// startServer starts decamp serve, with a wrapper such as nohup. It returns the process and its address.
func startServer(t *testing.T, state string, wrapper ...string) (*exec.Cmd, string) {
	t.Helper()
	argv := append(wrapper, binary, "serve", "--listen", "127.0.0.1:0", "--state", state, "--json")
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	var line struct{ Serving string }
	decodeLine(t, out, &line)
	return cmd, line.Serving
}

// After the first signal the server waits some seconds for the rest of a request. The second signal ends it immediately.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	token, err := exec.CommandContext(t.Context(), binary, "token", "add", "admin", "--role", "admin", "--state", state).Output()
	must(t, err)
	cmd, addr := startServer(t, state)
	silent, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true})
	must(t, err)
	defer silent.Close()
	_, err = fmt.Fprintf(silent, "POST /v1/plans HTTP/1.1\r\nHost: decamp\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n",
		strings.TrimSpace(string(token)))
	must(t, err)
	answer, err := bufio.NewReader(silent).ReadString('\n')
	if err != nil || !strings.HasPrefix(answer, "HTTP/1.1 100 ") { // the server waits for the body
		t.Fatalf("answer %q, %v", answer, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case <-ended:
			if s := cmd.ProcessState.Sys().(syscall.WaitStatus); !s.Signaled() || s.Signal() != syscall.SIGINT {
				t.Errorf("ended with %v, want by the signal", cmd.ProcessState)
			}
			return
		case <-time.After(20 * time.Millisecond): // signals without a pause can overflow the signal stack
			_ = cmd.Process.Signal(syscall.SIGINT) // fails if the process has ended
		}
	}
}

func TestNohupIsRespected(t *testing.T) {
	t.Parallel()
	program.Requires(t, "nohup")
	for wrapper, want := range map[string]bool{"env": false, "nohup": true} {
		cmd, _ := startServer(t, t.TempDir(), wrapper)
		if got := ignoresSignal(t, cmd.Process.Pid, syscall.SIGHUP); got != want {
			t.Errorf("under %s: SIGHUP ignored %v, want %v", wrapper, got, want)
		}
		must(t, cmd.Process.Signal(syscall.SIGTERM))
		must(t, cmd.Wait())
	}
}

// ignoresSignal reports whether a process ignores a signal.
func ignoresSignal(t *testing.T, pid int, s syscall.Signal) bool {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(t, err)
	_, after, _ := strings.Cut(string(status), "SigIgn:\t")
	mask, err := strconv.ParseUint(strings.Fields(after)[0], 16, 64)
	must(t, err)
	return mask&(1<<(s-1)) != 0
}
