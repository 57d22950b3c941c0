package warm

import (
	"sync"
	"time"

	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/migrate"
)

// orderAge is the interval after which a command file is read again without a notification: the process
// that wrote it may have died before it could notify, or may be a release without notifications.
const orderAge = 30 * time.Second

// orders caches the commands for waiting runs. It reads their files only after a new command: otherwise
// a thousand runs that check each second would read a thousand files.
type commandCache struct {
	store *journal.Store

	mu     sync.Mutex
	looked time.Time // when the mark was read last
	mark   string
	given  int64 // number of commands given through this Store
	known  map[journal.ID]cachedCommands
}

type cachedCommands struct {
	order     journal.Order
	rehearsal *journal.Rehearsal // requested rehearsal; nil if none
	read      time.Time
}

// commandsOf returns the order of a run at now, and the rehearsal that is requested of it. Both may be
// LookEvery old.
func (o *commandCache) commandsOf(id journal.ID, now time.Time) (cachedCommands, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if age := now.Sub(o.looked); age < 0 || age >= migrate.LookEvery || o.given != o.store.Given() {
		o.refreshMark(now)
	}
	if k, ok := o.known[id]; ok && now.Sub(k.read) < orderAge {
		return k, nil
	}
	order, err := o.store.Order(id)
	if err != nil {
		return cachedCommands{}, err
	}
	asked, err := o.store.Rehearsal(id)
	if err != nil {
		return cachedCommands{order: order}, nil // an unreadable request is ignored
	}
	o.known[id] = cachedCommands{order, asked, now}
	return o.known[id], nil
}

// refreshMark forgets everything if an order was given since the last look. It comes before the files
// are read: one that is given in between is found by the next.
func (o *commandCache) refreshMark(now time.Time) {
	given, mark := o.store.Given(), o.store.OrderMark()
	if given != o.given || mark != o.mark || o.known == nil {
		o.known = map[journal.ID]cachedCommands{}
	}
	o.looked, o.given, o.mark = now, given, mark
}

// untilTick is how long it is until the next multiple of every: all that wait wake at once, and
// not the processor for each of them.
func untilTick(now time.Time, every time.Duration) time.Duration {
	return now.Truncate(every).Add(every).Sub(now)
}

func (o *commandCache) forget(id journal.ID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.known, id)
}
