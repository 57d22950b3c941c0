package writebehind

import (
	"maps"
	"slices"

	"github.com/decamp/decamp/internal/manifest"
)

// maxPending bounds the memory of a pendingHashes: with so many chunks written and not listed,
// writers wait for the checkpoint. It is 64 GiB of disk, and a few MiB of memory.
const maxPending = 64 << 10

// A pendingHashes contains the chunks that are written and not listed yet. The file's mu guards it.
type pendingHashes struct {
	pending   map[int64]manifest.Hash // written since the last sync began, by chunk
	listing   map[int64]manifest.Hash // being synced, and then appended to the log
	appending bool                    // the log is being written: listing no longer changes
	dirty     bool                    // something was written since the last sync began
	bytes     int64                   // bytes written since the last sync began
}

// newPendingHashes returns an empty one.
func newPendingHashes() pendingHashes {
	return pendingHashes{pending: map[int64]manifest.Hash{}, listing: map[int64]manifest.Hash{}}
}

// isFull reports whether writers must wait for a checkpoint.
func (p *pendingHashes) isFull() bool { return len(p.pending) >= maxPending }

// add records the hash of a chunk that was written.
func (p *pendingHashes) add(chunk int64, h manifest.Hash) { p.pending[chunk] = h }

// remove deletes a chunk that is about to change. The log must not be writing it: see isBeingListed.
func (p *pendingHashes) remove(chunk int64) {
	delete(p.pending, chunk)
	delete(p.listing, chunk)
}

// isBeingListed reports whether the log is writing the chunk's hash at the moment.
func (p *pendingHashes) isBeingListed(chunk int64) bool {
	if !p.appending {
		return false
	}
	_, ok := p.listing[chunk]
	return ok
}

// beginListing starts a checkpoint, before the sync of the target. It returns false if nothing was
// written.
func (p *pendingHashes) beginListing() bool {
	if !p.dirty {
		return false
	}
	p.pending, p.listing = p.listing, p.pending
	p.dirty, p.bytes = false, 0
	return true
}

// runsToList returns the chunks to list, after the sync. Chunks that changed since beginListing are not
// among them.
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

// endListing ends a checkpoint.
func (p *pendingHashes) endListing() {
	clear(p.listing)
	p.appending = false
}

// removeFrom deletes the chunks from first on that wait for the next checkpoint.
func (p *pendingHashes) removeFrom(first int64) {
	for n := range p.pending {
		if n >= first {
			delete(p.pending, n)
		}
	}
}
