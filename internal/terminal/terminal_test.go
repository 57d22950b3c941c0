package terminal

import (
	"context"
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/test/pty"
)

func TestQuestionEndsWithItsContext(t *testing.T) {
	p := pty.New(t)
	term := New(p.Open())
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan error, 1)
	go func() {
		_, err := term.AskSecret(ctx, "Password: ")
		asked <- err
	}()
	p.Sees("Password: ")
	cancel()
	if err := <-asked; !fault.Is(err, fault.Canceled) {
		t.Errorf("got %v", err)
	}
}
