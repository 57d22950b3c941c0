// Package sqlitedb opens SQLite files in WAL mode for the goroutines of one process.
//
// # Differences to the driver
//
//   - A statement is compiled once for each connection, and not for each use.
//   - Writers of this process wait in a queue. SQLite itself sleeps and tries again, for up to
//     100 ms at a time.
//   - Writers that wait for the medium share a sync: it covers all commits before its start.
//
// # Durability
//
// Data that a Durable pool has committed is on the disk when the call returns. SQLite itself runs
// with synchronous=NORMAL, which keeps a file consistent after a power loss, but loses the
// transactions since the last sync of the log
// (https://sqlite.org/pragma.html#pragma_synchronous). This package syncs the whole log before
// Commit, Exec or Rows.Close return. After one error all later commits fail, because the kernel
// reports lost pages only once.
//
// # Limits
//
// Other processes may read committed data just before it is durable. A power loss at that moment
// removes it for them as well, because they run on the same machine. Prepare always fails.
package sqlitedb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"time"

	"modernc.org/sqlite" // also registers "sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/decamp/decamp/internal/sleep"
)

// A File is an SQLite database of this process. It is safe for concurrent use.
type File struct {
	path   string      // path of the database
	queue  writerQueue // writers of all pools
	syncer syncer      // syncs the log for all pools
}

// At returns the file at path. It creates the file if necessary, readable only by its owner. A process
// must have only one File for a path.
func At(path string) (*File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	return &File{path: path, queue: newWriterQueue(), syncer: newSyncer(path + "-wal")}, f.Close()
}

// Options are the options of a pool.
type Options struct {
	Conns   int      // number of connections, which stay open
	Pragmas []string // pragmas in addition to those of every pool, such as "foreign_keys(ON)"
	Durable bool     // commits survive a power loss
}

// Open returns a pool. It does not access the file yet.
func (f *File) Open(o Options) (*sql.DB, error) {
	dsn := url.URL{Scheme: "file", Path: f.path, RawQuery: url.Values{
		"_pragma": slices.Concat([]string{"busy_timeout(5000)", "journal_mode(WAL)", "synchronous(NORMAL)"}, o.Pragmas),
		"_txlock": {"immediate"}, // readers that turn writers deadlock
	}.Encode()}
	plain, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", f.path, err)
	}
	db := sql.OpenDB(connector{file: f, durable: o.Durable, driver: plain.Driver(), dsn: dsn.String()})
	db.SetMaxOpenConns(o.Conns)
	db.SetMaxIdleConns(o.Conns)
	return db, plain.Close()
}

// A connector opens the connections of a pool.
type connector struct {
	file    *File         // database
	durable bool          // Options.Durable
	driver  driver.Driver // SQLite driver
	dsn     string        // URI of the database with its pragmas
}

// Driver implements driver.Connector.
func (c connector) Driver() driver.Driver { return c.driver }

// Connect implements driver.Connector. It tries again while the file is locked: busy_timeout does not apply if two
// connections change a new file to WAL at the same time.
func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	for end := time.Now().Add(maxWait); ; {
		plain, err := c.driver.Open(c.dsn)
		if err == nil {
			return &conn{plainConn: plain.(plainConn), pool: c, idle: map[string]driver.Stmt{}}, nil
		}
		var e *sqlite.Error
		if !errors.As(err, &e) || PrimaryCode(e) != lib.SQLITE_BUSY || time.Now().After(end) || sleep.For(ctx, busyPause) != nil {
			return nil, err
		}
	}
}

// busyPause is the time between two attempts to connect.
const busyPause = 10 * time.Millisecond

// PrimaryCode returns the result code of e without its extension (https://sqlite.org/rescode.html).
func PrimaryCode(e *sqlite.Error) int { return e.Code() & 0xff }
