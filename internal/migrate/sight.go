package migrate

import (
	"sync"
	"time"

	"github.com/decamp/decamp/internal/inventory"
)

// momentAgo is the maximum age of a description of the VM when a copy begins. A new one takes a host
// some milliseconds, and a vCenter of thousands of VMs more. A change within that time could also
// follow directly after a newer description, and commit checks again.
const momentAgo = 10 * time.Second

// A sight is the VM as this process read it last.
type sight struct {
	mu sync.Mutex
	vm *inventory.VM
	at time.Time
}

func (s *sight) set(vm *inventory.VM, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.vm, s.at = vm, now
}

// last returns the VM as it was read last, or nil.
func (s *sight) last() *inventory.VM {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.vm
}

// recent returns the VM if it was read a moment ago, or nil.
func (s *sight) recent(now time.Time) *inventory.VM {
	s.mu.Lock()
	defer s.mu.Unlock()
	if age := now.Sub(s.at); s.vm == nil || age < 0 || age > momentAgo {
		return nil
	}
	return s.vm
}
