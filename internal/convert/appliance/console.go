package appliance

import (
	"strings"
	"sync"
)

// A console stores the end of the output of the VM and of QEMU.
type console struct {
	mu   sync.Mutex // protects text
	text []byte     // last maxConsole bytes
}

// maxConsole is the number of bytes that are stored.
const maxConsole = 64 << 10

// Write implements io.Writer. It never fails.
func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.text = append(c.text, p...)
	// A panic is at the end of the output.
	c.text = c.text[max(0, len(c.text)-maxConsole):]
	return len(p), nil
}

// lastLines returns the last lines without control characters, for messages; "none" if there is no
// output.
func (c *console) lastLines() string {
	const lines = 8
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []string
	for line := range strings.Lines(string(c.text)) {
		if line = strings.TrimSpace(strings.Map(replaceControl, line)); line != "" {
			found = append(found, line)
		}
	}
	if found == nil {
		return "none"
	}
	return strings.Join(found[max(0, len(found)-lines):], "; ")
}

// replaceControl replaces all characters but printable ASCII by spaces.
func replaceControl(r rune) rune {
	if r < ' ' || r > '~' {
		return ' '
	}
	return r
}
