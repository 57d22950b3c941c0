package mover

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/journal"
)

// heard is a driver that keeps what it was told last.
type heard struct {
	last      fleetdb.Progress
	rehearsed fleetdb.Rehearsed
	published fleetdb.Summary
}

func (h *heard) RequestSlot(context.Context, fleetdb.TransferKind, time.Duration) (func(), error) {
	return nil, nil
}
func (h *heard) Step(string, string)              {}
func (h *heard) Progress(p fleetdb.Progress)      { h.last = p }
func (h *heard) Storage([]string) error           { return nil }
func (h *heard) Published(s fleetdb.Summary)      { h.published = s }
func (h *heard) Rehearsed(done fleetdb.Rehearsed) { h.rehearsed = done }
func (h *heard) Epoch() int64                     { return 1 }

// What moved in one step does not move in the next, until that says so.
func TestRateEndsWithItsStep(t *testing.T) {
	var to heard
	dr := newRunEvents(fleetdb.VM{Bytes: 100}, &to)
	dr.handleEvent(journal.Event{Kind: journal.StepStarted, Step: "round"})
	dr.handleEvent(journal.Event{Kind: journal.Progressed, Step: "round", Disk: 2000, Bytes: &journal.Bytes{Total: 100, Done: 20, Read: 5}})
	dr.handleEvent(journal.Event{Time: time.Time{}.Add(time.Second), Kind: journal.Progressed, Step: "round", Disk: 2000, Bytes: &journal.Bytes{Total: 100, Done: 40, Read: 40}})
	if to.last.Rate != 7 || to.last.Done != 40 {
		t.Fatalf("told %+v", to.last)
	}
	dr.handleEvent(journal.Event{Kind: journal.StepStarted, Step: "wait"})
	if to.last.Rate != 0 || to.last.Done != 40 {
		t.Errorf("told %+v", to.last)
	}
	dr.handleEvent(journal.Event{Kind: journal.OutageEstimated, Step: "wait", OutageEstimate: &journal.OutageEstimate{Outage: time.Minute}})
	if to.last.Rate != 0 || to.last.Outage != time.Minute {
		t.Errorf("told %+v", to.last)
	}
}

// A published VM has the rates of its disks, or of its fastest round, and its outage.
func TestSummaryOfAPublishedVM(t *testing.T) {
	var to heard
	dr := newRunEvents(fleetdb.VM{}, &to)
	dr.handleEvent(journal.Event{Kind: journal.Summarized, Stages: []journal.StageTime{
		{Name: "copy 2000", Read: 500, Elapsed: 5 * time.Second}, {Name: "copy 2001", Elapsed: time.Second}, {Name: "copy", Elapsed: time.Minute}, {Name: "verify 2000", Read: 9, Elapsed: time.Second},
	}})
	if !slices.Equal(to.published.Rates, []float64{100}) || to.published.Outage != 0 {
		t.Errorf("a cold run is published as %+v", to.published)
	}
	for _, rate := range []int64{700, 20} {
		dr.handleEvent(journal.Event{Kind: journal.RoundDone, OutageEstimate: &journal.OutageEstimate{Rate: rate}})
	}
	dr.handleEvent(journal.Event{Kind: journal.Summarized, Outage: &journal.Outage{Took: time.Minute}})
	if !slices.Equal(to.published.Rates, []float64{700}) || to.published.Outage != time.Minute {
		t.Errorf("a warm run is published as %+v", to.published)
	}
}

// fleetOf are the VMs of one worker, and a clock.
type fleetOf struct {
	now time.Time
	vms []*movedVM
}

// movedVM is a VM of which events tell what was read.
type movedVM struct {
	heard
	*runEvents
	step string
	read map[diskStep]int64
}

func (f *fleetOf) add(step string) *movedVM {
	vm := &movedVM{step: step, read: map[diskStep]int64{}}
	vm.runEvents = newRunEvents(fleetdb.VM{Bytes: 100 << 30}, &vm.heard)
	f.vms = append(f.vms, vm)
	vm.begin(f, step)
	return vm
}

func (vm *movedVM) begin(f *fleetOf, step string) {
	vm.step = step
	vm.runEvents.handleEvent(journal.Event{Time: f.now, Kind: journal.StepStarted, Step: step})
}

// reads has a disk of a run read n bytes more, beside nine times as many zeros.
func (vm *movedVM) reads(f *fleetOf, run journal.ID, disk int32, n int64) {
	k := diskStep{run, vm.step, disk}
	vm.read[k] += n
	b := &journal.Bytes{Total: 100 << 30, Done: 10 * vm.read[k], Read: vm.read[k], Rate: 77}
	vm.runEvents.handleEvent(journal.Event{Time: f.now, Run: run, Kind: journal.Progressed, Step: vm.step, Disk: disk, Bytes: b})
}

// Under a limit the rates of VMs add up to no more than it: with disks that end, VMs that begin and end,
// several destinations, attempts that begin anew, and images that are read back meanwhile.
func TestRatesOfVMsStayWithinTheirLimit(t *testing.T) {
	const limit, tick = 30e6, 200 * time.Millisecond
	part := func(of float64) int64 { return int64(of * limit * tick.Seconds()) }
	f := &fleetOf{now: time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)}
	first, second := f.add("copy"), (*movedVM)(nil)
	moved := map[*movedVM]int64{}
	for i := range 150 { // 30 s
		f.now = f.now.Add(tick)
		switch at := time.Duration(i) * tick; {
		case at < 5*time.Second: // two disks
			first.reads(f, "a", 2000, part(0.5))
			first.reads(f, "a", 2001, part(0.5))
		case at < 10*time.Second: // one of them is done
			first.reads(f, "a", 2001, part(1))
		case at < 20*time.Second: // another VM takes half, with two destinations
			if second == nil {
				second = f.add("round")
			}
			first.reads(f, "a", 2001, part(0.5))
			second.reads(f, "b", 2000, part(0.5))
			second.reads(f, "c", 2000, part(0.5))
		default: // the first is read back, ten times as fast
			if first.step != "verify" {
				first.begin(f, "verify")
			}
			if i == 120 { // an attempt that begins anew
				second.read[diskStep{"b", "round", 2000}], second.read[diskStep{"c", "round", 2000}] = 0, 0
			}
			first.reads(f, "a", 2000, part(10))
			second.reads(f, "b", 2000, part(1))
			second.reads(f, "c", 2000, part(1))
		}
		sum := int64(0)
		for _, vm := range f.vms {
			sum += vm.last().Rate
			if vm.last().Read < moved[vm] {
				t.Fatalf("after %v less is moved than before", f.now)
			}
			moved[vm] = vm.last().Read
		}
		if sum > limit {
			t.Fatalf("%d s: %d bytes a second, of %.0f", i/5, sum, limit)
		}
		if i%25 == 24 && float64(sum) < 0.9*limit {
			t.Errorf("%d s: only %d bytes a second, of %.0f", i/5, sum, limit)
		}
	}
	if first.last().Rate != 0 || first.last().Reread < 9*limit {
		t.Errorf("a VM that is read back: %+v", first.last())
	}
	if all := int64(30 * limit); moved[first]+moved[second] > all || moved[first]+moved[second] < all*9/10 {
		t.Errorf("%d and %d bytes moved, of %d", moved[first], moved[second], all)
	}
}

func (vm *movedVM) last() fleetdb.Progress { return vm.heard.last }

// The outage of a VM is the longest one of its runs, with the last estimate before it.
func TestMeasuredOutage(t *testing.T) {
	var to heard
	dr := newRunEvents(fleetdb.VM{}, &to)
	if _, measured := dr.measuredOutage(0); measured {
		t.Error("an outage without a cutover")
	}
	began := time.Unix(1_800_000_000, 0)
	dr.handleEvent(journal.Event{Kind: journal.RoundDone, OutageEstimate: &journal.OutageEstimate{Outage: time.Minute, Boot: 20 * time.Second}})
	if to.last.Outage != time.Minute {
		t.Errorf("reported %+v", to.last)
	}
	dr.handleEvent(journal.Event{Kind: journal.Summarized, Outage: &journal.Outage{Began: began, Took: 90 * time.Second}})
	dr.handleEvent(journal.Event{Kind: journal.Summarized, Outage: &journal.Outage{Began: began.Add(time.Second), Took: 80 * time.Second}})
	want := fleetdb.Outage{Began: began, Took: 90 * time.Second, Boot: 20 * time.Second, Estimate: time.Minute, Limit: time.Hour}
	if got, measured := dr.measuredOutage(time.Hour); !measured || got != want {
		t.Errorf("outage %+v, want %+v", got, want)
	}
}
