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

// A guest that has taken QEMU over may make anything of the files that decamp reads.
func TestReadBackOfAHostileQEMU(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		make func(path string) error
		want string // "": an error
	}{
		"a file":         {func(path string) error { return os.WriteFile(path, []byte("text"), 0o600) }, "text"},
		"a link":         {func(path string) error { return os.Symlink(secret, path) }, ""},
		"a pipe":         {func(path string) error { return unix.Mkfifo(path, 0o600) }, ""},
		"a folder":       {func(path string) error { return os.Mkdir(path, 0o700) }, ""},
		"without an end": {func(path string) error { return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<40)) }, ""},
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
		t.Errorf("what a link leads to holds %q, %v", text, err)
	}
}

// A QEMU that sends without end is hung up on.
func TestEndlessMonitor(t *testing.T) {
	ours, theirs := net.Pipe()
	defer ours.Close()
	m := newMonitor(ours, time.After)
	sent := make(chan int, 1)
	go func() {
		n := 0
		for block := make([]byte, 1<<20); ; { // a string that does not end
			for i := range block {
				block[i] = 'a'
			}
			if n == 0 {
				block[0] = '"'
			}
			k, err := theirs.Write(block)
			if n += k; err != nil {
				sent <- n
				return
			}
		}
	}()
	<-m.done
	if err := m.execute(context.Background(), "stop", nil); err == nil {
		t.Error("a monitor that has hung up answers")
	}
	ours.Close()
	if n := <-sent; n > maxTold+2<<20 {
		t.Errorf("%d bytes were read", n)
	}
}

// silentQEMU writes a program that takes QEMU's place. It reads commands from its monitor, answers the
// first n of them and then nothing more. Every user may run it.
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

// The trial ends when QEMU does not answer a command. Boot returns after the process is gone.
func TestSilentQEMU(t *testing.T) {
	t.Parallel()
	const domain = "<domain><memory>1</memory><os><type>hvm</type></os><devices/></domain>"
	for command, answered := range map[string]int{"qmp_capabilities": 0, "screendump": 1} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // the test fails, and does not hang
			defer cancel()
			over := make(chan time.Time)
			close(over)
			commands := 0
			r, err := Boot(ctx, domain, Options{
				Accel: TCG, QEMU: silentQEMU(t, answered), Scratch: t.TempDir(), Now: time.Now,
				After: func(d time.Duration) <-chan time.Time {
					if d == answerLimit {
						if commands++; commands <= answered {
							return nil // the answer comes
						}
					}
					return over
				},
			})
			if !fault.Is(err, fault.Transient) || !strings.Contains(err.Error(), "QEMU did not answer the command "+command+" within 1m") || r.Verdict != "" {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}
