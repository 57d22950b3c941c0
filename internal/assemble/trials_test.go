package assemble

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// As many VMs boot at a time as there is room for; who waits says so, and is let go when its run stops.
func TestTrialsWaitForEachOther(t *testing.T) {
	w := &Parts{Trials: make(chan struct{}, 1)}
	quiet := func(why string) { t.Errorf("it waits: %s", why) }
	waits := ""
	leave, err := w.enterTrial(t.Context(), quiet)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := w.enterTrial(ctx, func(why string) { waits = why }); !errors.Is(err, context.Canceled) {
		t.Fatalf("a second one boots, too: %v", err)
	}
	if !strings.Contains(waits, "1 (--trials)") {
		t.Errorf("who waits says %q", waits)
	}
	leave()
	if leave, err = w.enterTrial(t.Context(), quiet); err != nil {
		t.Fatal(err)
	}
	leave()
	for range 3 { // nobody bounds those of one command
		if _, err := (&Parts{}).enterTrial(t.Context(), quiet); err != nil {
			t.Fatal(err)
		}
	}
}
