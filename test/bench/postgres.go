package main

import (
	"fmt"
	"slices"
	"testing"

	"github.com/decamp/decamp/internal/lab/postgres"
)

// database is a real PostgreSQL started for the benchmark. It returns an error if PostgreSQL is not
// installed.
type database struct {
	url      string
	server   *postgres.Server
	cleanups []func()
}

// startDatabase starts one until stop. The folder that it is in is the system's temporary one.
func startDatabase() (d *database, err error) {
	d = &database{}
	defer func() {
		if r := recover(); r != nil {
			d.stop()
			err = fmt.Errorf("%v", r)
		}
	}()
	d.server = postgres.Start(harness{d: d})
	d.url = d.server.URL()
	return d, nil
}

// processorUse is the processor seconds that each of its processes has taken.
func (d *database) processorUse() map[int]float64 {
	taken := map[int]float64{}
	for _, pid := range d.server.Processes() {
		if s, err := cpuOf(pid); err == nil { // fails if the process has ended
			taken[pid] = s
		}
	}
	return taken
}

// usedSince adds up what its processes have taken since before.
func (d *database) usedSince(before map[int]float64) (sum float64) {
	for pid, now := range d.processorUse() {
		sum += now - before[pid]
	}
	return sum
}

func (d *database) stop() {
	for _, f := range slices.Backward(d.cleanups) {
		f()
	}
}

// harness implements the parts of testing.TB that package postgres uses.
type harness struct {
	testing.TB
	d *database
}

func (h harness) Helper()                      {}
func (h harness) Cleanup(f func())             { h.d.cleanups = append(h.d.cleanups, f) }
func (h harness) Fatal(args ...any)            { panic(fmt.Sprint(args...)) }
func (h harness) Fatalf(f string, args ...any) { panic(fmt.Sprintf(f, args...)) }
