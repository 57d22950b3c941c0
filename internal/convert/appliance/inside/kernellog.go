package inside

import (
	"strings"

	"golang.org/x/sys/unix"
)

// maxLog bounds the lines of the kernel's that an answer has.
const maxLog = 40

// A kernelLog reads the kernel's messages from now on.
type kernelLog struct{ fd int }

// openKernelLog begins at the end. Without it there is nothing to tell.
func openKernelLog() kernelLog {
	fd, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return kernelLog{-1}
	}
	_, _ = unix.Seek(fd, 0, unix.SEEK_END) // else it has more to tell
	return kernelLog{fd}
}

// lines returns the last messages since the previous call.
func (l kernelLog) lines() (out []string) {
	if l.fd < 0 {
		return nil
	}
	record := make([]byte, 8192) // one at each read; the kernel's own bound
	for {
		n, err := unix.Read(l.fd, record)
		if err == unix.EPIPE { // some were overwritten before they were read
			continue
		}
		if err != nil || n <= 0 {
			return out[max(0, len(out)-maxLog):]
		}
		_, text, _ := strings.Cut(string(record[:n]), ";")
		text, _, _ = strings.Cut(text, "\n")
		out = append(out, text)
	}
}
