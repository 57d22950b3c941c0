package warm

import (
	"testing"
	"time"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/migrate"
)

// An order by another process is known at the next look, one whose mark got lost at last when
// what is known is old, and that of a run that is there anew is its own.
func TestCommandsAreReadWhenAnyWasSent(t *testing.T) {
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
	is := func(want journal.Command) {
		t.Helper()
		if got, err := o.commandsOf(p.ID, now); got.order != want || err != nil {
			t.Errorf("order %q, error %v, not %q", got.order, err, want)
		}
	}
	give := func(order journal.Command) {
		t.Helper()
		if err := other.SendCommand(p.ID, order); err != nil {
			t.Fatal(err)
		}
	}
	create()
	is(journal.GoOn)
	give(journal.Pause)
	is(journal.GoOn) // not looked yet
	now = now.Add(migrate.PollInterval)
	is(journal.Pause)

	give(journal.CutOver)
	o.mark = other.CommandMark() // as if its giver had died before that
	now = now.Add(migrate.PollInterval)
	is(journal.Pause)
	now = now.Add(orderAge - migrate.PollInterval) // the pause was read an orderAge ago
	is(journal.CutOver)

	if err := other.Remove(p.ID); err != nil {
		t.Fatal(err)
	}
	create()
	now = now.Add(migrate.PollInterval)
	is(journal.GoOn)
}
