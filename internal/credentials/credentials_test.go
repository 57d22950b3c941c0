package credentials

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/decamp/decamp/internal/fault"
)

const account = "root@esx1:443"

// newStore returns a store in a new folder, with environment variables.
func newStore(t *testing.T, vars map[string]string) Store {
	t.Helper()
	return Store{Folder: filepath.Join(t.TempDir(), "decamp"), Env: func(name string) string { return vars[name] }}
}

// wantSecret checks the stored secret of the account. An empty want means no secret.
func wantSecret(t *testing.T, s Store, want string) {
	t.Helper()
	got, known, err := s.Get(t.Context(), account)
	if err != nil || got != want || known != (want != "") {
		t.Errorf("got %q, %v, %v; want %q", got, known, err, want)
	}
}

func TestFile(t *testing.T) {
	s := newStore(t, nil)
	wantSecret(t, s, "")
	if err := s.Set(t.Context(), account, "sesame", File); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(s.path()); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v; want mode 0600", st, err)
	}
	wantSecret(t, s, "sesame")
	if err := s.Set(t.Context(), account, "other", File); err != nil {
		t.Fatal(err)
	}
	wantSecret(t, s, "other")
	if err := s.Remove(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	wantSecret(t, s, "")
	if err := s.Remove(t.Context(), account); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
}

func TestCredentialsReadableByOthersAreRefused(t *testing.T) {
	s := newStore(t, nil)
	if err := s.Set(t.Context(), account, "sesame", File); err != nil {
		t.Fatal(err)
	}
	for mode, refused := range map[os.FileMode]bool{0o640: true, 0o604: true, 0o620: true, 0o400: false} {
		if err := os.Chmod(s.path(), mode); err != nil {
			t.Fatal(err)
		}
		_, _, err := s.Get(t.Context(), account)
		if fault.Is(err, fault.Denied) != refused || refused && !strings.Contains(fault.HintOf(err), "chmod 600 "+s.path()) {
			t.Errorf("mode %o: got %v", mode, err)
		}
	}
}

func TestErrorDoesNotQuoteTheFile(t *testing.T) {
	s := newStore(t, nil)
	if err := os.MkdirAll(s.Folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.path(), []byte(`{"a": {"secret": sesame}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Get(t.Context(), account); !fault.Is(err, fault.Corrupt) || strings.Contains(err.Error(), "ses") || !strings.Contains(fault.HintOf(err), "decamp login") {
		t.Error(err)
	}
}

func TestSetFailsWithoutConfigFolder(t *testing.T) {
	s := Store{Env: func(string) string { return "" }}
	wantSecret(t, s, "")
	if err := s.Set(t.Context(), account, "x", File); !fault.Is(err, fault.Invalid) || !strings.Contains(fault.HintOf(err), "HOME") {
		t.Error(err)
	}
}

// busConfig is the configuration of a private bus that starts no services.
const busConfig = `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>session</type><listen>%s</listen><auth>EXTERNAL</auth>
<policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy></busconfig>
`

// startKeyring starts gnome-keyring on a private bus, and returns the address of the bus. Without a password
// it starts only the bus.
func startKeyring(t *testing.T, password string) string {
	t.Helper()
	folder := t.TempDir()
	if err := os.Chmod(folder, 0o700); err != nil { // gnome-keyring requires it
		t.Fatal(err)
	}
	address := "unix:path=" + filepath.Join(folder, "bus")
	config := filepath.Join(folder, "bus.conf")
	if err := os.WriteFile(config, []byte(strings.Replace(busConfig, "%s", address, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	start := func(input string, out io.Writer, name string, args ...string) {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + folder, "XDG_RUNTIME_DIR=" + folder, "XDG_DATA_HOME=" + folder, "DBUS_SESSION_BUS_ADDRESS=" + address}
		cmd.Stdin, cmd.Stdout = strings.NewReader(input), out
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			t.Fatalf("%s: %v: scripts/setup.sh installs it", name, err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	start("", write, "dbus-daemon", "--config-file="+config, "--nofork", "--print-address")
	write.Close()
	if line, err := bufio.NewReader(read).ReadString('\n'); err != nil {
		t.Fatalf("dbus-daemon printed %q: %v", line, err)
	}
	if password == "" {
		return address
	}
	bus, err := dbus.Connect(address)
	if err != nil {
		t.Fatal(err)
	}
	defer bus.Close()
	signals := make(chan *dbus.Signal, 16)
	bus.Signal(signals)
	if err := bus.AddMatchSignal(dbus.WithMatchMember("NameOwnerChanged"), dbus.WithMatchArg(0, busName)); err != nil {
		t.Fatal(err)
	}
	start(password, nil, "gnome-keyring-daemon", "--foreground", "--unlock", "--components=secrets", "--control-directory="+folder)
	for {
		select {
		case s := <-signals:
			if s.Name == "org.freedesktop.DBus.NameOwnerChanged" && s.Body[2] != "" {
				return address
			}
		case <-time.After(5 * time.Minute):
			t.Fatal("gnome-keyring does not own its name on the bus")
		}
	}
}

func TestKeyring(t *testing.T) {
	address := startKeyring(t, "master")
	s := newStore(t, map[string]string{"DBUS_SESSION_BUS_ADDRESS": address})
	if err := s.Set(t.Context(), account, "sesame", Keyring); err != nil {
		t.Fatal(err)
	}
	wantSecret(t, s, "sesame")
	if text, err := os.ReadFile(s.path()); err != nil || strings.Contains(string(text), "sesame") {
		t.Errorf("the file contains the secret: %s, %v", text, err)
	}
	if err := s.Set(t.Context(), account, "other", Keyring); err != nil { // replaces the secret
		t.Fatal(err)
	}
	wantSecret(t, s, "other")
	if err := s.Set(t.Context(), account, "infile", File); err != nil { // moves the secret to the file
		t.Fatal(err)
	}
	wantSecret(t, s, "infile")
	if err := s.Set(t.Context(), account, "again", Keyring); err != nil {
		t.Fatal(err)
	}
	wantSecret(t, s, "again")

	lockKeyring(t, address)
	for _, err := range []error{
		func() error { _, _, err := s.Get(t.Context(), account); return err }(),
		s.Set(t.Context(), "root@esx2:443", "x", Keyring), s.Remove(t.Context(), account),
	} {
		if !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), "the keyring is locked") || !strings.Contains(fault.HintOf(err), "--store file") {
			t.Errorf("a locked keyring: %v (%s)", err, fault.HintOf(err))
		}
	}
	if has, err := s.Has(account); !has || err != nil {
		t.Error("the account is lost:", err)
	}
}

// TestProcessHasOneConnection checks that reads share a connection to the bus: gnome-keyring 42 crashed about
// once in 3,000 connections that followed each other.
func TestProcessHasOneConnection(t *testing.T) {
	address := startKeyring(t, "master")
	s := newStore(t, map[string]string{"DBUS_SESSION_BUS_ADDRESS": address})
	if err := s.Set(t.Context(), account, "sesame", Keyring); err != nil {
		t.Fatal(err)
	}
	nextConnection := func() (number int) { // the bus numbers its connections
		t.Helper()
		bus, err := dbus.Connect(address)
		if err != nil {
			t.Fatal(err)
		}
		defer bus.Close()
		if _, err := fmt.Sscanf(bus.Names()[0], ":1.%d", &number); err != nil {
			t.Fatal(err)
		}
		return number
	}
	before := nextConnection()
	for range 3 {
		wantSecret(t, s, "sesame")
	}
	if after := nextConnection(); after != before+1 {
		t.Errorf("%d new connections for three reads; want 0", after-before-1)
	}
}

func TestRemoveFromKeyring(t *testing.T) {
	s := newStore(t, map[string]string{"DBUS_SESSION_BUS_ADDRESS": startKeyring(t, "master")})
	if err := s.Set(t.Context(), account, "sesame", Keyring); err != nil {
		t.Fatal(err)
	}
	if err := s.removeFromKeyring(t.Context(), account); err != nil { // another program may do this
		t.Fatal(err)
	}
	if _, _, err := s.Get(t.Context(), account); !fault.Is(err, fault.NotFound) || !strings.Contains(fault.HintOf(err), "decamp login") {
		t.Error(err)
	}
	if err := s.Remove(t.Context(), account); err != nil {
		t.Error(err)
	}
	wantSecret(t, s, "")
}

func TestMissingKeyringSuggestsFileStore(t *testing.T) {
	for name, vars := range map[string]map[string]string{
		"no bus":     {},
		"no socket":  {"XDG_RUNTIME_DIR": t.TempDir()},
		"no keyring": {"DBUS_SESSION_BUS_ADDRESS": startKeyring(t, "")},
	} {
		s := newStore(t, vars)
		err := s.Set(t.Context(), account, "x", Keyring)
		if !fault.Is(err, fault.Unreachable) || !strings.Contains(fault.HintOf(err), "decamp login NAME --store file") {
			t.Errorf("%s: got %v (%s)", name, err, fault.HintOf(err))
		}
		wantSecret(t, s, "")
	}
}

// lockKeyring locks all collections.
func lockKeyring(t *testing.T, address string) {
	t.Helper()
	s := Store{Env: func(name string) string { return map[string]string{"DBUS_SESSION_BUS_ADDRESS": address}[name] }}
	err := s.withKeyring(t.Context(), func(ctx context.Context, k *keyring) error {
		var path, prompt dbus.ObjectPath
		if err := k.call(ctx, servicePath, service+".ReadAlias", "default").Store(&path); err != nil {
			return err
		}
		var locked []dbus.ObjectPath
		return k.call(ctx, servicePath, service+".Lock", []dbus.ObjectPath{path}).Store(&locked, &prompt)
	})
	if err != nil {
		t.Fatal(err)
	}
}
