package main

import (
	"encoding/json"
	"errors"
	"net/url"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
)

func TestRunsShowState(t *testing.T) {
	r := newTestProgram(t)
	r.run(t.Context(), []string{"runs", "--state", r.assembler.State})
	mustContain(t, r.out.String(), "No runs in "+r.assembler.State)

	store := journal.NewStore(r.assembler.State)
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	p, err := store.Create(journal.New(&url.URL{Scheme: "esxi", Host: "esx1"}, &inventory.VM{Ref: "7", Name: "web01"}, "dir:/srv/vm", "raw", "https", at))
	if err != nil {
		t.Fatal(err)
	}
	log, err := store.Journal(p.ID)
	if err != nil {
		t.Fatal(err)
	}
	failure := journal.FailureOf(fault.Wrap(fault.Full, errors.New("no space left")))
	for _, e := range []journal.Event{
		{Time: at, Kind: journal.RunStarted}, {Time: at, Kind: journal.StepStarted, Step: "copy"}, {Time: at, Kind: journal.RunFailed, Failure: failure},
	} {
		if err := log.Append(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	r.out.Reset()
	r.run(t.Context(), []string{"runs", "--state", r.assembler.State})
	mustContain(t, r.out.String(), string(p.ID), "web01", "failed", "copy", "dir:/srv/vm", "no space left")

	r.out.Reset()
	r.run(t.Context(), []string{"runs", "--state", r.assembler.State, "--json"})
	var got struct{ Runs []journal.Run }
	if err := json.Unmarshal(r.out.Bytes(), &got); err != nil || len(got.Runs) != 1 || got.Runs[0].Failure.Kind != "full" {
		t.Errorf("got %v, runs %s; want one that failed", err, r.out)
	}
}
