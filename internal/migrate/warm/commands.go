package warm

import (
	"sync"
	"time"

	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/migrate"
)

// orderAge is the age at which a command is read again without a notification: the process that wrote
// its file may have died before it could notify, or may be a release without notifications.
const orderAge = 30 * time.Second

// commandCache caches the commands for waiting runs. It reads their files only after a new command:
// otherwise a thousand runs that check each second would read a thousand files. It is safe for
// concurrent use.
type commandCache struct {
	store *journal.Store // store with the command files

	mu     sync.Mutex                    // guards the fields below
	looked time.Time                     // when the mark was last read
	mark   string                        // content of the mark, which changes with each command of any process
	given  int64                         // number of commands given through this Store
	known  map[journal.ID]cachedCommands // commands by run; nil before the first read
}

// cachedCommands are the commands for one run.
type cachedCommands struct {
	order     journal.Command    // last command; journal.GoOn without one
	rehearsal *journal.Rehearsal // requested rehearsal; nil if none
	read      time.Time          // when the files were read
}

// commandsOf returns the command for a run at now, and the requested rehearsal. Both may be outdated by
// PollInterval.
func (o *commandCache) commandsOf(id journal.ID, now time.Time) (cachedCommands, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if age := now.Sub(o.looked); age < 0 || age >= migrate.PollInterval || o.given != o.store.CommandCount() {
		o.refreshMark(now)
	}
	if k, ok := o.known[id]; ok && now.Sub(k.read) < orderAge {
		return k, nil
	}
	order, err := o.store.Command(id)
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

// refreshMark removes all cached commands, and records that they are read, if a command was given since the
// last call. It precedes the read of files, so that the next call finds commands that are given in
// between. mu must be held.
func (o *commandCache) refreshMark(now time.Time) {
	given, mark := o.store.CommandCount(), o.store.CommandMark()
	if given != o.given || mark != o.mark || o.known == nil {
		o.known = map[journal.ID]cachedCommands{}
		_ = o.store.CommandsRead(mark) // without the record, other processes only warn that the commands are not read
	}
	o.looked, o.given, o.mark = now, given, mark
}

// untilTick returns the time until the next multiple of every. All waiting runs wake at once, so the
// processor does not wake for each of them.
func untilTick(now time.Time, every time.Duration) time.Duration {
	return now.Truncate(every).Add(every).Sub(now)
}

// forget removes the commands of a run that is not executed any more.
func (o *commandCache) forget(id journal.ID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.known, id)
}
