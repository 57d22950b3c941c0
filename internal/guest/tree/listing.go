package tree

import "github.com/decamp/decamp/internal/guest/budget"

// A Listing collects the entries of a folder, and charges their memory to a budget meanwhile.
type Listing struct {
	budget  *budget.Budget // budget that is charged
	entries []Entry        // entries so far
	names   int64          // bytes of the names so far
}

// NewListing returns an empty Listing. The caller must call Close.
func NewListing(b *budget.Budget) *Listing { return &Listing{budget: b} }

// Add adds an entry. It fails if the memory of all entries exceeds the budget.
func (l *Listing) Add(e Entry) error {
	entries, err := budget.Grow(l.budget, l.entries, 1)
	if err != nil {
		return err
	}
	if err := l.budget.Hold(int64(len(e.Name))); err != nil {
		return err
	}
	l.names += int64(len(e.Name))
	l.entries = append(entries, e)
	return nil
}

// Len returns the number of entries.
func (l *Listing) Len() int { return len(l.entries) }

// Close releases the memory and returns the entries. It is not charged any longer, because callers of List
// use the entries at once, before they read anything else.
func (l *Listing) Close() []Entry {
	budget.ReleaseSlice(l.budget, l.entries)
	l.budget.Release(l.names)
	entries := l.entries
	l.entries, l.names = nil, 0
	return entries
}
