package main

import (
	"context"

	"github.com/decamp/decamp/internal/lab"
)

// A scene is an emulated source and the bed of a decamp that moves its VMs.
type scene struct {
	*bed
	lab *emulated
}

// openScene starts a lab with the configuration, and creates a bed. Close ends both.
func (b *bench) openScene(ctx context.Context, cfg lab.Config) (*scene, error) {
	e, err := startLabWith(ctx, cfg)
	if err != nil {
		return nil, err
	}
	d, err := b.makeBed(ctx)
	if err != nil {
		e.stop()
		return nil, err
	}
	return &scene{bed: d, lab: e}, nil
}

func (s *scene) close() {
	s.remove()
	s.lab.stop()
}

// writePlan writes a plan file for VMs of the scene's vCenter.
func (s *scene) writePlan(m moveSpec) (string, error) {
	return s.bed.writePlan(s.lab.facts, "vcenter", m)
}
