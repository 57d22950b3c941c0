package appliance

import (
	"strings"
	"sync"
)

// console keeps the end of what the VM and QEMU say.
type console struct {
	mu   sync.Mutex
	text []byte
}

const maxConsole = 64 << 10 // bytes that are kept

func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.text = append(c.text, p...)
	c.text = c.text[max(0, len(c.text)-maxConsole):]
	return len(p), nil
}

// end returns the last lines, with nothing that a terminal would act on.
func (c *console) end() string {
	const lines = 8
	c.mu.Lock()
	defer c.mu.Unlock()
	var said []string
	for line := range strings.Lines(string(c.text)) {
		if line = strings.TrimSpace(strings.Map(printable, line)); line != "" {
			said = append(said, line)
		}
	}
	if said == nil {
		return "none"
	}
	return strings.Join(said[max(0, len(said)-lines):], "; ")
}

func printable(r rune) rune {
	if r < ' ' || r > '~' {
		return ' '
	}
	return r
}
