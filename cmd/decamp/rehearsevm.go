package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/plan"
	"github.com/decamp/decamp/internal/roster"
	"github.com/decamp/decamp/internal/server"
	"github.com/decamp/decamp/internal/sleep"
	"github.com/decamp/decamp/internal/trial"
)

// A VM of a plan is rehearsed by the worker that drives it: what is asked is in its row, and what came
// of it in a record beside.

// Rehearse is part of fleet.Mover. One that was answered before this process began is answered again.
func (m *mover) Rehearse(row roster.VM, ask roster.Rehearsal) error {
	id := warmRun(row)
	m.mu.Lock()
	dr := m.drives[id]
	m.mu.Unlock()
	if done, err := m.store.Rehearsed(id); dr != nil && err == nil && done != nil && done.ID == ask.ID {
		m.answer(dr, id)
		return nil
	}
	return m.store.AskRehearsal(id, plan.Rehearsal{ID: ask.ID, Expect: ask.Expect, Deadline: ask.Deadline, Fleet: true})
}

// forgetRehearsal takes away what a former process was asked for by the fleet: it may have been taken
// back since, and is asked again if not. What people asked for here stands.
func (m *mover) forgetRehearsal(id plan.ID) error {
	had, err := m.store.Rehearsal(id)
	if err != nil || had == nil || !had.Fleet {
		return nil // what is asked there nobody knows: whoever asks next is told
	}
	return m.store.TakeBack(id, had.ID)
}

// TakeBack is part of fleet.Mover.
func (m *mover) TakeBack(row roster.VM, rehearsal string) error {
	return m.store.TakeBack(warmRun(row), rehearsal)
}

// warmRun is the run of a warm VM: it has one destination.
func warmRun(row roster.VM) plan.ID { return plan.ID(row.Runs[0]) }

// answer passes on how the last rehearsal of a run ended.
func (m *mover) answer(dr *drive, id plan.ID) {
	done, err := m.store.Rehearsed(id)
	if err != nil || done == nil {
		m.a.log.Warn("how a rehearsal ended is not known", "run", id, "err", err)
		return
	}
	told := roster.Rehearsed{Rehearsal: roster.Rehearsal{ID: done.ID}, Report: done.Report}
	if f := done.Failure; f != nil {
		told.Failure = &roster.Failure{Kind: f.Kind, Text: f.Text, Hint: f.Hint}
	}
	var report trial.Report
	if len(done.Report) > 0 && json.Unmarshal(done.Report, &report) == nil {
		told.Tail = tailOf(report.Serial)
	}
	dr.to.Rehearsed(told)
}

// tailBytes is how much of a serial log goes through the database.
const tailBytes = 4 << 10

// tailOf is the end of a file, from the beginning of a line where it has one; "" if it cannot be read.
func tailOf(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return ""
	}
	from := max(0, size-tailBytes)
	text, _ := io.ReadAll(io.NewSectionReader(f, from, tailBytes)) // as far as it can be read
	if _, rest, found := bytes.Cut(text, []byte("\n")); found && from > 0 {
		text = rest
	}
	return strings.ToValidUTF8(string(text), "?")
}

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
	far := m.db == "" && cmp.Or(m.server, a.env(serverEnv)) != ""
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
			a.log.Warn("the rehearsal is not taken back", "vm", vm.Key.String(), "err", err)
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
