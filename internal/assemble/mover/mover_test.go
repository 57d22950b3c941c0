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

// The connection limit of a VM has precedence over the limit of the defaults.
func TestConnectionsOfOneVM(t *testing.T) {
	a := &assemble.Assembler{Prompts: assemble.Prompts{Log: slog.New(slog.DiscardHandler)}}
	s := &planSource{
		SourceParts: &assemble.SourceParts{Assembler: a, Parts: &assemble.Parts{Reader: https.New(nil, https.Options{MaxConnections: 8})}}, transports: map[string]transport.Transport{},
	}
	for _, connections := range []int{8, 3, 12, 3} {
		reader, err := s.transportFor(t.Context(), s.SourceParts.Parts, planfile.Options{Transport: "https", Connections: connections})
		must(t, err)
		if got := reader.(*https.Transport).MaxConnections(); got != connections {
			t.Errorf("limit %d: got %d connections", connections, got)
		}
		if (reader == transport.Transport(s.Reader)) != (connections == 8) {
			t.Errorf("limit %d: only the limit of the defaults must share their reader", connections)
		}
	}
	if len(s.transports) != 3 {
		t.Errorf("got %d transports, want 3 for three limits", len(s.transports))
	}
	must(t, s.endTransports())
}

// The undo of a run without a record succeeds, unless its VM is published.
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
	undo := func(c fleetdb.Command) error {
		row.Command = c
		return m.undoRun(t.Context(), row, "web01-123456", to, migrate.Environment{Target: to})
	}
	commands := []fleetdb.Command{fleetdb.Cancel, fleetdb.Rollback, fleetdb.Withdraw}
	for _, c := range commands {
		if err := undo(c); err != nil {
			t.Errorf("%s of a run that never began: %v", c, err)
		}
	}
	for ref, published := range map[string]bool{"vm-1": true, "vm-2": false} {
		must(t, os.MkdirAll(filepath.Join(vms, "web01"), 0o755))
		record := fmt.Sprintf(`{"version": 1, "decamp": "test", "source": {"ref": %q, "name": "web01"}}`, ref)
		must(t, os.WriteFile(filepath.Join(vms, "web01", "vm.json"), []byte(record), 0o644))
		for _, c := range commands {
			err := undo(c)
			if published != fault.Is(err, fault.Conflict) || published && !strings.Contains(err.Error(), "is published in "+filepath.Join(vms, "web01")) || !published && err != nil {
				t.Errorf("%s while %s is published: %v", c, ref, err)
			}
		}
	}
}
