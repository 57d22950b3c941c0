package sqlitedb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
)

// medium is what a power cut would leave: the file and its log as they were at the last sync.
type medium struct {
	t     *testing.T
	dir   string // of the copies
	syncs atomic.Int32
}

// openOn opens a file whose syncs copy it to a medium.
func openOn(t *testing.T) (*File, *medium) {
	t.Helper()
	f, err := At(filepath.Join(t.TempDir(), "x.db"))
	if err != nil {
		t.Fatal(err)
	}
	m := &medium{t: t, dir: t.TempDir()}
	f.syncer.data = func(log string) error {
		m.syncs.Add(1)
		return errors.Join(m.copy(f.path), m.copy(log), fdatasync(log))
	}
	return f, m
}

func (m *medium) copy(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(m.dir, filepath.Base(path)), text, 0o600)
}

// rows returns how many rows are left after a power cut.
func (m *medium) rows() int {
	m.t.Helper()
	f, err := At(filepath.Join(m.dir, "x.db"))
	if err != nil {
		m.t.Fatal(err)
	}
	db, err := f.Open(Options{Conns: 1})
	if err != nil {
		m.t.Fatal(err)
	}
	defer db.Close()
	return rowsOf(m.t, db)
}

func rowsOf(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	if err := db.QueryRow(`SELECT count(*) FROM things`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func pool(t *testing.T, f *File, o Options) *sql.DB {
	t.Helper()
	db, err := f.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func exec(t *testing.T, db *sql.DB, query string, args ...any) {
	t.Helper()
	if _, err := db.Exec(query, args...); err != nil {
		t.Fatal(err)
	}
}

const makeThings = `CREATE TABLE things (id INTEGER PRIMARY KEY, name TEXT NOT NULL)`

// ways are how something is written.
var ways = map[string]func(*sql.DB, string) error{
	"exec": func(db *sql.DB, name string) error {
		_, err := db.Exec(`INSERT INTO things (name) VALUES ($1)`, name)
		return err
	},
	"query": func(db *sql.DB, name string) error {
		var id int
		return db.QueryRow(`INSERT INTO things (name) VALUES ($1) RETURNING id`, name).Scan(&id)
	},
	"transaction": func(db *sql.DB, name string) error {
		tx, err := db.Begin()
		if err != nil {
			return err
		}
		_, err = tx.Exec(`INSERT INTO things (name) VALUES ($1)`, name)
		return errors.Join(err, tx.Commit())
	},
	"query in a transaction": func(db *sql.DB, name string) error {
		tx, err := db.Begin()
		if err != nil {
			return err
		}
		var id int
		return errors.Join(tx.QueryRow(`INSERT INTO things (name) VALUES ($1) RETURNING id`, name).Scan(&id), tx.Commit())
	},
}

func TestWhatWasCommittedSurvivesThePower(t *testing.T) {
	for name, write := range ways {
		t.Run(name, func(t *testing.T) {
			f, m := openOn(t)
			db := pool(t, f, Options{Conns: 2, Durable: true})
			exec(t, db, makeThings)
			for i := range 5 {
				if err := write(db, fmt.Sprint(i)); err != nil {
					t.Fatal(err)
				}
				if left := m.rows(); left != i+1 {
					t.Errorf("%d of %d rows are left", left, i+1)
				}
			}
		})
	}
}

func TestNobodyWaitsForTheMediumInVain(t *testing.T) {
	f, m := openOn(t)
	db, loose := pool(t, f, Options{Conns: 1, Durable: true}), pool(t, f, Options{Conns: 1})
	exec(t, db, makeThings)
	before := m.syncs.Load()
	for name, write := range ways {
		if err := write(loose, name); err != nil {
			t.Fatal(err)
		}
	}
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if err := errors.Join(tx.QueryRow(`SELECT count(*) FROM things`).Scan(&n), tx.Commit()); err != nil || n != len(ways) {
		t.Errorf("%d rows, %v", n, err)
	}
	if n := rowsOf(t, db); n != len(ways) || m.syncs.Load() != before {
		t.Errorf("%d rows, %d syncs", n, m.syncs.Load()-before)
	}
}

// Writers commit while a sync is under way: one more makes all of them durable.
func TestWritersShareASync(t *testing.T) {
	const writers = 8
	f, m := openOn(t)
	db := pool(t, f, Options{Conns: writers, Durable: true})
	loose := pool(t, f, Options{Conns: 1})
	exec(t, db, makeThings)
	plain, before := f.syncer.data, m.syncs.Load()
	allIn := make(chan struct{})
	f.syncer.data = func(log string) error { <-allIn; return plain(log) }
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() {
			if _, err := db.Exec(`INSERT INTO things (name) VALUES ($1)`, i); err != nil {
				t.Error(err)
			}
		})
	}
	for rowsOf(t, loose) < writers {
	}
	close(allIn)
	all.Wait()
	if n := m.syncs.Load() - before; n < 1 || n > 2+1 { // somebody may have seen the row before it joined
		t.Errorf("%d syncs for %d writers", n, writers)
	}
	if left := m.rows(); left != writers {
		t.Errorf("%d of %d rows are left", left, writers)
	}
}

func TestNothingIsDurableAfterASyncFailed(t *testing.T) {
	f, m := openOn(t)
	db := pool(t, f, Options{Conns: 1, Durable: true})
	exec(t, db, makeThings)
	plain, lost := f.syncer.data, errors.New("lost pages")
	f.syncer.data = func(string) error { return lost }
	if err := ways["exec"](db, "a"); !errors.Is(err, lost) {
		t.Errorf("exec: %v", err)
	}
	f.syncer.data = plain
	before := m.syncs.Load()
	for name, write := range ways {
		if err := write(db, name); !errors.Is(err, lost) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if m.syncs.Load() != before {
		t.Error("tried again")
	}
}

func TestStatementsAreKept(t *testing.T) {
	f, _ := openOn(t)
	db := pool(t, f, Options{Conns: 1})
	exec(t, db, makeThings)
	for i := range 2 * maxIdle {
		exec(t, db, `INSERT INTO things (name) VALUES ($1)`, i)
		if n := rowsOf(t, db); n != i+1 {
			t.Fatalf("%d rows, want %d", n, i+1)
		}
	}
	idle := func() (n int) {
		c, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.Raw(func(c any) error { n = len(c.(*conn).idle); return nil })
		return n
	}
	if n := idle(); n != 2 {
		t.Errorf("%d statements are kept, want 2", n)
	}
	for i := range 2 * maxIdle {
		exec(t, db, fmt.Sprintf(`DELETE FROM things WHERE id = %d`, i))
	}
	if n := idle(); n != maxIdle {
		t.Errorf("%d statements are kept, want %d", n, maxIdle)
	}
}

// The same query twice at a time, on one connection, and after the table changed.
func TestStatementInUseIsNotShared(t *testing.T) {
	f, _ := openOn(t)
	db := pool(t, f, Options{Conns: 1})
	exec(t, db, makeThings)
	for i := range 3 {
		exec(t, db, `INSERT INTO things (name) VALUES ($1)`, i)
	}
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	const query = `SELECT name FROM things WHERE id > $1 ORDER BY id`
	outer, err := tx.Query(query, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer outer.Close()
	for want := range 3 {
		var name, next string
		if !outer.Next() || outer.Scan(&name) != nil || name != fmt.Sprint(want) {
			t.Fatalf("row %d: %q, %v", want, name, outer.Err())
		}
		err := tx.QueryRow(query, want+1).Scan(&next)
		if want == 2 != errors.Is(err, sql.ErrNoRows) || want < 2 && next != fmt.Sprint(want+1) {
			t.Errorf("behind row %d: %q, %v", want, next, err)
		}
	}
	if err := errors.Join(outer.Close(), tx.Commit()); err != nil {
		t.Fatal(err)
	}
	exec(t, db, `ALTER TABLE things ADD COLUMN more TEXT NOT NULL DEFAULT 'x'`)
	var more string
	if err := db.QueryRow(`SELECT * FROM things WHERE id = 1`).Scan(new(int), new(string), &more); err != nil || more != "x" {
		t.Errorf("%q, %v", more, err)
	}
}

func TestWritersStandInLine(t *testing.T) {
	f, _ := openOn(t)
	db := pool(t, f, Options{Conns: 3})
	exec(t, db, makeThings)
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	gaveUp := make(chan error)
	go func() {
		_, err := db.ExecContext(ctx, `INSERT INTO things (name) VALUES ('never')`)
		gaveUp <- err
	}()
	cancel()
	if err := <-gaveUp; !errors.Is(err, context.Canceled) {
		t.Errorf("who was canceled in line: %v", err)
	}
	wrote := make(chan error)
	go func() { wrote <- ways["transaction"](db, "later") }()
	if n := rowsOf(t, db); n != 0 { // who reads does not wait
		t.Errorf("%d rows", n)
	}
	_, err = tx.Exec(`INSERT INTO things (name) VALUES ('now')`)
	if err := errors.Join(err, tx.Commit(), <-wrote); err != nil {
		t.Fatal(err)
	}
	if n := rowsOf(t, db); n != 2 {
		t.Errorf("%d rows", n)
	}
}

func TestPrepareIsRefused(t *testing.T) {
	f, _ := openOn(t)
	if _, err := pool(t, f, Options{Conns: 1, Durable: true}).Prepare(`SELECT 1`); !errors.Is(err, errPrepare) {
		t.Errorf("%v", err)
	}
}

// Files that create a database at the same time all open it. SQLite itself reports to some that it is locked.
func TestManyCreateAFileAtOnce(t *testing.T) {
	dir := t.TempDir()
	for round := range 100 {
		path := filepath.Join(dir, fmt.Sprintf("%d.db", round))
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				f, err := At(path)
				if err != nil {
					t.Error(err)
					return
				}
				db, err := f.Open(Options{Conns: 1})
				if err != nil {
					t.Error(err)
					return
				}
				defer db.Close()
				if err := db.PingContext(t.Context()); err != nil {
					t.Errorf("round %d: %v", round, err)
				}
			})
		}
		all.Wait()
	}
}
