package libvirt

import (
	"context"
	"io"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/libvirt/rpc"
	"github.com/decamp/decamp/test/pty"
)

// echoDisk returns a disk whose boot sector answers each letter on the first serial port with the next letter, and
// powers off at a q.
func echoDisk() []byte {
	disk := make([]byte, 1<<20)
	copy(disk, []byte{
		0xba, 0xfd, 0x03, // 00 mov dx, 0x3fd
		0xec,       // 03 in al, dx
		0xa8, 0x01, // 04 test al, 1: a byte has arrived
		0x74, 0xf8, // 06 jz 00
		0xba, 0xf8, 0x03, // 08 mov dx, 0x3f8
		0xec,      // 11 in al, dx
		0x3c, 'q', // 12 cmp al, 'q'
		0x74, 0x14, // 14 je 36
		0x88, 0xc4, // 16 mov ah, al
		0xfe, 0xc4, // 18 inc ah
		0xba, 0xfd, 0x03, // 20 mov dx, 0x3fd
		0xec,       // 23 in al, dx
		0xa8, 0x20, // 24 test al, 0x20: the transmitter is empty
		0x74, 0xfb, // 26 jz 23
		0xba, 0xf8, 0x03, // 28 mov dx, 0x3f8
		0x88, 0xe0, // 31 mov al, ah
		0xee,       // 33 out dx, al
		0xeb, 0xdc, // 34 jmp 00
		0xba, 0x04, 0x06, // 36 mov dx, 0x604: the PM1a port of ACPI in SeaBIOS
		0xb8, 0x00, 0x20, // 39 mov ax, 0x2000
		0xef,       // 42 out dx, ax
		0xf4,       // 43 hlt
		0xeb, 0xfd, // 44 jmp 43
	})
	disk[510], disk[511] = 0x55, 0xaa
	return disk
}

// newConsoleSite returns a site with a running VM that boots from an echoDisk.
func newConsoleSite(t *testing.T) (*site, targets.Definition) {
	t.Helper()
	vm := vmWithoutNICs()
	s := newSite(t, ownDaemon(t), false)
	s.platform.wait = noWait
	_, to, def := stageVM(t, vm, s.platform, echoDisk())
	if err := to.Publish(t.Context(), def); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.powerOff(t, vm) })
	s.virsh(t, "start", vm.UUID)
	return s, def
}

// openConsole opens the console of def's VM and closes it when the test ends.
func (s *site) openConsole(t *testing.T, def targets.Definition) io.ReadWriteCloser {
	t.Helper()
	console, err := s.platform.Console(t.Context(), def)
	if err != nil {
		t.Fatalf("%v (%s)", err, fault.HintOf(err))
	}
	t.Cleanup(func() { _ = console.Close() }) // the test may have closed it
	return console
}

func writeText(t *testing.T, w io.Writer, text string) {
	t.Helper()
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
}

// waitForText reads until it has received text.
func waitForText(t *testing.T, r io.Reader, text string) {
	t.Helper()
	var received []byte
	for p := make([]byte, 100); !strings.Contains(string(received), text); {
		n, err := r.Read(p)
		if received = append(received, p[:n]...); err != nil {
			t.Fatalf("waiting for %q, received %q: %v", text, received, err)
		}
	}
}

// A console transfers data in both directions. After Close it can be opened again at once. It ends when the VM powers
// off.
func TestConsoleTransfersBothDirections(t *testing.T) {
	t.Parallel()
	s, def := newConsoleSite(t)
	for _, text := range []string{"hello", strings.Repeat("abc", 2000) + "z"} {
		console := s.openConsole(t, def)
		writeText(t, console, text)
		waitForText(t, console, strings.Map(func(r rune) rune { return r + 1 }, text))
		if err := console.Close(); err != nil {
			t.Error(err)
		}
		if _, err := console.Read(make([]byte, 1)); err != net.ErrClosed {
			t.Errorf("Read of a closed console: got %v, want net.ErrClosed", err)
		}
	}
	s.platform.wait = func(context.Context, time.Duration) error { // libvirt ends the console before it knows the cause
		s.eventually(t, "the VM is off", func() bool { return strings.HasPrefix(s.domainState(t, def.VM), "shut off") })
		return nil
	}
	console := s.openConsole(t, def)
	writeText(t, console, "q")
	for range 2 {
		if left, err := io.ReadAll(console); err != nil || len(left) > 0 {
			t.Errorf("console of a VM that powered off: got %q, %v, want its end", left, err)
		}
	}
	if _, err := s.platform.Console(t.Context(), def); !fault.Is(err, fault.Conflict) || !strings.Contains(fault.HintOf(err), "virsh -c qemu:///system start 'web 01'") {
		t.Errorf("Console of a VM that is off: %v (%s)", err, fault.HintOf(err))
	}
}

// Console does not disconnect another client. A client that is disconnected by force gets an error.
func TestConsoleInUseIsAConflict(t *testing.T) {
	t.Parallel()
	s, def := newConsoleSite(t)
	console := s.openConsole(t, def)
	if _, err := s.platform.Console(t.Context(), def); !fault.Is(err, fault.Conflict) || !strings.Contains(fault.HintOf(err), "console --force 'web 01'") {
		t.Errorf("second Console: %v (%s)", err, fault.HintOf(err))
	}
	writeText(t, console, "hello")
	waitForText(t, console, "ifmmp")

	terminal := pty.New(t)
	end := terminal.Open()
	cmd := exec.CommandContext(t.Context(), "virsh", "-q", "-c", "qemu:///system?socket="+s.socket(), "console", "--force", def.VM.UUID)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = end, end, end
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	if _, err := io.ReadAll(console); !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "taken the console over") || fault.HintOf(err) == "" {
		t.Errorf("console taken by force: %v (%s)", err, fault.HintOf(err))
	}
	if now := s.domainState(t, def.VM); !strings.HasPrefix(now, "running") {
		t.Errorf("the VM is %s, want running", now)
	}
}

// A broken connection is a transient error, not the end of the VM.
func TestBrokenConsoleConnectionIsTransient(t *testing.T) {
	t.Parallel()
	s, def := newConsoleSite(t)
	var conn net.Conn
	s.platform.dial = func(ctx context.Context, a address) (_ net.Conn, err error) {
		conn, err = dialUnix(ctx, a)
		return conn, err
	}
	console := s.openConsole(t, def)
	writeText(t, console, "hello")
	waitForText(t, console, "ifmmp")
	if err := s.run("kill"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := io.ReadAll(console); !fault.Is(err, fault.Transient) || fault.HintOf(err) == "" {
			t.Errorf("console while libvirtd crashes: %v (%s)", err, fault.HintOf(err))
		}
	}
	if err := console.Close(); err != nil {
		t.Error(err)
	}
	if err := s.run("start"); err != nil {
		t.Fatal(err)
	}
	s.client = s.daemon.newClient(t)
	console = s.openConsole(t, def)
	writeText(t, console, "again")
	waitForText(t, console, "bhbjo")
	_ = conn.Close()
	if _, err := io.ReadAll(console); !fault.Is(err, fault.Transient) || fault.HintOf(err) == "" {
		t.Errorf("console after its connection is closed: %v (%s)", err, fault.HintOf(err))
	}
}

// Console fails if the VM does not exist or has no serial port. Without a serial port, the hint has a command that
// shows the screen.
func TestMissingConsole(t *testing.T) {
	t.Parallel()
	s := newSite(t, sharedDaemon(t), false)
	vm := vmWithoutNICs()
	_, to, def := stageVM(t, vm, s.platform, make([]byte, 1<<20))
	if _, err := s.platform.Console(t.Context(), def); !fault.Is(err, fault.NotFound) || fault.HintOf(err) == "" {
		t.Errorf("no VM: %v (%s)", err, fault.HintOf(err))
	}
	if err := to.Publish(t.Context(), def); err != nil {
		t.Fatal(err)
	}
	_, texts := s.domains(t)
	x, err := parseDomain(texts[0])
	if err != nil {
		t.Fatal(err)
	}
	x.Devices.Serials, x.Devices.Consoles = nil, nil
	text, err := x.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.client.DefineDomain(t.Context(), text); err != nil {
		t.Fatal(err)
	}
	if _, err := s.platform.Console(t.Context(), def); !fault.Is(err, fault.Unsupported) || !strings.Contains(fault.HintOf(err), "virt-viewer -c qemu:///system 'web 01'") {
		t.Errorf("no serial port: %v (%s)", err, fault.HintOf(err))
	}
	x.Devices.Graphics = nil
	if err := noSerial(s.platform.at, rpc.Domain{Name: "a"}, x); !strings.Contains(fault.HintOf(err), "edit a") {
		t.Errorf("no serial port and no screen: %s", fault.HintOf(err))
	}
}
