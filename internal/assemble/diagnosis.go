package assemble

import (
	"context"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets/dir"
)

// Diagnosis is a move that is to be looked at, and what it is between.
type Diagnosis struct {
	Move  Move
	Parts *Parts // its session is nil where there is no source to look at

	vms    []inventory.VM
	Ground                // that they stand on
	all    []inventory.VM // of the source, where they were listed
	wires                 // of the hosts
	doors  nfcDoors       // of the hosts

	survey bool // nobody named the VMs
	beside bool // the move goes on: what it refuses by itself is left to it
}

// LogIn opens the source, and reads what is there of the VMs that are named; of all, if none is.
func (a *Assembler) LogIn(ctx context.Context, d *Diagnosis, rawURL string, names []string) error {
	p := &SourceParts{Assembler: a, Parts: d.Parts, Login: d.Move.Login, SSH: d.Move.SSH}
	if err := a.OpenURL(ctx, p, rawURL); err != nil {
		return err
	}
	if err := d.list(ctx, names); err != nil {
		return err
	}
	d.wires = a.readWires(ctx, d.Parts.Session, d.hosts)
	d.doors = a.readDoors(ctx, d)
	return a.openTransport(ctx, d.Parts, d.Move.Options)
}

// list reads the inventory, and chooses from it.
func (d *Diagnosis) list(ctx context.Context, names []string) error {
	var on Ground
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) { on, err = ReadGround(gctx, d.Parts.Session); return err })
	g.Go(func() (err error) { d.all, err = d.Parts.Session.VMs(gctx); return err })
	if err := g.Wait(); err != nil {
		return err
	}
	d.vms, d.Ground = d.all, on
	if d.survey = len(names) == 0; d.survey {
		return nil
	}
	d.vms = nil
	find := finder(d.all)
	for _, name := range names {
		vm, err := find.Find(name)
		if err != nil {
			d.vms = nil
			return err
		}
		d.vms = append(d.vms, *vm)
	}
	d.narrow(on)
	return nil
}

// Moved are the VMs that stand in a folder, as they were described when they were moved. One that
// cannot be read is left out: decamp verify says why.
func Moved(folder string) (vms []inventory.VM) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil // told by whoever needs the folder
	}
	for _, e := range entries {
		if r, err := dir.ReadRecord(filepath.Join(folder, e.Name())); err == nil {
			vms = append(vms, *r.Source)
		}
	}
	return vms
}
