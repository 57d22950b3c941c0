package sqlitedb

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"
)

// Processes that create a file at the same time wait for each other. SQLite itself does not wait: it reports that the
// file is locked while another connection changes it to WAL.
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
