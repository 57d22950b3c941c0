package terminal

import (
	"context"
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/test/pty"
)

func TestPromptEndsWithItsContext(t *testing.T) {
	p := pty.New(t)
	term := New(p.Open())
	ctx, cancel := context.WithCancel(t.Context())
	answered := make(chan error, 1)
	go func() {
		_, err := term.AskSecret(ctx, "Password: ")
		answered <- err
	}()
	p.Sees("Password: ")
	cancel()
	if err := <-answered; !fault.Is(err, fault.Canceled) {
		t.Errorf("got %v, want Canceled", err)
	}
}
