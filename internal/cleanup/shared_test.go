package cleanup

import (
	"context"
	"maps"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// fakeDatabase is the database that processes share. It is unreachable for the next `unreachable` calls.
type fakeDatabase struct {
	mu          sync.Mutex
	docs        map[ID][]byte
	unreachable int
}

func (d *fakeDatabase) checkReachable() error {
	if d.unreachable == 0 {
		return nil
	}
	d.unreachable--
	return fault.New(fault.Unreachable, "no database").WithHint("start it")
}

func (d *fakeDatabase) Put(_ context.Context, id ID, doc []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.checkReachable(); err != nil {
		return err
	}
	d.docs[id] = doc
	return nil
}

func (d *fakeDatabase) Drop(_ context.Context, id ID) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.checkReachable(); err != nil {
		return err
	}
	delete(d.docs, id)
	return nil
}

func (d *fakeDatabase) All(context.Context) (map[ID][]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.docs), d.checkReachable()
}

func (d *fakeDatabase) Where(id ID) string { return "row " + string(id) }

func newDatabase() *fakeDatabase { return &fakeDatabase{docs: map[ID][]byte{}} }

// restoreAll restores esx1 with s, and returns the names of the reverted changes.
func restoreAll(t *testing.T, s *Store) string {
	t.Helper()
	var texts []string
	_, err := s.Restore(t.Context(), "esx1:443", map[Kind]Undo{NFSDatastore: func(_ context.Context, r Record) error {
		texts = append(texts, r.Details["name"])
		return nil
	}})
	must(t, err)
	return strings.Join(texts, ", ")
}

func addRecord(t *testing.T, s *Store, name string) {
	t.Helper()
	_, err := s.Add(newRecord("esx1:443", name))
	must(t, err)
}

func TestChangesInUseAreNotReverted(t *testing.T) {
	db := newDatabase()
	gone := ""
	a := NewShared(db, "a", nil)
	b := NewShared(db, "b", func(owner string) bool { return owner == gone })
	addRecord(t, a, "of-a")
	addRecord(t, b, "of-b")
	if got := restoreAll(t, b); got != "" {
		t.Errorf("%s was reverted in use", got)
	}
	if got := restoreAll(t, NewShared(db, "b", nil)); got != "of-b" {
		t.Errorf("b after a restart: reverted %q, want of-b", got)
	}
	gone = "a"
	if got := restoreAll(t, b); got != "of-a" {
		t.Errorf("a is gone: b reverted %q, want of-a", got)
	}
	if got := a.recordTexts(t); got != "" {
		t.Errorf("got records %q, want none", got)
	}
}

// A process may revert a change later that it released without reverting it.
func TestReleasedChangeIsRevertedBySameProcess(t *testing.T) {
	s := NewShared(newDatabase(), "a", nil)
	addRecord(t, s, "x")
	if servers, err := s.Abandoned(t.Context()); len(servers) > 0 || err != nil {
		t.Errorf("got abandoned servers %v, %v; the change is in use", servers, err)
	}
	s.Release(newRecord("esx1:443", "x").ID())
	if servers, err := s.Abandoned(t.Context()); len(servers) != 1 || servers[0] != "esx1:443" || err != nil {
		t.Errorf("got abandoned servers %v, %v; want esx1:443", servers, err)
	}
	if got := s.recordTexts(t); got == "" {
		t.Error("the record of the released change is missing")
	}
	if got := restoreAll(t, s); got != "x" {
		t.Errorf("reverted %q, want x", got)
	}
}

// Add waits for a revert of the same change. Otherwise the revert would remove the new record.
func TestAddWaitsForRevert(t *testing.T) {
	db := newDatabase()
	addRecord(t, NewShared(db, "a", nil), "x")
	s, added := NewShared(db, "a", nil), make(chan error, 1)
	_, err := s.Restore(t.Context(), "esx1:443", map[Kind]Undo{NFSDatastore: func(context.Context, Record) error {
		go func() {
			_, err := s.Add(newRecord("esx1:443", "x"))
			added <- err
		}()
		for range 1000 { // gives Add time to reach the wait
			runtime.Gosched()
		}
		return nil
	}})
	must(t, err)
	must(t, <-added)
	if got := s.recordTexts(t); got == "" {
		t.Error("the new change has no record")
	}
}

// A process that makes a recorded change again becomes its owner.
func TestRepeatedChangeGetsNewOwner(t *testing.T) {
	db := newDatabase()
	a, c := NewShared(db, "a", nil), NewShared(db, "c", func(owner string) bool { return owner == "a" })
	addRecord(t, a, "x")
	addRecord(t, NewShared(db, "b", nil), "x")
	if got := restoreAll(t, c); got != "" {
		t.Errorf("reverted %s, which b owns now", got)
	}
	list, err := a.List()
	must(t, err)
	if len(list) != 1 || list[0].Owner != "b" {
		t.Errorf("got records %+v, want one of b", list)
	}
}

func TestUnreachableDatabaseIsRetried(t *testing.T) {
	db := newDatabase()
	s := NewShared(db, "a", nil)
	db.unreachable = 1
	addRecord(t, s, "x")
	db.unreachable = 1
	must(t, s.Remove(newRecord("esx1:443", "x").ID()))
	s.retryLimit = time.Millisecond
	db.unreachable = 100
	if _, err := s.Add(newRecord("esx1:443", "x")); !fault.Is(err, fault.Unreachable) || fault.HintOf(err) != "start it" {
		t.Errorf("without a database: %v", err)
	}
}

func TestUnreadableRowIsNamed(t *testing.T) {
	db := newDatabase()
	db.docs["0123456789abcdef"] = []byte("{")
	if _, err := NewShared(db, "a", nil).List(); !fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), "row 0123456789abcdef") {
		t.Errorf("got error %v", err)
	}
}
