package preflight

import (
	"context"
	"fmt"
	"slices"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/planfile"
)

// settler finds out whether all VMs together have a place.
type targetCheck struct {
	*check
	spaces     map[uint64]*Space
	order      []uint64
	firstPos   map[uint64]planfile.Pos // position of the first migration there
	vmByFolder map[string]*inventory.VM
	failed     map[planfile.Destination]bool
}

// checkTargets checks the targets of all migrations, and their use of each file system.
func (c *check) checkTargets(ctx context.Context) []Space {
	s := &targetCheck{c, map[uint64]*Space{}, nil, map[uint64]planfile.Pos{}, map[string]*inventory.VM{}, map[planfile.Destination]bool{}}
	for i := range c.moves {
		for _, to := range c.moves[i].Options.To {
			s.checkTarget(ctx, i, to)
		}
	}
	spaces := []Space{}
	for _, device := range s.order {
		s.checkSpace(device)
		spaces = append(spaces, *s.spaces[device])
	}
	return spaces
}

func (s *targetCheck) checkTarget(ctx context.Context, i int, to planfile.Destination) {
	m := s.moves[i]
	if s.failed[to] { // reported once, not for each VM
		s.blocked[i] = true
		return
	}
	p, err := s.openPlace(ctx, to, m.Options)
	if err != nil {
		s.failed[to] = true
		s.addFinding(i, planfile.Found("target", m.Pos, "", err))
		return
	}
	folder := p.Folder(m.VM)
	if first := s.vmByFolder[folder]; first != nil {
		s.addFinding(i, planfile.Found("name", m.Pos, m.VM.Name, fault.New(fault.Conflict, "it and %s (%s) of this plan both come to %s", first.Name, first.Ref, folder).
			WithHint("move one of them to another folder with a separate to, or rename it")))
		return
	}
	s.vmByFolder[folder] = m.VM
	if p.Holds(m.VM) {
		s.addFinding(i, planfile.Noted("already", m.Pos, m.VM.Name, "take it out of the plan, or move that folder away to have it moved again", "it stands in %s already, moved", folder))
		s.blocked[i] = true // there is nothing to probe for it
		return
	}
	_, err = p.Plan(ctx, m.VM)
	if s.rig.Settled != nil {
		s.rig.Settled(ctx, m, to, p, err)
	}
	if err != nil && !fault.Is(err, fault.Full) { // all VMs together are looked at below
		s.addFinding(i, planfile.Found("target", m.Pos, m.VM.Name, err))
		return
	}
	s.addToSpace(i, to, p)
}

// addToSpace adds a VM to what its file system is to take.
func (s *targetCheck) addToSpace(i int, to planfile.Destination, p Place) {
	m := s.moves[i]
	free, device, err := p.Room()
	if err != nil {
		s.addFinding(i, planfile.Found("target", m.Pos, m.VM.Name, err))
		return
	}
	space := s.spaces[device]
	if space == nil {
		space = &Space{Free: free}
		s.spaces[device], s.firstPos[device], s.order = space, m.Pos, append(s.order, device)
	}
	least, most := p.Need(m.VM)
	space.VMs, space.Least, space.Most = space.VMs+1, space.Least+least, space.Most+max(least, most)
	if !slices.Contains(space.Folders, to.Folder()) {
		space.Folders = append(space.Folders, to.Folder())
	}
}

// checkSpace compares the required space of one file system with its free space.
func (s *targetCheck) checkSpace(device uint64) {
	space, at := s.spaces[device], s.firstPos[device]
	where := fmt.Sprintf("%d VMs of the plan need %%d MiB in %s, %d MiB are free", space.VMs, space.Folders[0], space.Free>>20)
	if len(space.Folders) > 1 {
		where += fmt.Sprintf(" (%d folders on one file system)", len(space.Folders))
	}
	switch {
	case space.Least > space.Free:
		s.found = append(s.found, planfile.Found("space", at, "", fault.New(fault.Full, where+" at least", space.Least>>20).
			WithHint("free %d MiB, or have some of them moved to another folder", (space.Least-space.Free)>>20+1)))
	case space.Most > space.Free:
		s.found = append(s.found, planfile.Noted("space", at, "", "monitor it, or free space: images take only the data that is not zero, which is unknown before the disks are read", where+" if all disks are full", space.Most>>20))
	}
}

// openPlace opens each destination once for each way in which VMs are written there.
func (c *check) openPlace(ctx context.Context, to planfile.Destination, o planfile.Options) (Place, error) {
	key := fmt.Sprint(to, o.Format, o.DomainType)
	if p := c.places[key]; p != nil {
		return p, nil
	}
	p, err := c.rig.Place(ctx, to, o)
	if err != nil {
		return nil, err
	}
	c.places[key] = p
	return p, nil
}
