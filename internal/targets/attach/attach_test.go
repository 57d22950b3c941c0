package attach

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
)

// The detach key works even if the guest does not read its input.
func TestDetachKeyWorksWithStalledGuest(t *testing.T) {
	console, _ := net.Pipe()
	keys, terminal := io.Pipe()
	var screen bytes.Buffer
	a := New(console, keys, struct{ io.Writer }{&screen})
	a.typed = true
	ended := make(chan error)
	go func() { ended <- a.Run(t.Context()) }()
	for range 2 * keyQueueLen {
		fmt.Fprint(terminal, "x")
	}
	fmt.Fprint(terminal, string(rune(detachKey)))
	if err := <-ended; !errors.Is(err, ErrLeft) {
		t.Error(err)
	}
	if n := strings.Count(screen.String(), "\a"); n < keyQueueLen-1 || strings.Trim(screen.String(), "\a") != "" {
		t.Errorf("got %d bells in %q", n, screen.String())
	}
}
