package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/plan"
	"github.com/decamp/decamp/internal/roster"
	"github.com/decamp/decamp/internal/server"
	"github.com/decamp/decamp/internal/sleep"
	"github.com/decamp/decamp/internal/trial"
)

// rehearsesHere reports whether the run of a plan's VM is rehearsed through this state directory: it is
// in it, and nobody else may drive it now.
func (a *app) rehearsesHere(m meetingFlags, vm roster.VM) bool {
	if len(vm.Runs) == 0 {
		return false
	}
	if _, _, _, err := a.recorded(plan.ID(vm.Runs[0])); err != nil {
		return false
	}
	if vm.State != roster.Assigned && vm.State != roster.Running {
		return true
	}
	url, err := a.databaseURL(m)
	far := m.db == "" && cmp.Or(m.server, a.Env(serverEnv)) != ""
	return err == nil && !far && isFile(url)
}

// farReport is what a worker says of a VM that it booted.
type farReport struct {
	trial.Report
	Worker string `json:"worker"`               // that has the files
	Tail   string `json:"serialTail,omitempty"` // the end of what the serial port said
}

// rehearseVM has the worker that drives a VM of a plan boot it, and says how that ended.
func (a *app) rehearseVM(ctx context.Context, c server.Control, vm roster.VM, ask roster.Rehearsal) error {
	done, err := a.askWorker(ctx, c, vm, ask)
	if err != nil {
		return fmt.Errorf("rehearsal of %s: %w", vm.Key, err)
	}
	r := farReport{Worker: done.Worker, Tail: done.Tail}
	if err := json.Unmarshal(done.Report, &r.Report); err != nil {
		return fault.New(fault.Corrupt, "what worker %s says of the rehearsal of %s: %w", done.Worker, vm.Key, err)
	}
	if err := a.writeFar(r); err != nil {
		return err
	}
	return bootless(vm.Name, r.Report)
}

// writeFar is writeTrial for a VM that was booted elsewhere. What the serial port said last is shown of
// one that does not boot.
func (a *app) writeFar(r farReport) error {
	if a.json {
		return a.print(r)
	}
	if err := a.writeTrial(r.Report); err != nil {
		return err
	}
	if r.Screen != "" || r.Serial != "" {
		fmt.Fprintf(a.out, "These files are on worker %s.\n", plain(r.Worker))
	}
	if r.Booted() || strings.TrimSpace(r.Tail) == "" {
		return nil
	}
	fmt.Fprintln(a.out, "The serial port said at the end:")
	for line := range strings.Lines(strings.TrimSpace(r.Tail)) {
		fmt.Fprintf(a.out, "  %s\n", plain(strings.TrimRight(line, "\r\n")))
	}
	return nil
}

const (
	answeredEvery = time.Second      // how often one looks for a worker's answer
	takeBackTime  = 10 * time.Second // that may take, after an interrupt
	mostMisses    = 60               // looks in a row that a server or a database may not answer
)

// askWorker asks for a rehearsal, and waits for what comes of it. Who does not wait does not want it
// any more.
func (a *app) askWorker(ctx context.Context, c server.Control, vm roster.VM, ask roster.Rehearsal) (done roster.Rehearsed, err error) {
	if err := c.Rehearse(ctx, vm.Key, ask); err != nil {
		return done, err
	}
	defer func() {
		if !done.Ended.IsZero() {
			return
		}
		last, stop := context.WithTimeout(context.WithoutCancel(ctx), takeBackTime)
		defer stop()
		if err := c.TakeBack(last, vm.Key, ask.ID); err != nil {
			a.Log.Warn("the rehearsal is not taken back", "vm", vm.Key.String(), "err", err)
		}
	}()
	if !a.json {
		fmt.Fprintf(a.err, "Worker %s boots %s as soon as no round is under way ...\n", plain(vm.Worker), plain(vm.Name))
	}
	for misses := 0; ; {
		done, err = rehearsalOf(ctx, c, vm, ask.ID)
		switch {
		case err == nil && done.Failure != nil:
			return done, fault.New(fault.KindNamed(done.Failure.Kind), "%s", done.Failure.Text).WithHint("%s", done.Failure.Hint)
		case err == nil && !done.Ended.IsZero():
			return done, nil
		case err == nil:
			misses = 0
		case !fault.Is(err, fault.Unreachable) || misses == mostMisses:
			return done, err
		default:
			misses++
		}
		if err := sleep.For(ctx, answeredEvery); err != nil {
			return done, err
		}
	}
}

// rehearsalOf finds one among those of a VM. One that does not stand any more and was not answered is
// fault.Canceled.
func rehearsalOf(ctx context.Context, c server.Control, vm roster.VM, id string) (r roster.Rehearsed, err error) {
	all, err := c.Rehearsals(ctx, vm.Key)
	if err != nil {
		return r, err
	}
	for _, r := range all {
		if r.ID == id {
			return r, nil
		}
	}
	return r, fault.New(fault.Canceled, "VM %s is not driven any more, or somebody took it back", vm.Name).
		WithHint("see decamp status %s; where it goes on, rehearse it again", fault.Quote(vm.Plan))
}
