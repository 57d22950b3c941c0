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

// database is what processes share. It is out of reach for the next few calls.
type database struct {
	mu   sync.Mutex
	docs map[ID][]byte
	away int
}

func (d *database) reach() error {
	if d.away == 0 {
		return nil
	}
	d.away--
	return fault.New(fault.Unreachable, "no database").WithHint("start it")
}

func (d *database) Put(_ context.Context, id ID, doc []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.reach(); err != nil {
		return err
	}
	d.docs[id] = doc
	return nil
}

func (d *database) Drop(_ context.Context, id ID) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.reach(); err != nil {
		return err
	}
	delete(d.docs, id)
	return nil
}

func (d *database) All(context.Context) (map[ID][]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.docs), d.reach()
}

func (d *database) Where(id ID) string { return "row " + string(id) }

func newDatabase() *database { return &database{docs: map[ID][]byte{}} }

// undone puts back what s may at esx1, and returns it.
func undone(t *testing.T, s *Store) string {
	t.Helper()
	var texts []string
	_, err := s.Restore(t.Context(), "esx1:443", map[Kind]Undo{NFSDatastore: func(_ context.Context, r Record) error {
		texts = append(texts, r.Details["name"])
		return nil
	}})
	must(t, err)
	return strings.Join(texts, ", ")
}

func add(t *testing.T, s *Store, name string) {
	t.Helper()
	_, err := s.Add(mounted("esx1:443", name))
	must(t, err)
}

func TestWhatIsInUseIsNotPutBack(t *testing.T) {
	db := newDatabase()
	gone := ""
	a := NewShared(db, "a", nil)
	b := NewShared(db, "b", func(owner string) bool { return owner == gone })
	add(t, a, "of-a")
	add(t, b, "of-b")
	if got := undone(t, b); got != "" {
		t.Errorf("in use: %s was put back", got)
	}
	if got := undone(t, NewShared(db, "b", nil)); got != "of-b" {
		t.Errorf("b was started again and put back %q", got)
	}
	gone = "a"
	if got := undone(t, b); got != "of-a" {
		t.Errorf("a is gone and b put back %q", got)
	}
	if got := a.texts(t); got != "" {
		t.Errorf("on record: %s", got)
	}
}

// A datastore that a host would not give back is put back later by the same process, which lives on.
func TestWhatIsGivenUpIsPutBackByTheSameProcess(t *testing.T) {
	s := NewShared(newDatabase(), "a", nil)
	add(t, s, "x")
	if servers, err := s.Abandoned(t.Context()); len(servers) > 0 || err != nil {
		t.Errorf("abandoned while it is in use: %v, %v", servers, err)
	}
	s.Release(mounted("esx1:443", "x").ID())
	if servers, err := s.Abandoned(t.Context()); len(servers) != 1 || servers[0] != "esx1:443" || err != nil {
		t.Errorf("abandoned: %v, %v", servers, err)
	}
	if got := s.texts(t); got == "" {
		t.Error("what is given up is on record no more")
	}
	if got := undone(t, s); got != "x" {
		t.Errorf("put back %q", got)
	}
}

// What is mounted anew while the old one is put back would lose its record otherwise.
func TestWhatIsPutBackIsWaitedForByWhoDoesItAgain(t *testing.T) {
	db := newDatabase()
	add(t, NewShared(db, "a", nil), "x")
	s, added := NewShared(db, "a", nil), make(chan error, 1)
	_, err := s.Restore(t.Context(), "esx1:443", map[Kind]Undo{NFSDatastore: func(context.Context, Record) error {
		go func() {
			_, err := s.Add(mounted("esx1:443", "x"))
			added <- err
		}()
		for range 1000 { // it gets as far as it can
			runtime.Gosched()
		}
		return nil
	}})
	must(t, err)
	must(t, <-added)
	if got := s.texts(t); got == "" {
		t.Error("it is mounted and not on record")
	}
}

// Whoever goes on with a run does again what is on record of it, and has it from then on.
func TestWhatIsDoneAgainIsOfWhoDidItLast(t *testing.T) {
	db := newDatabase()
	a, c := NewShared(db, "a", nil), NewShared(db, "c", func(owner string) bool { return owner == "a" })
	add(t, a, "x")
	add(t, NewShared(db, "b", nil), "x")
	if got := undone(t, c); got != "" {
		t.Errorf("%s is b's now, and was put back for a", got)
	}
	list, err := a.List()
	must(t, err)
	if len(list) != 1 || list[0].Owner != "b" {
		t.Errorf("on record: %+v", list)
	}
}

func TestLostDatabaseIsWaitedFor(t *testing.T) {
	db := newDatabase()
	s := NewShared(db, "a", nil)
	db.away = 1
	add(t, s, "x")
	db.away = 1
	must(t, s.Remove(mounted("esx1:443", "x").ID()))
	s.retryLimit = time.Millisecond
	db.away = 100
	if _, err := s.Add(mounted("esx1:443", "x")); !fault.Is(err, fault.Unreachable) || fault.HintOf(err) != "start it" {
		t.Errorf("without a database: %v", err)
	}
}

func TestUnreadableRowIsNamed(t *testing.T) {
	db := newDatabase()
	db.docs["0123456789abcdef"] = []byte("{")
	if _, err := NewShared(db, "a", nil).List(); !fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), "row 0123456789abcdef") {
		t.Errorf("error: %v", err)
	}
}
