package fleetdb

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/sqlitedb"
)

// sqliteID is the application id in the header of our files: "dcmp" in ASCII.
const sqliteID = 0x64636d70

const (
	sqliteReaders = 4 // number of connections for reads
	sqliteWriters = 4 // number of connections for durable writes, whose commits share one sync
)

// sqliteDialect is the SQL of SQLite.
var sqliteDialect = dialect{
	now:         `CAST(unixepoch('subsec') * 1000000 AS INTEGER)`,
	expandArray: `json_each($1)`,
	reading:     &sql.TxOptions{ReadOnly: true},
	lockAndFind: sqliteFound,
	fault:       sqliteFault,
}

// openSQLite opens the file, readable by its owner only, three times: for durable writes, for writes
// that a power cut may remove, and for reads.
func (d *database) openSQLite(path string) error {
	f, err := sqlitedb.At(path)
	if err != nil {
		return fault.New(fault.Denied, "open the fleet's database: %w", err).WithHint("name a file in a folder that this user may write to")
	}
	if err := checkEnd(path); err != nil {
		return err
	}
	d.kind, d.file = &sqliteDialect, path
	var errs [3]error
	d.durable, errs[0] = f.Open(sqlitedb.Options{Conns: sqliteWriters, Durable: true})
	d.loose, errs[1] = f.Open(sqlitedb.Options{Conns: 1})
	d.read, errs[2] = f.Open(sqlitedb.Options{Conns: sqliteReaders})
	return errors.Join(errs[:]...)
}

// sqliteFound needs no lock: each write transaction locks the file. It sets the application id of an
// empty file.
func sqliteFound(ctx context.Context, t *sql.Tx) (bool, error) {
	var id, tables int64
	if err := t.QueryRowContext(ctx, `PRAGMA application_id`).Scan(&id); err != nil {
		return false, err
	}
	if id == sqliteID {
		return true, nil
	}
	if err := t.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_master`).Scan(&tables); err != nil {
		return false, err
	}
	if tables > 0 || id != 0 {
		return false, foreignError("the file has tables of something else")
	}
	_, err := t.ExecContext(ctx, fmt.Sprintf(`PRAGMA application_id = %d`, sqliteID))
	return false, err
}

// sqliteFault classifies SQLite's result codes (https://sqlite.org/rescode.html).
func sqliteFault(err error) (faultClass, bool) {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		full := errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) // the file is synced outside of SQLite
		return faultClass{kind: fault.Full}, full
	}
	if e.Code() == lib.SQLITE_IOERR_SHORT_READ {
		return faultClass{kind: fault.Corrupt, hint: sqliteCorrupt}, true
	}
	switch sqlitedb.PrimaryCode(e) {
	case lib.SQLITE_BUSY, lib.SQLITE_LOCKED:
		return faultClass{kind: fault.Unreachable, hint: "another process writes to the file; try again", again: true}, true
	case lib.SQLITE_FULL:
		return faultClass{kind: fault.Full}, true
	case lib.SQLITE_NOTADB:
		return faultClass{kind: fault.Invalid, hint: "name a file that is not there yet, or put back the one that was"}, true
	case lib.SQLITE_CORRUPT:
		return faultClass{kind: fault.Corrupt, hint: sqliteCorrupt}, true
	case lib.SQLITE_READONLY, lib.SQLITE_PERM, lib.SQLITE_AUTH, lib.SQLITE_CANTOPEN:
		return faultClass{kind: fault.Denied, hint: "this user must be able to write to the file, and to its folder"}, true
	case lib.SQLITE_IOERR:
		return faultClass{kind: fault.Unreachable, hint: "look in the kernel's log for errors of the disk"}, true
	case lib.SQLITE_INTERRUPT:
		return faultClass{kind: fault.Unreachable, hint: "try again"}, true
	}
	return faultClass{}, false
}

// sqliteCorrupt is the remedy for a damaged file. toFault inserts the file's path.
const sqliteCorrupt = "stop all decamp processes, and restore a copy of %s; or move it away with its -wal and start again: images continue from their manifests"

// sqlitePath returns the path of a URL such as "sqlite:/abs/fleet.db". A relative path is
// fault.Invalid.
func sqlitePath(url string) (string, error) {
	path, _ := strings.CutPrefix(url, "sqlite:")
	if !strings.HasPrefix(path, "/") {
		return "", fault.New(fault.Invalid, "the file of %q is not named from the root", url).WithHint("as in sqlite:/var/lib/decamp/fleet.db")
	}
	return path, nil
}

// Of SQLite's header, https://sqlite.org/fileformat2.html#the_database_header.
const (
	headerSize = 100                   // bytes of the header
	magic      = "SQLite format 3\x00" // first bytes of each SQLite file
	pageSizeAt = 16                    // offset of the page size: two bytes, big-endian; 1 means 65536
)

// checkEnd returns fault.Corrupt for a file that ends within a page without a log that could complete
// it. SQLite reads the missing part as zeros, and may not detect that.
func checkEnd(path string) error {
	if log, err := os.Stat(path + "-wal"); err == nil && log.Size() > 0 {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil // the open call reports the error
	}
	defer f.Close()
	header := make([]byte, headerSize)
	if _, err := f.ReadAt(header, 0); errors.Is(err, io.EOF) || !bytes.HasPrefix(header, []byte(magic)) {
		return nil // a new file, or one that SQLite refuses
	}
	page := int64(binary.BigEndian.Uint16(header[pageSizeAt:]))
	if page == 1 {
		page = 1 << 16
	}
	info, err := f.Stat()
	if err != nil || page == 0 || info.Size()%page == 0 {
		return err
	}
	return fault.New(fault.Corrupt, "the fleet's database %s is cut off: it ends within a page", path).WithHint(sqliteCorrupt, path)
}
