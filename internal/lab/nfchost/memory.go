package nfchost

import "sync"

// memory is the NFC memory of a host. All sessions take from it.
type memory struct {
	mu    sync.Mutex
	limit int64 // 0 is none
	used  int64
	peak  int64
	freed chan struct{} // closed when there may be more, and replaced
}

func newMemory() *memory { return &memory{freed: make(chan struct{})} }

func (m *memory) setLimit(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.limit = n
	m.wakeWaiters()
}

// reserve reserves n bytes. If there are not so many, it returns what to wait for.
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

func (m *memory) release(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used -= n
	m.wakeWaiters()
}

func (m *memory) wakeWaiters() {
	close(m.freed)
	m.freed = make(chan struct{})
}

func (m *memory) peakUsed() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.peak
}
