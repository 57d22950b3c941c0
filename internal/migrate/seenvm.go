package migrate

import (
	"sync"
	"time"

	"github.com/decamp/decamp/internal/inventory"
)

// recentAge is the maximum age of a description of the VM when a copy begins. A new one takes a host
// some milliseconds, and a vCenter of thousands of VMs more. A change within that time could also
// follow directly after a newer description, and commit checks again.
const recentAge = 10 * time.Second

// A sight is the VM as this process read it last.
type seenVM struct {
	mu sync.Mutex
	vm *inventory.VM
	at time.Time
}

func (s *seenVM) setVM(vm *inventory.VM, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.vm, s.at = vm, now
}

// lastVM returns the VM as it was read last, or nil.
func (s *seenVM) lastVM() *inventory.VM {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.vm
}

// recentVM returns the VM if it was read a moment ago, or nil.
func (s *seenVM) recentVM(now time.Time) *inventory.VM {
	s.mu.Lock()
	defer s.mu.Unlock()
	if age := now.Sub(s.at); s.vm == nil || age < 0 || age > recentAge {
		return nil
	}
	return s.vm
}
