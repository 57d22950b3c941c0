// Package systemd implements the protocols of systemd for services: readiness and watchdog, sockets that it opened,
// and credentials. Without systemd, its functions do nothing.
package systemd

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Notify sends a state to the service manager, as sd_notify(3) does. It returns nil without a service manager.
func Notify(state string) error {
	socket := os.Getenv("NOTIFY_SOCKET")
	if socket == "" {
		return nil
	}
	conn, err := net.Dial("unixgram", socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Write([]byte(state))
	return err
}

// Announce reports to the service manager that the service is ready, with a status for users, and that it stops when
// ctx ends. The process calls finish before it exits: if ctx has ended, finish waits until the stop is reported.
func Announce(ctx context.Context, status string) (finish func(), err error) {
	reported := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		defer close(reported)
		_ = Notify("STOPPING=1") // systemd also observes the end of the process
	})
	finish = func() {
		if !cancel() {
			<-reported
		}
	}
	return finish, Notify("READY=1\nSTATUS=" + status)
}

// WatchdogInterval returns the interval of notifications: half of the limit of systemd (sd_watchdog_enabled(3)). It is 0
// if systemd expects none from this process.
func WatchdogInterval() time.Duration {
	if pid := os.Getenv("WATCHDOG_PID"); pid != "" && pid != strconv.Itoa(os.Getpid()) || os.Getenv("NOTIFY_SOCKET") == "" {
		return 0
	}
	usec, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
	if err != nil || usec <= 0 {
		return 0
	}
	return time.Duration(usec) * time.Microsecond / 2
}

// firstSocket is the file descriptor of the first socket that systemd passes.
const firstSocket = 3

// Listener returns the listener of the one socket that systemd opened for this process (sd_listen_fds(3)). It is nil if
// systemd opened none. Several sockets are an error.
func Listener() (net.Listener, error) {
	count := os.Getenv("LISTEN_FDS")
	if count == "" || os.Getenv("LISTEN_PID") != strconv.Itoa(os.Getpid()) {
		return nil, nil
	}
	if count != "1" {
		return nil, fmt.Errorf("systemd passes %s sockets, want 1: a socket unit with one ListenStream", count)
	}
	f := os.NewFile(firstSocket, "socket of systemd")
	defer f.Close() // the listener has a copy
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("socket of systemd: %w", err)
	}
	return l, nil
}

// credentialsEnv is the environment variable with the folder of credentials (systemd.exec(5)).
const credentialsEnv = "CREDENTIALS_DIRECTORY"

// Credential returns the path of a credential of the service; "" if the service has none of that name. env reads an
// environment variable.
func Credential(env func(string) string, name string) string {
	dir := env(credentialsEnv)
	if dir == "" {
		return ""
	}
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}
