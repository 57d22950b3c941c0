package nfchost

import "sync"

// memory is the NFC memory of a host, which all sessions share.
type memory struct {
	mu    sync.Mutex    // guards the fields below
	limit int64         // bytes; 0 is unlimited
	used  int64         // reserved bytes
	peak  int64         // most reserved bytes so far
	freed chan struct{} // closed and replaced when memory is released or the limit changes
}

// newMemory returns a memory without a limit.
func newMemory() *memory { return &memory{freed: make(chan struct{})} }

// setLimit changes the limit. Reservations beyond a lower limit stay valid.
func (m *memory) setLimit(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.limit = n
	m.wakeWaiters()
}

// reserve reserves n bytes. If the limit does not permit that, ok is false and freed is closed when a
// new attempt is worthwhile.
func (m *memory) reserve(n int64) (ok bool, freed <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.limit > 0 && m.used+n > m.limit {
		return false, m.freed
	}
	m.used += n
	m.peak = max(m.peak, m.used)
	return true, nil
}

// release returns n reserved bytes.
func (m *memory) release(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used -= n
	m.wakeWaiters()
}

// wakeWaiters closes freed and replaces it. mu must be held.
func (m *memory) wakeWaiters() {
	close(m.freed)
	m.freed = make(chan struct{})
}

// peakUsed returns the most bytes reserved at a time.
func (m *memory) peakUsed() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.peak
}
