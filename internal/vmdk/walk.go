package vmdk

import (
	"context"

	"github.com/decamp/decamp/internal/disk"
)

// walk gives yield the runs of r from c, in order, without gaps, joined where one
// continues another. It stops when yield returns false.
func walk(ctx context.Context, c cursor, r disk.Range, yield func(Run) bool) error {
	var held Run
	for off := r.Off; off < r.End(); off = held.End() {
		run, err := c.run(ctx, disk.Range{Off: off, Len: r.End() - off})
		switch {
		case err != nil:
			return err
		case held.continues(run) && !held.Empty():
			held.Len += run.Len
		case !held.Empty() && !yield(held):
			return nil
		default:
			held = run
		}
	}
	if !held.Empty() {
		yield(held)
	}
	return nil
}
