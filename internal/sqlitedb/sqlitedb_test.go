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

// A medium contains a copy of the file and its WAL as of the last sync. A power failure would leave these.
type medium struct {
	t     *testing.T
	dir   string // folder of the copies
	syncs atomic.Int32
}

// openOnMedium opens a file whose syncs copy it to a medium.
func openOnMedium(t *testing.T) (*File, *medium) {
	t.Helper()
	f, err := At(filepath.Join(t.TempDir(), "x.db"))
	if err != nil {
		t.Fatal(err)
	}
	m := &medium{t: t, dir: t.TempDir()}
	f.syncer.data = func(log string) error {
		m.syncs.Add(1)
		return errors.Join(m.copyFile(f.path), m.copyFile(log), fdatasync(log))
	}
	return f, m
}

func (m *medium) copyFile(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(m.dir, filepath.Base(path)), text, 0o600)
}

// countRows returns the number of rows that a power failure would leave.
func (m *medium) countRows() int {
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
	return countRows(m.t, db)
}

func countRows(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	if err := db.QueryRow(`SELECT count(*) FROM things`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func openPool(t *testing.T, f *File, o Options) *sql.DB {
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

func mustExec(t *testing.T, db *sql.DB, query string, args ...any) {
	t.Helper()
	if _, err := db.Exec(query, args...); err != nil {
		t.Fatal(err)
	}
}

const createTable = `CREATE TABLE things (id INTEGER PRIMARY KEY, name TEXT NOT NULL)`

// writes are the ways to write a row.
var writes = map[string]func(*sql.DB, string) error{
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

func TestCommittedRowsSurvivePowerLoss(t *testing.T) {
	for name, write := range writes {
		t.Run(name, func(t *testing.T) {
			f, m := openOnMedium(t)
			db := openPool(t, f, Options{Conns: 2, Durable: true})
			mustExec(t, db, createTable)
			for i := range 5 {
				if err := write(db, fmt.Sprint(i)); err != nil {
					t.Fatal(err)
				}
				if left := m.countRows(); left != i+1 {
					t.Errorf("%d rows are left, want %d", left, i+1)
				}
			}
		})
	}
}

// Writes without Durable and transactions that only read cause no sync.
func TestReadsAndOtherWritesCauseNoSync(t *testing.T) {
	f, m := openOnMedium(t)
	db, loose := openPool(t, f, Options{Conns: 1, Durable: true}), openPool(t, f, Options{Conns: 1})
	mustExec(t, db, createTable)
	before := m.syncs.Load()
	for name, write := range writes {
		if err := write(loose, name); err != nil {
			t.Fatal(err)
		}
	}
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if err := errors.Join(tx.QueryRow(`SELECT count(*) FROM things`).Scan(&n), tx.Commit()); err != nil || n != len(writes) {
		t.Errorf("%d rows, want %d; %v", n, len(writes), err)
	}
	if n := countRows(t, db); n != len(writes) || m.syncs.Load() != before {
		t.Errorf("%d rows and %d syncs, want %d and 0", n, m.syncs.Load()-before, len(writes))
	}
}

// Several writers commit while a sync runs. One more sync makes all their rows durable.
func TestWritersShareASync(t *testing.T) {
	const writers = 8
	f, m := openOnMedium(t)
	db := openPool(t, f, Options{Conns: writers, Durable: true})
	loose := openPool(t, f, Options{Conns: 1})
	mustExec(t, db, createTable)
	syncData, before := f.syncer.data, m.syncs.Load()
	committed := make(chan struct{})
	f.syncer.data = func(log string) error { <-committed; return syncData(log) }
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() {
			if _, err := db.Exec(`INSERT INTO things (name) VALUES ($1)`, i); err != nil {
				t.Error(err)
			}
		})
	}
	for countRows(t, loose) < writers {
	}
	close(committed)
	all.Wait()
	if n := m.syncs.Load() - before; n < 1 || n > 2+1 { // a row may be visible before its writer joins a sync
		t.Errorf("%d syncs for %d writers, want 1 to 3", n, writers)
	}
	if left := m.countRows(); left != writers {
		t.Errorf("%d rows are left, want %d", left, writers)
	}
}

func TestWritesFailAfterFailedSync(t *testing.T) {
	f, m := openOnMedium(t)
	db := openPool(t, f, Options{Conns: 1, Durable: true})
	mustExec(t, db, createTable)
	plain, lost := f.syncer.data, errors.New("lost pages")
	f.syncer.data = func(string) error { return lost }
	if err := writes["exec"](db, "a"); !errors.Is(err, lost) {
		t.Errorf("exec: got %v, want %v", err, lost)
	}
	f.syncer.data = plain
	before := m.syncs.Load()
	for name, write := range writes {
		if err := write(db, name); !errors.Is(err, lost) {
			t.Errorf("%s: got %v, want %v", name, err, lost)
		}
	}
	if m.syncs.Load() != before {
		t.Error("a failed sync was repeated")
	}
}

func TestStatementsAreCached(t *testing.T) {
	f, _ := openOnMedium(t)
	db := openPool(t, f, Options{Conns: 1})
	mustExec(t, db, createTable)
	for i := range 2 * maxIdle {
		mustExec(t, db, `INSERT INTO things (name) VALUES ($1)`, i)
		if n := countRows(t, db); n != i+1 {
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
		mustExec(t, db, fmt.Sprintf(`DELETE FROM things WHERE id = %d`, i))
	}
	if n := idle(); n != maxIdle {
		t.Errorf("%d statements are kept, want %d", n, maxIdle)
	}
}

// A query is executed while its statement is in use on the same connection, and again after a change of the table.
func TestStatementInUseIsNotShared(t *testing.T) {
	f, _ := openOnMedium(t)
	db := openPool(t, f, Options{Conns: 1})
	mustExec(t, db, createTable)
	for i := range 3 {
		mustExec(t, db, `INSERT INTO things (name) VALUES ($1)`, i)
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
			t.Errorf("row after row %d: %q, %v", want, next, err)
		}
	}
	if err := errors.Join(outer.Close(), tx.Commit()); err != nil {
		t.Fatal(err)
	}
	mustExec(t, db, `ALTER TABLE things ADD COLUMN more TEXT NOT NULL DEFAULT 'x'`)
	var more string
	if err := db.QueryRow(`SELECT * FROM things WHERE id = 1`).Scan(new(int), new(string), &more); err != nil || more != "x" {
		t.Errorf("new column is %q, want x; %v", more, err)
	}
}

func TestWritersWaitForEachOther(t *testing.T) {
	f, _ := openOnMedium(t)
	db := openPool(t, f, Options{Conns: 3})
	mustExec(t, db, createTable)
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	canceled := make(chan error)
	go func() {
		_, err := db.ExecContext(ctx, `INSERT INTO things (name) VALUES ('never')`)
		canceled <- err
	}()
	cancel()
	if err := <-canceled; !errors.Is(err, context.Canceled) {
		t.Errorf("canceled writer: got %v, want Canceled", err)
	}
	wrote := make(chan error)
	go func() { wrote <- writes["transaction"](db, "later") }()
	if n := countRows(t, db); n != 0 { // a reader does not wait
		t.Errorf("%d rows, want 0", n)
	}
	_, err = tx.Exec(`INSERT INTO things (name) VALUES ('now')`)
	if err := errors.Join(err, tx.Commit(), <-wrote); err != nil {
		t.Fatal(err)
	}
	if n := countRows(t, db); n != 2 {
		t.Errorf("%d rows, want 2", n)
	}
}

func TestPrepareIsRefused(t *testing.T) {
	f, _ := openOnMedium(t)
	if _, err := openPool(t, f, Options{Conns: 1, Durable: true}).Prepare(`SELECT 1`); !errors.Is(err, errPrepare) {
		t.Errorf("Prepare: got %v, want %v", err, errPrepare)
	}
}

// Several Files create a database at the same time, and all open it. SQLite alone reports a locked database to some of
// them.
func TestConcurrentCreatesSucceed(t *testing.T) {
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
