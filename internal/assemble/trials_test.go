package assemble

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// At most as many trials run at a time as Trials has room for. A trial that waits reports the reason, and stops waiting
// when its run is canceled.
func TestConcurrentTrialsAreLimited(t *testing.T) {
	w := &Parts{Trials: make(chan struct{}, 1)}
	wantNoWait := func(reason string) { t.Errorf("the trial waits: %s", reason) }
	reason := ""
	leave, err := w.enterTrial(t.Context(), wantNoWait)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := w.enterTrial(ctx, func(r string) { reason = r }); !errors.Is(err, context.Canceled) {
		t.Fatalf("the second trial: got %v, want Canceled", err)
	}
	if !strings.Contains(reason, "1 (--trials)") {
		t.Errorf("got reason %q", reason)
	}
	leave()
	if leave, err = w.enterTrial(t.Context(), wantNoWait); err != nil {
		t.Fatal(err)
	}
	leave()
	for range 3 { // a command without a limit
		if _, err := (&Parts{}).enterTrial(t.Context(), wantNoWait); err != nil {
			t.Fatal(err)
		}
	}
}
