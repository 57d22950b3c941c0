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

// parrot is a disk whose boot sector answers each letter on the first serial port with the one after it, and
// powers off at a q.
func parrot() []byte {
	disk := make([]byte, 1<<20)
	copy(disk, []byte{
		0xba, 0xfd, 0x03, // 00 mov dx, 0x3fd
		0xec,       // 03 in al, dx
		0xa8, 0x01, // 04 test al, 1: something has come
		0x74, 0xf8, // 06 jz 00
		0xba, 0xf8, 0x03, // 08 mov dx, 0x3f8
		0xec,      // 11 in al, dx
		0x3c, 'q', // 12 cmp al, 'q'
		0x74, 0x14, // 14 je 36
		0x88, 0xc4, // 16 mov ah, al
		0xfe, 0xc4, // 18 inc ah
		0xba, 0xfd, 0x03, // 20 mov dx, 0x3fd
		0xec,       // 23 in al, dx
		0xa8, 0x20, // 24 test al, 0x20: there is room
		0x74, 0xfb, // 26 jz 23
		0xba, 0xf8, 0x03, // 28 mov dx, 0x3f8
		0x88, 0xe0, // 31 mov al, ah
		0xee,       // 33 out dx, al
		0xeb, 0xdc, // 34 jmp 00
		0xba, 0x04, 0x06, // 36 mov dx, 0x604: where SeaBIOS has ACPI's PM1a
		0xb8, 0x00, 0x20, // 39 mov ax, 0x2000
		0xef,       // 42 out dx, ax
		0xf4,       // 43 hlt
		0xeb, 0xfd, // 44 jmp 43
	})
	disk[510], disk[511] = 0x55, 0xaa
	return disk
}

// talking is a site where a parrot runs.
func talking(t *testing.T) (*site, targets.Definition) {
	t.Helper()
	vm := withoutCards()
	s := newSite(t, ownDaemon(t), false)
	s.place.wait = atOnce
	_, to, def := onStage(t, vm, s.place, parrot())
	if err := to.Publish(t.Context(), def); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.powerOff(t, vm) })
	s.virsh(t, "start", vm.UUID)
	return s, def
}

// attached is a console of def's VM, once nobody else has it.
func (s *site) attached(t *testing.T, def targets.Definition) io.ReadWriteCloser {
	t.Helper()
	console, err := s.place.Console(t.Context(), def)
	if err != nil {
		t.Fatalf("%v (%s)", err, fault.HintOf(err))
	}
	t.Cleanup(func() { _ = console.Close() }) // it may be closed already
	return console
}

func says(t *testing.T, w io.Writer, text string) {
	t.Helper()
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
}

// hears reads until text has come.
func hears(t *testing.T, r io.Reader, text string) {
	t.Helper()
	var heard []byte
	for p := make([]byte, 100); !strings.Contains(string(heard), text); {
		n, err := r.Read(p)
		if heard = append(heard, p[:n]...); err != nil {
			t.Fatalf("waiting for %q, heard %q: %v", text, heard, err)
		}
	}
}

// What is typed gets to the guest, and what it says to us; a console that is left is there for the next at once; and a VM that
// powers itself off ends it.
func TestConsolePassesOnBothWays(t *testing.T) {
	t.Parallel()
	s, def := talking(t)
	for _, text := range []string{"hello", strings.Repeat("abc", 2000) + "z"} {
		console := s.attached(t, def)
		says(t, console, text)
		hears(t, console, strings.Map(func(r rune) rune { return r + 1 }, text))
		if err := console.Close(); err != nil {
			t.Error(err)
		}
		if _, err := console.Read(make([]byte, 1)); err != net.ErrClosed {
			t.Errorf("a console that is closed: %v", err)
		}
	}
	s.place.wait = func(context.Context, time.Duration) error { // libvirt ends the console before it knows why
		s.eventually(t, "the VM is off", func() bool { return strings.HasPrefix(s.state(t, def.VM), "shut off") })
		return nil
	}
	console := s.attached(t, def)
	says(t, console, "q")
	for range 2 {
		if left, err := io.ReadAll(console); err != nil || len(left) > 0 {
			t.Errorf("the VM is off: %q, %v", left, err)
		}
	}
	if _, err := s.place.Console(t.Context(), def); !fault.Is(err, fault.Conflict) || !strings.Contains(fault.HintOf(err), "virsh -c qemu:///system start 'web 01'") {
		t.Errorf("a VM that is off: %v (%s)", err, fault.HintOf(err))
	}
}

// Nobody is pushed off a console; who is pushed off is told.
func TestConsoleThatSomebodyHas(t *testing.T) {
	t.Parallel()
	s, def := talking(t)
	console := s.attached(t, def)
	if _, err := s.place.Console(t.Context(), def); !fault.Is(err, fault.Conflict) || !strings.Contains(fault.HintOf(err), "console --force 'web 01'") {
		t.Errorf("a second one: %v (%s)", err, fault.HintOf(err))
	}
	says(t, console, "hello")
	hears(t, console, "ifmmp")

	somebody := pty.New(t)
	end := somebody.Open()
	cmd := exec.CommandContext(t.Context(), "virsh", "-q", "-c", "qemu:///system?socket="+s.socket(), "console", "--force", def.VM.UUID)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = end, end, end
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	if _, err := io.ReadAll(console); !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "taken the console over") || fault.HintOf(err) == "" {
		t.Errorf("taken by force: %v (%s)", err, fault.HintOf(err))
	}
	if now := s.state(t, def.VM); !strings.HasPrefix(now, "running") {
		t.Errorf("it is %s", now)
	}
}

// A connection that breaks is no VM that is off.
func TestConsoleWhoseConnectionBreaks(t *testing.T) {
	t.Parallel()
	s, def := talking(t)
	var conn net.Conn
	s.place.dial = func(ctx context.Context, a address) (_ net.Conn, err error) {
		conn, err = dialUnix(ctx, a)
		return conn, err
	}
	console := s.attached(t, def)
	says(t, console, "hello")
	hears(t, console, "ifmmp")
	if err := s.say("kill"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := io.ReadAll(console); !fault.Is(err, fault.Transient) || fault.HintOf(err) == "" {
			t.Errorf("libvirtd is gone: %v (%s)", err, fault.HintOf(err))
		}
	}
	if err := console.Close(); err != nil {
		t.Error(err)
	}
	if err := s.say("start"); err != nil {
		t.Fatal(err)
	}
	s.client = s.daemon.client(t)
	console = s.attached(t, def)
	says(t, console, "again")
	hears(t, console, "bhbjo")
	_ = conn.Close()
	if _, err := io.ReadAll(console); !fault.Is(err, fault.Transient) || fault.HintOf(err) == "" {
		t.Errorf("the connection is gone: %v (%s)", err, fault.HintOf(err))
	}
}

// What has no serial port that is passed on is refused, with the way to its screen, and so is what is not there.
func TestConsolesThatAreNone(t *testing.T) {
	t.Parallel()
	s := newSite(t, sharedDaemon(t), false)
	vm := withoutCards()
	_, to, def := onStage(t, vm, s.place, make([]byte, 1<<20))
	if _, err := s.place.Console(t.Context(), def); !fault.Is(err, fault.NotFound) || fault.HintOf(err) == "" {
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
	if _, err := s.place.Console(t.Context(), def); !fault.Is(err, fault.Unsupported) || !strings.Contains(fault.HintOf(err), "virt-viewer -c qemu:///system 'web 01'") {
		t.Errorf("no serial port: %v (%s)", err, fault.HintOf(err))
	}
	x.Devices.Graphics = nil
	if err := noSerial(s.place.at, rpc.Domain{Name: "a"}, x); !strings.Contains(fault.HintOf(err), "edit a") {
		t.Errorf("nothing to be seen: %s", fault.HintOf(err))
	}
}
