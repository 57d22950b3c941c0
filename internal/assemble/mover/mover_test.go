package mover

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/targets/dir"
	"github.com/decamp/decamp/internal/transport"
	"github.com/decamp/decamp/internal/transport/https"
	"github.com/decamp/decamp/internal/workflow"
)

// A VM's own bound on connections counts, also where the plan's defaults have another one.
func TestConnectionsOfOneVM(t *testing.T) {
	a := &assemble.Assembler{Prompts: assemble.Prompts{Log: slog.New(slog.DiscardHandler)}}
	s := &planSource{
		SourceParts: &assemble.SourceParts{Assembler: a, Parts: &assemble.Parts{Reader: https.New(nil, https.Options{MaxConnections: 8})}}, transports: map[string]transport.Transport{},
	}
	for _, connections := range []int{8, 3, 12, 3} {
		moves, err := s.transportFor(t.Context(), s.SourceParts.Parts, planfile.Options{Transport: "https", Connections: connections})
		must(t, err)
		if got := moves.(*https.Transport).MaxConnections(); got != connections {
			t.Errorf("connections: %d has %d connections", connections, got)
		}
		if (moves == transport.Transport(s.Reader)) != (connections == 8) {
			t.Errorf("connections: %d shares the reader of the defaults or does not", connections)
		}
	}
	if len(s.transports) != 3 {
		t.Errorf("%d transports for three bounds", len(s.transports))
	}
	must(t, s.endTransports())
}

// A run that is on no record is undone already, unless its VM is published.
func TestUndoOfAnUnknownRun(t *testing.T) {
	state, vms := t.TempDir(), t.TempDir()
	engine, err := workflow.Open(t.Context(), workflow.Config{Dir: state})
	must(t, err)
	t.Cleanup(func() { must(t, engine.Close()) })
	m := &Mover{migrator: migrate.New(engine, journal.NewStore(state), migrate.Options{})}
	must(t, engine.Launch())
	to, err := dir.New(vms, dir.Options{})
	must(t, err)
	row := fleetdb.VM{Key: fleetdb.Key{Plan: "wave", VM: "vm-1"}, Name: "web01"}
	undo := func(o fleetdb.Command) error {
		row.Command = o
		return m.undoRun(t.Context(), row, "web01-123456", to, migrate.Environment{Target: to})
	}
	orders := []fleetdb.Command{fleetdb.Cancel, fleetdb.Rollback, fleetdb.Withdraw}
	for _, o := range orders {
		if err := undo(o); err != nil {
			t.Errorf("%s of a run that never began: %v", o, err)
		}
	}
	for ref, published := range map[string]bool{"vm-1": true, "vm-2": false} {
		must(t, os.MkdirAll(filepath.Join(vms, "web01"), 0o755))
		record := fmt.Sprintf(`{"version": 1, "decamp": "test", "source": {"ref": %q, "name": "web01"}}`, ref)
		must(t, os.WriteFile(filepath.Join(vms, "web01", "vm.json"), []byte(record), 0o644))
		for _, o := range orders {
			err := undo(o)
			if published != fault.Is(err, fault.Conflict) || published && !strings.Contains(err.Error(), "is published in "+filepath.Join(vms, "web01")) || !published && err != nil {
				t.Errorf("%s while %s is published: %v", o, ref, err)
			}
		}
	}
}
