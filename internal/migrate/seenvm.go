package migrate

import (
	"sync"
	"time"

	"github.com/decamp/decamp/internal/inventory"
)

// recentAge is the maximum age of a description of the VM when a copy begins. A new one takes a host
// some milliseconds, and a vCenter with thousands of VMs longer. A change within that time could also
// follow directly after a newer description, and commit checks again.
const recentAge = 10 * time.Second

// A seenVM is the last description of the VM that this process read. It is safe for concurrent use.
type seenVM struct {
	mu sync.Mutex    // guards the fields below
	vm *inventory.VM // last description; nil before the first one
	at time.Time     // when it was read
}

// setVM records a description that was read at now.
func (s *seenVM) setVM(vm *inventory.VM, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.vm, s.at = vm, now
}

// lastVM returns the last description; nil if none exists.
func (s *seenVM) lastVM() *inventory.VM {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.vm
}

// recentVM returns the last description if it is at most recentAge old at now, else nil.
func (s *seenVM) recentVM(now time.Time) *inventory.VM {
	s.mu.Lock()
	defer s.mu.Unlock()
	if age := now.Sub(s.at); s.vm == nil || age < 0 || age > recentAge {
		return nil
	}
	return s.vm
}
