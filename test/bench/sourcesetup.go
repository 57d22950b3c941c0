package main

import (
	"context"

	"github.com/decamp/decamp/internal/lab"
)

// A scene is an emulated source and the bed of a decamp that moves its VMs.
type sourceSetup struct {
	*workspace
	lab *emulated
}

// newSourceSetup starts a lab with the configuration, and creates a bed. Close ends both.
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

func (s *sourceSetup) close() {
	s.remove()
	s.lab.stop()
}

// writePlan writes a plan file for VMs of the scene's vCenter.
func (s *sourceSetup) writePlan(m moveSpec) (string, error) {
	return s.workspace.writePlan(s.lab.facts, "vcenter", m)
}
