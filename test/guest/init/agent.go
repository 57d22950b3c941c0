package main

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// agentProgram is the path of QEMU's guest agent.
const agentProgram = "/usr/sbin/qemu-ga"

// serveAgent runs the guest agent, if the guest has it and the VM has a channel for it, with the
// addresses of /etc/network/interfaces. Without one it returns nil at once. If the agent ends, it
// returns an error.
func serveAgent() error {
	port := agentPort()
	if _, err := os.Stat(agentProgram); err != nil || port == "" {
		return nil
	}
	if err := syscall.Sethostname([]byte(readLine("/etc/hostname"))); err != nil {
		return err
	}
	if err := configureCards("/etc/network/interfaces"); err != nil {
		fmt.Printf("network: %v\n", err) // such as a missing card: the guest continues
	}
	args := []string{agentProgram, "--method=virtio-serial", "--path=" + port, "--statedir=/run"}
	p, err := os.StartProcess(agentProgram, args, &os.ProcAttr{Files: []*os.File{nil, os.Stdout, os.Stderr}})
	if err != nil {
		return err
	}
	state, err := p.Wait()
	return fmt.Errorf("the agent has ended: %v, %v", state, err)
}

// portWait limits how long the agent's port may take to appear after its driver was loaded.
const portWait = 5 * time.Second

// agentPort returns the device of the agent's channel; empty if the VM has none.
func agentPort() string {
	if cards, _ := filepath.Glob("/sys/bus/virtio/drivers/virtio_console/virtio*"); len(cards) == 0 {
		return ""
	}
	for end := time.Now().Add(portWait); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		names, _ := filepath.Glob("/sys/class/virtio-ports/*/name")
		for _, name := range names {
			if readLine(name) == "org.qemu.guest_agent.0" {
				return "/dev/" + filepath.Base(filepath.Dir(name))
			}
		}
	}
	return ""
}

// configureCards sets the static addresses in a file of interfaces(5).
func configureCards(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	name := ""
	for line := range strings.Lines(string(text)) {
		switch f := strings.Fields(line); {
		case len(f) >= 2 && f[0] == "iface":
			name = f[1]
		case len(f) >= 2 && f[0] == "address":
			address, err := netip.ParsePrefix(f[1])
			if err != nil {
				return err
			}
			if err := setAddress(name, address); err != nil {
				return fmt.Errorf("%s %s: %w", name, address, err)
			}
		}
	}
	return nil
}

// An ifreq is the kernel's struct: the name of an interface, and here an address or flags. See
// netdevice(7).
type ifreq struct {
	name [16]byte // name, terminated by a zero
	data [24]byte // union of addresses and flags
}

// setAddress sets an IPv4 address and its mask, and enables the interface.
func setAddress(name string, p netip.Prefix) error {
	s, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(s)
	address := p.Addr().As4()
	mask := [4]byte{}
	for i := range p.Bits() {
		mask[i/8] |= 0x80 >> (i % 8) // highest bit first
	}
	const up, running = 1, 0x40 // IFF_UP, IFF_RUNNING
	for _, set := range []struct {
		call uintptr
		data []byte
	}{
		{syscall.SIOCSIFADDR, append([]byte{syscall.AF_INET, 0, 0, 0}, address[:]...)},
		{syscall.SIOCSIFNETMASK, append([]byte{syscall.AF_INET, 0, 0, 0}, mask[:]...)},
		{syscall.SIOCSIFFLAGS, []byte{up | running, 0}},
	} {
		var r ifreq
		copy(r.name[:15], name) // IFNAMSIZ is 16, with the zero
		copy(r.data[:], set.data)
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(s), set.call, uintptr(unsafe.Pointer(&r))); errno != 0 {
			return errno
		}
	}
	return nil
}
