package testboot

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/lab/executable"
)

// A guest that controls QEMU can replace the files that decamp reads. Only regular files of limited size are read.
func TestReadBackRefusesHostileFiles(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		make func(path string) error
		want string // content; empty if readBack must fail
	}{
		"a file":      {func(path string) error { return os.WriteFile(path, []byte("text"), 0o600) }, "text"},
		"a link":      {func(path string) error { return os.Symlink(secret, path) }, ""},
		"a pipe":      {func(path string) error { return unix.Mkfifo(path, 0o600) }, ""},
		"a folder":    {func(path string) error { return os.Mkdir(path, 0o700) }, ""},
		"a huge file": {func(path string) error { return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<40)) }, ""},
	} {
		q := &qemu{dir: t.TempDir()}
		path := filepath.Join(q.dir, "text")
		if err := c.make(path); err != nil {
			t.Fatal(err)
		}
		text, err := q.readBack("text", 100)
		if string(text) != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %d bytes, %v", name, len(text), err)
		}
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is not removed: %v", name, err)
		}
	}
	if text, err := os.ReadFile(secret); err != nil || string(text) != "secret" {
		t.Errorf("the target of the link has %q, want %q, error %v", text, "secret", err)
	}
}

// If QEMU sends an endless message, the monitor closes the connection.
func TestEndlessMonitorMessageIsRefused(t *testing.T) {
	client, server := net.Pipe()
	defer client.Close()
	m := newMonitor(client, time.After)
	sent := make(chan int, 1)
	go func() {
		n := 0
		for block := make([]byte, 1<<20); ; { // sends an endless string
			for i := range block {
				block[i] = 'a'
			}
			if n == 0 {
				block[0] = '"'
			}
			k, err := server.Write(block)
			if n += k; err != nil {
				sent <- n
				return
			}
		}
	}()
	<-m.done
	if err := m.execute(context.Background(), "stop", nil); err == nil {
		t.Error("execute succeeds on a closed monitor")
	}
	client.Close()
	if n := <-sent; n > maxTold+2<<20 {
		t.Errorf("%d bytes were read, want at most %d", n, maxTold+2<<20)
	}
}

// silentQEMU writes a program that replaces QEMU. It answers the first n commands of its monitor and no later
// ones. Every user can run it.
func silentQEMU(t *testing.T, n int) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "silent-qemu-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "qemu")
	answer := strings.Repeat("echo '{\"return\": {}}' >&3\n", n)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	executable.Write(t, path, "#!/bin/sh\n"+answer+"exec sleep 1000000\n")
	return path
}

// If QEMU does not answer a command, the trial ends. Boot returns after the process has ended.
func TestSilentQEMU(t *testing.T) {
	t.Parallel()
	const domain = "<domain><memory>1</memory><os><type>hvm</type></os><devices/></domain>"
	for command, answered := range map[string]int{"qmp_capabilities": 0, "screendump": 1} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // makes the test fail instead of hang
			defer cancel()
			over := make(chan time.Time)
			close(over)
			commands := 0
			r, err := Boot(ctx, domain, Options{
				Accel: TCG, QEMU: silentQEMU(t, answered), Scratch: t.TempDir(), Now: time.Now,
				After: func(d time.Duration) <-chan time.Time {
					if d == answerLimit {
						if commands++; commands <= answered {
							return nil // no timeout, the program answers
						}
					}
					return over
				},
			})
			if !fault.Is(err, fault.Transient) || !strings.Contains(err.Error(), "QEMU did not answer the command "+command+" within 1m") || r.Verdict != "" {
				t.Errorf("got %+v, %v, want a transient error about %s", r, err, command)
			}
		})
	}
}
