package inside

import (
	"strings"

	"golang.org/x/sys/unix"
)

// maxLog limits the lines of the kernel log in a reply.
const maxLog = 40

// A kernelLog reads the kernel's messages, starting at the time of its creation.
type kernelLog struct{ fd int }

// openKernelLog opens the log at its end. Without /dev/kmsg the log is empty.
func openKernelLog() kernelLog {
	fd, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return kernelLog{-1}
	}
	_, _ = unix.Seek(fd, 0, unix.SEEK_END) // after a failure, older messages are returned, too
	return kernelLog{fd}
}

// lines returns the last messages since the previous call.
func (l kernelLog) lines() (out []string) {
	if l.fd < 0 {
		return nil
	}
	record := make([]byte, 8192) // a read returns one record; the kernel limits its size
	for {
		n, err := unix.Read(l.fd, record)
		if err == unix.EPIPE { // some were overwritten before they were read
			continue
		}
		if err != nil || n <= 0 {
			return out[max(0, len(out)-maxLog):]
		}
		// A record is "priority,sequence,time,flags;text" and further lines with properties.
		_, text, _ := strings.Cut(string(record[:n]), ";")
		text, _, _ = strings.Cut(text, "\n")
		out = append(out, text)
	}
}
