package migrate

import (
	"testing"
	"time"

	"github.com/decamp/decamp/internal/inventory"
)

func TestSightIsRecentForAMoment(t *testing.T) {
	var s sight
	now := time.Now()
	if s.recent(now) != nil {
		t.Error("seen before it was read")
	}
	vm := &inventory.VM{}
	s.set(vm, now)
	for age, recent := range map[time.Duration]bool{0: true, momentAgo: true, momentAgo + 1: false, -time.Hour: false} {
		if got := s.recent(now.Add(age)); (got == vm) != recent {
			t.Errorf("after %v: %v", age, got)
		}
	}
}
