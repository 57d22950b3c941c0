package writebehind

import (
	"maps"
	"slices"

	"github.com/decamp/decamp/internal/manifest"
)

// maxPending bounds the memory of a pendingHashes: with so many chunks written and not listed,
// writers wait for the checkpoint. It is 64 GiB of disk, and a few MiB of memory.
const maxPending = 64 << 10

// A pendingHashes has the chunks that were written and are not listed yet. The file's mu guards it.
type pendingHashes struct {
	pending   map[int64]manifest.Hash // written since the last sync began, by chunk
	listing   map[int64]manifest.Hash // being synced, and then appended to the log
	appending bool                    // the log is being written: listing no longer changes
	dirty     bool                    // something was written since the last sync began
	bytes     int64                   // so much
}

func newPendingHashes() pendingHashes {
	return pendingHashes{pending: map[int64]manifest.Hash{}, listing: map[int64]manifest.Hash{}}
}

func (p *pendingHashes) isFull() bool { return len(p.pending) >= maxPending }

// add books a chunk that was written.
func (p *pendingHashes) add(chunk int64, h manifest.Hash) { p.pending[chunk] = h }

// remove books out a chunk that is about to change. It must not be appended already.
func (p *pendingHashes) remove(chunk int64) {
	delete(p.pending, chunk)
	delete(p.listing, chunk)
}

// isBeingListed reports whether the log is just about to list a chunk.
func (p *pendingHashes) isBeingListed(chunk int64) bool {
	if !p.appending {
		return false
	}
	_, ok := p.listing[chunk]
	return ok
}

// beginListing is called before the target is synced. It reports false if there is no need to.
func (p *pendingHashes) beginListing() bool {
	if !p.dirty {
		return false
	}
	p.pending, p.listing = p.listing, p.pending
	p.dirty, p.bytes = false, 0
	return true
}

// runsToList is called after a sync of the target. It returns the durable chunks: those that changed since
// begin are not among them.
func (p *pendingHashes) runsToList() []manifest.Run {
	p.appending = true
	var runs []manifest.Run
	for _, n := range slices.Sorted(maps.Keys(p.listing)) {
		if last := len(runs) - 1; last >= 0 && runs[last].First+runs[last].Count() == n {
			runs[last].Hashes = append(runs[last].Hashes, p.listing[n])
			continue
		}
		runs = append(runs, manifest.Run{First: n, Hashes: []manifest.Hash{p.listing[n]}})
	}
	return runs
}

// endListing is called after the log was written.
func (p *pendingHashes) endListing() {
	clear(p.listing)
	p.appending = false
}

// removeFrom books out all chunks from the first on.
func (p *pendingHashes) removeFrom(first int64) {
	for n := range p.pending {
		if n >= first {
			delete(p.pending, n)
		}
	}
}
