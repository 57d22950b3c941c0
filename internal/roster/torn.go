package roster

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"

	"github.com/decamp/decamp/internal/fault"
)

// Of SQLite's header, https://sqlite.org/fileformat2.html#the_database_header.
const (
	headerSize = 100
	magic      = "SQLite format 3\x00" // it begins so
	pageSizeAt = 16                    // two bytes; 1 means 65536
)

// checkEnd refuses a file that ends within a page and has no log that could complete it. SQLite takes
// what is missing for zeros, and may not notice.
func checkEnd(path string) error {
	if log, err := os.Stat(path + "-wal"); err == nil && log.Size() > 0 {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil // whoever opens it says why
	}
	defer f.Close()
	header := make([]byte, headerSize)
	if _, err := f.ReadAt(header, 0); errors.Is(err, io.EOF) || !bytes.HasPrefix(header, []byte(magic)) {
		return nil // it is new, or SQLite sees that it is none
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
