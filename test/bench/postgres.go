package main

import (
	"fmt"
	"slices"
	"testing"

	"github.com/decamp/decamp/internal/lab/postgres"
)

// database is a real PostgreSQL for the benchmark. Starting it fails if PostgreSQL is
// not installed.
type database struct {
	url      string           // URL for decamp
	server   *postgres.Server // running server
	cleanups []func()         // functions to call in reverse order
}

// startDatabase starts a server in the system's temporary folder. The caller must stop
// it.
func startDatabase() (d *database, err error) {
	d = &database{}
	defer func() {
		// Package postgres reports errors with Fatal, which panics here.
		if r := recover(); r != nil {
			d.stop()
			err = fmt.Errorf("%v", r)
		}
	}()
	d.server = postgres.StartDurable(harness{d: d})
	d.url = d.server.URL()
	return d, nil
}

// processorUse returns the processor seconds of each process of the server.
func (d *database) processorUse() map[int]float64 {
	taken := map[int]float64{}
	for _, pid := range d.server.Processes() {
		if s, err := cpuOf(pid); err == nil { // fails if the process has ended
			taken[pid] = s
		}
	}
	return taken
}

// usedSince returns the processor seconds that the server has used since the earlier
// reading.
func (d *database) usedSince(before map[int]float64) (sum float64) {
	for pid, now := range d.processorUse() {
		sum += now - before[pid]
	}
	return sum
}

// stop ends the server and removes its files.
func (d *database) stop() {
	for _, f := range slices.Backward(d.cleanups) {
		f()
	}
}

// harness implements the methods of testing.TB that package postgres uses.
type harness struct {
	testing.TB
	d *database // database that is started
}

// Helper is part of testing.TB.
func (h harness) Helper() {}

// Cleanup is part of testing.TB. The functions run in database.stop.
func (h harness) Cleanup(f func()) { h.d.cleanups = append(h.d.cleanups, f) }

// Fatal is part of testing.TB. It panics; startDatabase recovers.
func (h harness) Fatal(args ...any) { panic(fmt.Sprint(args...)) }

// Fatalf is part of testing.TB. It panics; startDatabase recovers.
func (h harness) Fatalf(f string, args ...any) { panic(fmt.Sprintf(f, args...)) }
