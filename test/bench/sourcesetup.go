package main

import (
	"context"

	"github.com/decamp/decamp/internal/lab"
)

// A sourceSetup is an emulated source with a workspace for migrating its VMs.
type sourceSetup struct {
	*workspace
	lab *emulated // emulated source
}

// newSourceSetup starts an emulated source and creates a workspace. The caller must
// close the result.
func (b *bench) newSourceSetup(ctx context.Context, cfg lab.Config) (*sourceSetup, error) {
	e, err := startLabWith(ctx, cfg)
	if err != nil {
		return nil, err
	}
	d, err := b.newWorkspace(ctx)
	if err != nil {
		e.stop()
		return nil, err
	}
	return &sourceSetup{workspace: d, lab: e}, nil
}

// close removes the workspace and stops the source.
func (s *sourceSetup) close() {
	s.remove()
	s.lab.stop()
}

// writePlan writes a plan file for VMs of the emulated vCenter.
func (s *sourceSetup) writePlan(m moveSpec) (string, error) {
	return s.workspace.writePlan(s.lab.facts, "vcenter", m)
}
