package vmdk

import (
	"context"
	"errors"
	"testing"

	"github.com/decamp/decamp/internal/disk"
)

// A cursor stays usable after an error: the next read may be of an intact table.
func TestCursorContinuesAfterADamagedTable(t *testing.T) {
	damaged := errors.New("damaged")
	m := &grainMap{
		file: newFile("x", 0, bytesSource{}), cache: &tableCache{}, bytes: 2000 * 512, grain: 512, entries: 1, tables: 2000,
		readPiece: func(_ context.Context, first, n int64) (table, error) {
			piece := make(table, n)
			if i := 1500 - first; i >= 0 && i < n {
				piece[i] = 1
			}
			return piece, nil
		},
		readTable: func(context.Context, int64, int64) (table, error) { return nil, damaged },
	}
	c := m.newCursor()
	at := func(n int64) (Run, error) { return c.runAt(t.Context(), disk.Range{Off: n * 512, Len: 5 * 512}) }
	for _, n := range []int64{100, 1500, 100, 1500, 1499, 1501, 1500, 1995} {
		run, err := at(n)
		if bad := n == 1500; bad != errors.Is(err, damaged) || !bad && (run.Kind != Absent || run.Off != n*512 || run.Len < 512) {
			t.Errorf("table %d: run %+v, error %v", n, run, err)
		}
	}
}
