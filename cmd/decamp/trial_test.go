package main

import (
	"context"
	"errors"
	"testing"
)

// As many VMs boot at a time as there is room for; who waits is let go when its run stops.
func TestTrialsWaitForEachOther(t *testing.T) {
	w := &works{trials: make(chan struct{}, 1)}
	leave, err := w.enterTrial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := w.enterTrial(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("a second one boots, too: %v", err)
	}
	leave()
	if leave, err = w.enterTrial(t.Context()); err != nil {
		t.Fatal(err)
	}
	leave()
	for range 3 { // nobody bounds those of one command
		if _, err := (&works{}).enterTrial(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
