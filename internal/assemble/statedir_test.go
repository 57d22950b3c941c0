package assemble

import (
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/fault"
)

// Root creates no files in the state directory of a service that runs as another user.
func TestRootRefusesTheStateOfAnotherUser(t *testing.T) {
	a := &Assembler{Prompts: Prompts{Command: func(...string) string { return "decamp token add ci" }}}
	for _, allowed := range [][2]int{{0, 0}, {1000, 1000}, {1000, 0}} {
		if err := a.checkStateOwner("/srv/state", allowed[0], allowed[1]); err != nil {
			t.Errorf("process %d, owner %d: %v", allowed[0], allowed[1], err)
		}
	}
	err := a.checkStateOwner("/srv/state", 0, 4242)
	if !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), "/srv/state belongs to user #4242") {
		t.Errorf("got %v", err)
	}
	if got, want := fault.HintOf(err), "sudo -u '#4242' decamp token add ci"; got != want {
		t.Errorf("hint %q, want %q", got, want)
	}
}
