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

// A guest that reads nothing does not keep a person from leaving.
func TestDetachKeyIsSeenWhateverTheGuestDoes(t *testing.T) {
	console, _ := net.Pipe()
	keys, person := io.Pipe()
	var screen bytes.Buffer
	a := New(console, keys, struct{ io.Writer }{&screen})
	a.typed = true
	ended := make(chan error)
	go func() { ended <- a.Run(t.Context()) }()
	for range 2 * keyQueueLen {
		fmt.Fprint(person, "x")
	}
	fmt.Fprint(person, string(rune(detachKey)))
	if err := <-ended; !errors.Is(err, ErrLeft) {
		t.Error(err)
	}
	if n := strings.Count(screen.String(), "\a"); n < keyQueueLen-1 || strings.Trim(screen.String(), "\a") != "" {
		t.Errorf("%d bells: %q", n, screen.String())
	}
}
