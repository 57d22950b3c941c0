package cleanup

import (
	"context"
	"testing"
)

// A held change is left alone by every store of the folder, until its hold is released.
func TestHeldChangeIsNotReverted(t *testing.T) {
	dir := t.TempDir()
	own, other := NewStore(dir), NewStore(dir)
	_, err := own.Add(mounted("esx1:443", "left"))
	must(t, err)
	hold, err := own.Hold(mounted("esx1:443", "used"))
	must(t, err)
	reverted := ""
	undo := map[Kind]Undo{NFSDatastore: func(_ context.Context, r Record) error { reverted += r.Text + " "; return nil }}
	for _, s := range []*Store{other, own} {
		if _, err := s.Restore(t.Context(), "esx1:443", undo); err != nil {
			t.Error(err)
		}
		if got := s.texts(t); reverted != "datastore left " || got != "datastore used" {
			t.Fatalf("reverted %q, on record %q", reverted, got)
		}
		if list, err := s.ListLeft(); err != nil || len(list) > 0 {
			t.Errorf("left: %v, %v", list, err)
		}
	}
	must(t, hold.Release())
	if list, err := other.ListLeft(); err != nil || len(list) != 1 {
		t.Errorf("left after its release: %v, %v", list, err)
	}
	done, err := other.Restore(t.Context(), "esx1:443", undo)
	if err != nil || len(done) != 1 || reverted != "datastore left datastore used " || other.texts(t) != "" {
		t.Errorf("reverted %q, %d records, %v", reverted, len(done), err)
	}
}

func TestRemovedHoldLeavesNothing(t *testing.T) {
	s := NewStore(t.TempDir())
	hold, err := s.Hold(mounted("esx1:443", "a"))
	must(t, err)
	must(t, hold.Remove())
	if got := s.texts(t); got != "" {
		t.Errorf("on record: %s", got)
	}
	again, err := s.Hold(mounted("esx1:443", "a")) // its lock was released
	must(t, err)
	must(t, again.Remove())
}

// A process that restores at the same time may revert and remove a record before it is locked. It is then
// added again.
func TestHoldDuringRestores(t *testing.T) {
	dir := t.TempDir()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for other := NewStore(dir); ctx.Err() == nil; {
			if _, err := other.Restore(ctx, "esx1:443", map[Kind]Undo{NFSDatastore: func(context.Context, Record) error { return nil }}); err != nil {
				t.Error(err)
			}
		}
	}()
	for range 20 {
		s := NewStore(dir)
		hold, err := s.Hold(mounted("esx1:443", "a"))
		must(t, err)
		if got := s.texts(t); got != "datastore a" {
			t.Fatalf("held, and on record: %q", got)
		}
		must(t, hold.Remove())
	}
	stop()
	<-ended
}
