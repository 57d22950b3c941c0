package shell_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/esx/shell"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/lab/loopback"
)

func TestCommandsAndTheirStatus(t *testing.T) {
	s := dial(t, fromLab(startLab(t, lab.Config{})))
	out, err := s.Run(t.Context(), "echo", "hello")
	must(t, err)
	if string(out.Stdout) != "hello\n" || out.Err() != nil {
		t.Errorf("%+v", out)
	}
	out, err = s.Run(t.Context(), "cat", "/nothing")
	must(t, err)
	if e := out.Err(); out.Status != 1 || e == nil || !strings.Contains(e.Error(), "No such file") {
		t.Errorf("%+v", out)
	}
	if out, err := s.Run(t.Context(), "nosuch"); err != nil || out.Status != 127 {
		t.Errorf("%+v, %v", out, err)
	}
}

// words are arguments with special characters of shells.
var words = []string{
	"plain", "", " ", "two words", "it's", `"quoted"`, `back\slash`, "$HOME", "$(reboot)", "`reboot`", "a;b", "a&b", "a|b", "*", "?", "[a-z]", "~", "~root",
	"#no comment", "new\nline", "\n", "tab\t", "\r", "Füchse & Söhne", "日本語", "-leading", "--", "a=b", "!!", "{a,b}", "<in", ">out", "\xff\xfe", "'", "''", `\'`, "%s", "\x1b[31m",
}

func TestArgumentsArriveUnchanged(t *testing.T) {
	check := func(t *testing.T, s *shell.Shell) {
		for _, w := range words {
			// without the brackets, echo would parse -leading as an option
			out, err := s.Run(t.Context(), "sh", "-c", `echo "<$1>"`, "sh", w)
			must(t, err)
			if got, want := string(out.Stdout), "<"+w+">\n"; got != want && !strings.Contains(w, `\`) {
				t.Errorf("got %q, want %q", got, want)
			} else if out.Err() != nil {
				t.Errorf("%q: %v", w, out.Err())
			}
		}
	}
	t.Run("lab", func(t *testing.T) { check(t, dial(t, fromLab(startLab(t, lab.Config{})))) })
	for name, sh := range testShells(t) {
		t.Run(name, func(t *testing.T) {
			s := dial(t, startRealHost(t, sh).config())
			check(t, s)
			out, err := s.Run(t.Context(), append([]string{"printf", `%s\n`}, words...)...)
			must(t, err)
			if got, want := string(out.Stdout), strings.Join(words, "\n")+"\n"; got != want {
				t.Errorf("got  %q\nwant %q", got, want)
			}
		})
	}
	if _, err := dial(t, fromLab(startLab(t, lab.Config{}))).Run(t.Context(), "echo", "a\x00b"); !fault.Is(err, fault.Invalid) {
		t.Errorf("a zero byte: %v", err)
	}
}

func TestHostKeyIsPinned(t *testing.T) {
	l := startLab(t, lab.Config{})
	cfg := fromLab(l)
	keys, err := shell.HostKeys(t.Context(), cfg.Addr)
	must(t, err)
	if !slices.ContainsFunc(keys, func(k shell.HostKey) bool { return k.Fingerprint == cfg.HostKey }) {
		t.Errorf("host keys %v do not contain %s", keys, cfg.HostKey)
	}
	called := false
	cfg.Password = func(context.Context) (esx.Secret, error) { called = true; return "", nil }
	cfg.HostKey = "SHA256:" + strings.Repeat("A", 43)
	_, err = shell.Dial(t.Context(), cfg)
	if !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), keys[0].Fingerprint) || fault.HintOf(err) == "" || called {
		t.Errorf("another key: %v (Password called: %v)", err, called)
	}
	for _, bad := range []string{"", "MD5:aa", "SHA256:short", "SHA256:" + strings.Repeat("A", 44)} {
		cfg.HostKey = bad
		if _, err := shell.Dial(t.Context(), cfg); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestWrongPasswordIsSentOnce(t *testing.T) {
	l := startLab(t, lab.Config{SSH: lab.SSH{PasswordAuth: true}})
	cfg := fromLab(l)
	sent, judged := 0, 0
	cfg.Password = func(context.Context) (esx.Secret, error) { sent++; return "wrong", nil }
	cfg.Judged = func(err error) {
		if err != nil {
			judged++
		}
	}
	_, err := shell.Dial(t.Context(), cfg)
	if !fault.Is(err, fault.Denied) || !strings.Contains(fault.HintOf(err), "lockdown") || sent != 1 || judged != 1 {
		t.Errorf("%v (%s), %d passwords sent, %d judged", err, fault.HintOf(err), sent, judged)
	}
	if strings.Contains(err.Error(), "wrong") {
		t.Errorf("the error contains the password: %v", err)
	}
}

func TestPasswordByEitherMethod(t *testing.T) {
	for _, ssh := range []lab.SSH{{}, {PasswordAuth: true}} {
		dial(t, fromLab(startLab(t, lab.Config{SSH: ssh})))
	}
	dial(t, startRealHost(t, []string{"sh", "-c"}).config()) // supports only the method "password"
}

func TestKeys(t *testing.T) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	signer, err := ssh.NewSignerFromKey(private)
	must(t, err)
	l := startLab(t, lab.Config{SSH: lab.SSH{NoPasswords: true, AuthorizedKeys: []string{string(ssh.MarshalAuthorizedKey(signer.PublicKey()))}}})
	write := func(block *pem.Block, err error) string {
		must(t, err)
		path := filepath.Join(t.TempDir(), "key")
		must(t, os.WriteFile(path, pem.EncodeToMemory(block), 0o600))
		return path
	}
	cfg := fromLab(l)
	cfg.KeyFile = write(ssh.MarshalPrivateKey(private, ""))
	dial(t, cfg)
	cfg.KeyFile = write(ssh.MarshalPrivateKeyWithPassphrase(private, "", []byte("secret")))
	if _, err := shell.Dial(t.Context(), cfg); !fault.Is(err, fault.Invalid) || !strings.Contains(fault.HintOf(err), "ssh-add") {
		t.Errorf("a key with a passphrase: %v", err)
	}
	_, other, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	cfg.KeyFile = write(ssh.MarshalPrivateKey(other, ""))
	if _, err := shell.Dial(t.Context(), cfg); !fault.Is(err, fault.Denied) || !strings.Contains(fault.HintOf(err), "authorized_keys") {
		t.Errorf("an unknown key: %v", err)
	}
	cfg.KeyFile, cfg.Password, cfg.Agent = "", nil, serveAgent(t, other, private)
	dial(t, cfg)
}

// serveAgent starts an SSH agent with those keys and returns its socket.
func serveAgent(t *testing.T, keys ...any) string {
	t.Helper()
	ring := agent.NewKeyring()
	for _, k := range keys {
		must(t, ring.Add(agent.AddedKey{PrivateKey: k}))
	}
	dir, err := os.MkdirTemp("", "agent") // the path of a socket must be short
	must(t, err)
	ln, err := net.Listen("unix", filepath.Join(dir, "socket"))
	must(t, err)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { _ = agent.ServeAgent(ring, c); c.Close() })
		}
	})
	t.Cleanup(func() { ln.Close(); serving.Wait(); os.RemoveAll(dir) })
	return ln.Addr().String()
}

func TestBrokenConnectionIsReplaced(t *testing.T) {
	l := startLab(t, lab.Config{})
	s := dial(t, fromLab(l))
	for range 3 {
		l.DropSSH()
		eventually(t, "a command that succeeds", func() bool {
			_, err := s.Run(t.Context(), "true")
			if err != nil && !fault.Is(err, fault.Transient) {
				t.Fatal(err)
			}
			return err == nil
		})
	}
}

func TestBrokenCommandIsTransient(t *testing.T) {
	l := startLab(t, lab.Config{})
	s := dial(t, fromLab(l))
	ended := make(chan error, 1)
	go func() {
		_, err := s.Run(t.Context(), "sh", "-c", "echo x >/tmp/began; sleep 1000")
		ended <- err
	}()
	eventually(t, "the command", func() bool {
		out, err := s.Run(t.Context(), "test", "-s", "/tmp/began")
		return err == nil && out.Status == 0
	})
	l.DropSSH()
	if err := <-ended; !fault.Is(err, fault.Transient) {
		t.Errorf("%v", err)
	}
}

func TestCanceledCommandIsEndedOnHost(t *testing.T) {
	s := dial(t, fromLab(startLab(t, lab.Config{})))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := s.Run(ctx, "sh", "-c", "echo x >/tmp/began; sleep 1000; echo x >/tmp/ended")
		ended <- err
	}()
	there := func(name string) func() bool {
		return func() bool {
			out, err := s.Run(t.Context(), "test", "-s", name)
			must(t, err)
			return out.Status == 0
		}
	}
	eventually(t, "the command", there("/tmp/began"))
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	eventually(t, "the command's end", func() bool {
		out, err := s.Run(t.Context(), "ps")
		must(t, err)
		return !strings.Contains(string(out.Stdout), "sleep")
	})
}

func TestUnreachableServerHasRemedy(t *testing.T) {
	l, err := lab.Start(context.Background(), lab.Config{})
	must(t, err)
	defer l.Close()
	cfg := shell.Config{Addr: loopback.Reserve(t), User: "root", HostKey: "SHA256:" + strings.Repeat("A", 43)}
	if _, err := shell.Dial(t.Context(), cfg); !fault.Is(err, fault.Unreachable) || !strings.Contains(fault.HintOf(err), "TSM-SSH") {
		t.Errorf("%v (%s)", err, fault.HintOf(err))
	}
	if _, err := shell.HostKeys(t.Context(), cfg.Addr); !fault.Is(err, fault.Unreachable) || !strings.Contains(fault.HintOf(err), "TSM-SSH") {
		t.Errorf("%v (%s)", err, fault.HintOf(err))
	}
}

// A host that stops answering is detected by unanswered keep-alives, and the connection is replaced.
func TestSilentHostIsDetected(t *testing.T) {
	r := startRealHost(t, []string{"sh", "-c"})
	relay := startRelay(t, r.addr)
	ask, giveUp := make(chan time.Time), make(chan time.Time)
	cfg := r.config()
	cfg.Addr = relay.addr
	cfg.After = func(d time.Duration) <-chan time.Time {
		if d < 30*time.Second {
			return ask
		}
		return giveUp
	}
	s := dial(t, cfg)
	ask <- time.Now() // the first keep-alive is answered
	ask <- time.Now() // so is the second
	relay.freeze()
	ended := make(chan error, 1)
	go func() {
		_, err := s.Run(t.Context(), "true")
		ended <- err
	}()
	select { // the answer to the last keep-alive may have arrived before the freeze
	case ask <- time.Now():
		giveUp <- time.Now()
	case giveUp <- time.Now(): // the client closes the connection
	}
	must(t, <-ended) // and opens another
}
