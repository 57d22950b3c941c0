package preflight

import (
	"context"
	"fmt"
	"slices"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/planfile"
)

// targetCheck checks whether all VMs together fit at their targets.
type targetCheck struct {
	*check
	spaces     map[uint64]*Space             // use of each file system, by device number
	order      []uint64                      // keys of spaces in the order of the plan
	firstPos   map[uint64]planfile.Pos       // position of the first migration to the file system
	vmByFolder map[string]*inventory.VM      // VM of this plan by the folder that it will have
	failed     map[planfile.Destination]bool // destinations that cannot be opened; reported already
}

// checkTargets checks the target of each migration, and returns the use of each file system. The result
// is not nil.
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

// checkTarget checks one destination of the migration i: that it answers, that the name is free, and
// that it accepts the VM. A lack of space for the single VM is ignored here: checkSpace compares the
// sum of all VMs.
func (s *targetCheck) checkTarget(ctx context.Context, i int, to planfile.Destination) {
	m := s.moves[i]
	if s.failed[to] { // reported once, not for each VM
		s.blocked[i] = true
		return
	}
	p, err := s.openPlace(ctx, to, m.Options)
	if err != nil {
		s.failed[to] = true
		s.addFinding(i, planfile.ErrorFinding("target", m.Pos, "", err))
		return
	}
	folder := p.Folder(m.VM)
	if first := s.vmByFolder[folder]; first != nil {
		s.addFinding(i, planfile.ErrorFinding("name", m.Pos, m.VM.Name, fault.New(fault.Conflict, "%s (%s) of this plan has the same folder %s", first.Name, first.Ref, folder).
			WithHint("set another destination for one of the VMs, or rename it")))
		return
	}
	s.vmByFolder[folder] = m.VM
	if p.Holds(m.VM) {
		s.addFinding(i, planfile.NoteFinding("already", m.Pos, m.VM.Name, "remove the VM from the plan, or rename the folder to migrate the VM again", "already migrated to %s", folder))
		s.blocked[i] = true // there is nothing to probe for it
		return
	}
	_, err = p.Plan(ctx, m.VM)
	if s.rig.Settled != nil {
		s.rig.Settled(ctx, m, to, p, err)
	}
	if err != nil && !fault.Is(err, fault.Full) { // all VMs together are looked at below
		s.addFinding(i, planfile.ErrorFinding("target", m.Pos, m.VM.Name, err))
		return
	}
	s.addToSpace(i, to, p)
}

// addToSpace adds the space that a VM requires to the sum of its file system.
func (s *targetCheck) addToSpace(i int, to planfile.Destination, p Target) {
	m := s.moves[i]
	free, device, err := p.Room()
	if err != nil {
		s.addFinding(i, planfile.ErrorFinding("target", m.Pos, m.VM.Name, err))
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

// checkSpace compares the required space of one file system with its free space. It reports an error if
// thin disks do not fit, and a note if full disks would not fit.
func (s *targetCheck) checkSpace(device uint64) {
	space, at := s.spaces[device], s.firstPos[device]
	where := space.Folders[0]
	if len(space.Folders) > 1 {
		where += fmt.Sprintf(" (%d folders on one file system)", len(space.Folders))
	}
	const text = "%d VMs of the plan require %s %d MiB in %s, and %d MiB are free"
	switch {
	case space.Least > space.Free:
		s.found = append(s.found, planfile.ErrorFinding("space", at, "", fault.New(fault.Full, text, space.VMs, "at least", space.Least>>20, where, space.Free>>20).
			WithHint("free %d MiB, or set another destination for some VMs", (space.Least-space.Free)>>20+1)))
	case space.Most > space.Free:
		s.found = append(s.found, planfile.NoteFinding("space", at, "", "monitor the free space: images contain only data that is not zero, and the amount is unknown before the disks are read", text, space.VMs, "up to", space.Most>>20, where, space.Free>>20))
	}
}

// openPlace returns the target of a destination. It opens one for each combination of destination and
// options that change the images.
func (c *check) openPlace(ctx context.Context, to planfile.Destination, o planfile.Options) (Target, error) {
	key := fmt.Sprint(to, o.Format, o.DomainType)
	if p := c.places[key]; p != nil {
		return p, nil
	}
	p, err := c.rig.OpenTarget(ctx, to, o)
	if err != nil {
		return nil, err
	}
	c.places[key] = p
	return p, nil
}
