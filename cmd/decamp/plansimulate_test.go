package main

import (
	"encoding/json"
	"testing"

	"github.com/decamp/decamp/internal/assemble/mover"
)

func TestSimulateWithoutAPlan(t *testing.T) {
	r := newTestProgram(t)
	r.mustExit(0, "plan", "simulate", "--hosts", "../../docs/hosts/mtv-cold.yaml")
	golden(t, "testdata/simulate.txt", r.out.String())
	r.out.Reset()
	r.mustExit(0, "plan", "simulate", "--hosts", "../../docs/hosts/mtv-cold.yaml", "--json")
	var got mover.Simulated
	if err := json.Unmarshal(r.out.Bytes(), &got); err != nil || len(got.VMs) != 80 || got.Least == 0 {
		t.Errorf("got %d VMs, least time %v, %v; want 80 VMs", len(got.VMs), got.Least, err)
	}
	file := t.TempDir() + "/hosts.yaml"
	for text, message := range map[string]string{
		"version: 1":                        "the simulation has no VM",
		"version: 1\nhots: {}":              "did you mean hosts?",
		"version: 1\nuncertainty: 120%":     "below 100%",
		"version: 1\nvms: [{count: 3}]":     "allocated is missing",
		"version: 1\nhosts: {a: 1M, a: 2M}": "duplicate key",
	} {
		writeText(t, file, text)
		r := newTestProgram(t)
		r.mustExit(2, "plan", "simulate", "--hosts", file)
		mustContain(t, r.stderr(), message)
	}
}
