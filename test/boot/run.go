package boot

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// program is the emulator, of Debian's package qemu-system-x86.
const program = "qemu-system-x86_64"

// runQEMU starts QEMU and reads its serial port until a marker, the end of QEMU or the end of ctx. QEMU
// has ended when it returns. log, if not empty, receives the output of the serial port.
func runQEMU(ctx context.Context, args []string, log string) (Marker, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = 5 * time.Second // children of QEMU may keep the pipe open
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	serial, err := cmd.StdoutPipe()
	if err != nil {
		return Marker{}, err
	}
	if err := cmd.Start(); err != nil {
		return Marker{}, fmt.Errorf("start %s: %w (scripts/setup.sh demo installs it)", program, err)
	}
	m, text, err := readMarker(serial)
	cut := ctx.Err() // the deadline or the caller ended QEMU, unless nil
	stop()           // kills QEMU
	_ = cmd.Wait()   // the marker decides, not how QEMU ended
	if log != "" {
		err = errors.Join(err, os.WriteFile(log, []byte(text), 0o644))
	}
	if errors.Is(err, ErrNoMarker) {
		err = fmt.Errorf("%w; serial port: %s; QEMU: %s", err, lastLines(text, 30), lastLines(complaints.String(), 3))
	}
	if cut != nil && err != nil {
		err = fmt.Errorf("%w (%w)", err, cut)
	}
	return m, err
}

// readMarker reads lines until one is a marker. It returns the marker and the text read so far.
func readMarker(serial io.Reader) (Marker, string, error) {
	const limit = 4 << 20 // bytes; a guest that prints more is not a test guest
	lines := bufio.NewReader(io.LimitReader(serial, limit))
	var text strings.Builder
	for {
		line, err := lines.ReadString('\n')
		text.WriteString(line)
		if m, ok, bad := ParseMarker(line); ok {
			return m, text.String(), bad
		}
		if err != nil {
			return Marker{}, text.String(), ErrNoMarker
		}
	}
}

// lastLines returns the last n lines that are not empty, joined by " | ".
func lastLines(text string, n int) string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		return "nothing"
	}
	return strings.Join(lines[max(0, len(lines)-n):], " | ")
}
