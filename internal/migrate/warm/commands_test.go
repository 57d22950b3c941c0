package warm

import (
	"testing"
	"time"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/migrate"
)

// A command of another process is read at the next poll. If the mark of a command was lost, the command is read when
// the cached one is older than orderAge. A new run with the same ID does not inherit commands.
func TestCommandsAreReadAtNextPoll(t *testing.T) {
	dir, now := t.TempDir(), time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	other := journal.NewStore(dir)
	p := journal.Plan{Version: 1, ID: "web01-abcdef", VM: journal.VM{Ref: inventory.MoRef("vm-1")}}
	create := func() {
		t.Helper()
		if _, err := other.Create(p); err != nil {
			t.Fatal(err)
		}
	}
	o := &commandCache{store: journal.NewStore(dir)}
	expect := func(want journal.Command) {
		t.Helper()
		if got, err := o.commandsOf(p.ID, now); got.order != want || err != nil {
			t.Errorf("got command %q and error %v, want %q", got.order, err, want)
		}
	}
	send := func(command journal.Command) {
		t.Helper()
		if err := other.SendCommand(p.ID, command); err != nil {
			t.Fatal(err)
		}
	}
	create()
	expect(journal.GoOn)
	send(journal.Pause)
	expect(journal.GoOn) // before the next poll
	now = now.Add(migrate.PollInterval)
	expect(journal.Pause)

	send(journal.CutOver)
	o.mark = other.CommandMark() // as if the sender had died before it updated the mark
	now = now.Add(migrate.PollInterval)
	expect(journal.Pause)
	now = now.Add(orderAge - migrate.PollInterval) // the pause was read orderAge ago
	expect(journal.CutOver)

	if err := other.Remove(p.ID); err != nil {
		t.Fatal(err)
	}
	create()
	now = now.Add(migrate.PollInterval)
	expect(journal.GoOn)
}
