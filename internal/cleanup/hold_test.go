package cleanup

import (
	"context"
	"testing"
)

// No store of the folder reverts a held change until its hold is released.
func TestHeldChangeIsNotReverted(t *testing.T) {
	dir := t.TempDir()
	own, other := NewStore(dir), NewStore(dir)
	_, err := own.Add(newRecord("esx1:443", "left"))
	must(t, err)
	hold, err := own.Hold(newRecord("esx1:443", "used"))
	must(t, err)
	reverted := ""
	undo := map[Kind]Undo{NFSDatastore: func(_ context.Context, r Record) error { reverted += r.Text + " "; return nil }}
	for _, s := range []*Store{other, own} {
		if _, err := s.Restore(t.Context(), "esx1:443", undo); err != nil {
			t.Error(err)
		}
		if got := s.recordTexts(t); reverted != "datastore left " || got != "datastore used" {
			t.Fatalf("reverted %q, got records %q", reverted, got)
		}
		if list, err := s.ListLeft(); err != nil || len(list) > 0 {
			t.Errorf("got %v, %v; want no changes left", list, err)
		}
	}
	must(t, hold.Release())
	if list, err := other.ListLeft(); err != nil || len(list) != 1 {
		t.Errorf("after the release: got %v, %v; want one change left", list, err)
	}
	done, err := other.Restore(t.Context(), "esx1:443", undo)
	if err != nil || len(done) != 1 || reverted != "datastore left datastore used " || other.recordTexts(t) != "" {
		t.Errorf("reverted %q, %d records, %v", reverted, len(done), err)
	}
}

func TestRemovedHoldDeletesRecordAndLock(t *testing.T) {
	s := NewStore(t.TempDir())
	hold, err := s.Hold(newRecord("esx1:443", "a"))
	must(t, err)
	must(t, hold.Remove())
	if got := s.recordTexts(t); got != "" {
		t.Errorf("got records %q, want none", got)
	}
	again, err := s.Hold(newRecord("esx1:443", "a")) // the lock of the first hold is released
	must(t, err)
	must(t, again.Remove())
}

// Another process may revert and remove a record before Hold locks it. Hold then adds the record again.
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
		hold, err := s.Hold(newRecord("esx1:443", "a"))
		must(t, err)
		if got := s.recordTexts(t); got != "datastore a" {
			t.Fatalf("got records %q, want the held change", got)
		}
		must(t, hold.Remove())
	}
	stop()
	<-ended
}
