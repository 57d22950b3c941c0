package mover

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/journal"
)

// recordingDriver is a driver that records its last calls.
type recordingDriver struct {
	last      fleetdb.Progress
	rehearsed fleetdb.Rehearsed
	published fleetdb.Summary
}

func (h *recordingDriver) RequestSlot(context.Context, fleetdb.TransferKind, time.Duration) (func(), error) {
	return nil, nil
}
func (h *recordingDriver) Step(string, string)              {}
func (h *recordingDriver) Progress(p fleetdb.Progress)      { h.last = p }
func (h *recordingDriver) Storage([]string) error           { return nil }
func (h *recordingDriver) Published(s fleetdb.Summary)      { h.published = s }
func (h *recordingDriver) Rehearsed(done fleetdb.Rehearsed) { h.rehearsed = done }
func (h *recordingDriver) Epoch() int64                     { return 1 }

// The rate of a step is 0 after its end, until the next step reports progress.
func TestRateIsZeroAfterStepEnds(t *testing.T) {
	var driver recordingDriver
	events := newRunEvents(fleetdb.VM{Bytes: 100}, &driver)
	events.handleEvent(journal.Event{Kind: journal.StepStarted, Step: "round"})
	events.handleEvent(journal.Event{Kind: journal.Progressed, Step: "round", Disk: 2000, Bytes: &journal.Bytes{Total: 100, Done: 20, Read: 5}})
	events.handleEvent(journal.Event{Time: time.Time{}.Add(time.Second), Kind: journal.Progressed, Step: "round", Disk: 2000, Bytes: &journal.Bytes{Total: 100, Done: 40, Read: 40}})
	if driver.last.Rate != 7 || driver.last.Done != 40 {
		t.Fatalf("got progress %+v", driver.last)
	}
	events.handleEvent(journal.Event{Kind: journal.StepStarted, Step: "wait"})
	if driver.last.Rate != 0 || driver.last.Done != 40 {
		t.Errorf("got progress %+v", driver.last)
	}
	events.handleEvent(journal.Event{Kind: journal.OutageEstimated, Step: "wait", OutageEstimate: &journal.OutageEstimate{Outage: time.Minute}})
	if driver.last.Rate != 0 || driver.last.Outage != time.Minute {
		t.Errorf("got progress %+v", driver.last)
	}
}

// A published VM has the rates of its disks, or of its fastest round, and its outage.
func TestSummaryOfAPublishedVM(t *testing.T) {
	var driver recordingDriver
	events := newRunEvents(fleetdb.VM{}, &driver)
	events.handleEvent(journal.Event{Kind: journal.Summarized, Stages: []journal.StageTime{
		{Name: "copy 2000", Read: 500, Elapsed: 5 * time.Second}, {Name: "copy 2001", Elapsed: time.Second}, {Name: "copy", Elapsed: time.Minute}, {Name: "verify 2000", Read: 9, Elapsed: time.Second},
	}})
	if !slices.Equal(driver.published.Rates, []float64{100}) || driver.published.Outage != 0 {
		t.Errorf("a cold run: got summary %+v", driver.published)
	}
	for _, rate := range []int64{700, 20} {
		events.handleEvent(journal.Event{Kind: journal.RoundDone, OutageEstimate: &journal.OutageEstimate{Rate: rate}})
	}
	events.handleEvent(journal.Event{Kind: journal.Summarized, Outage: &journal.Outage{Took: time.Minute}})
	if !slices.Equal(driver.published.Rates, []float64{700}) || driver.published.Outage != time.Minute {
		t.Errorf("a warm run: got summary %+v", driver.published)
	}
}

// testFleet is the VMs of one worker and a clock.
type testFleet struct {
	now time.Time
	vms []*movedVM
}

// movedVM is a VM with events about the bytes that were read.
type movedVM struct {
	recordingDriver
	*runEvents
	step string
	read map[diskStep]int64
}

func (f *testFleet) addVM(step string) *movedVM {
	vm := &movedVM{step: step, read: map[diskStep]int64{}}
	vm.runEvents = newRunEvents(fleetdb.VM{Bytes: 100 << 30}, &vm.recordingDriver)
	f.vms = append(f.vms, vm)
	vm.beginStep(f, step)
	return vm
}

func (vm *movedVM) beginStep(f *testFleet, step string) {
	vm.step = step
	vm.runEvents.handleEvent(journal.Event{Time: f.now, Kind: journal.StepStarted, Step: step})
}

// readBytes reports that a run read n more bytes of a disk, and nine times as many zeros.
func (vm *movedVM) readBytes(f *testFleet, run journal.ID, disk int32, n int64) {
	k := diskStep{run, vm.step, disk}
	vm.read[k] += n
	b := &journal.Bytes{Total: 100 << 30, Done: 10 * vm.read[k], Read: vm.read[k], Rate: 77}
	vm.runEvents.handleEvent(journal.Event{Time: f.now, Run: run, Kind: journal.Progressed, Step: vm.step, Disk: disk, Bytes: b})
}

// The sum of the rates of VMs never exceeds the limit. Disks end, VMs begin and end, a VM has several destinations, an
// attempt starts again, and an image is verified.
func TestRatesOfVMsStayWithinTheirLimit(t *testing.T) {
	const limit, tick = 30e6, 200 * time.Millisecond
	part := func(share float64) int64 { return int64(share * limit * tick.Seconds()) }
	f := &testFleet{now: time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)}
	first, second := f.addVM("copy"), (*movedVM)(nil)
	moved := map[*movedVM]int64{}
	for i := range 150 { // 30 s
		f.now = f.now.Add(tick)
		switch at := time.Duration(i) * tick; {
		case at < 5*time.Second: // two disks of one VM
			first.readBytes(f, "a", 2000, part(0.5))
			first.readBytes(f, "a", 2001, part(0.5))
		case at < 10*time.Second: // one of them is done
			first.readBytes(f, "a", 2001, part(1))
		case at < 20*time.Second: // another VM takes half, with two destinations
			if second == nil {
				second = f.addVM("round")
			}
			first.readBytes(f, "a", 2001, part(0.5))
			second.readBytes(f, "b", 2000, part(0.5))
			second.readBytes(f, "c", 2000, part(0.5))
		default: // the first VM is verified, ten times as fast
			if first.step != "verify" {
				first.beginStep(f, "verify")
			}
			if i == 120 { // the second VM starts a new attempt
				second.read[diskStep{"b", "round", 2000}], second.read[diskStep{"c", "round", 2000}] = 0, 0
			}
			first.readBytes(f, "a", 2000, part(10))
			second.readBytes(f, "b", 2000, part(1))
			second.readBytes(f, "c", 2000, part(1))
		}
		sum := int64(0)
		for _, vm := range f.vms {
			sum += vm.lastProgress().Rate
			if vm.lastProgress().Read < moved[vm] {
				t.Fatalf("at %v the bytes read decreased", f.now)
			}
			moved[vm] = vm.lastProgress().Read
		}
		if sum > limit {
			t.Fatalf("%d s: got %d bytes per second, want at most %.0f", i/5, sum, limit)
		}
		if i%25 == 24 && float64(sum) < 0.9*limit {
			t.Errorf("%d s: got only %d bytes per second of %.0f", i/5, sum, limit)
		}
	}
	if first.lastProgress().Rate != 0 || first.lastProgress().Reread < 9*limit {
		t.Errorf("the verified VM: got progress %+v", first.lastProgress())
	}
	if all := int64(30 * limit); moved[first]+moved[second] > all || moved[first]+moved[second] < all*9/10 {
		t.Errorf("the VMs read %d and %d bytes of %d", moved[first], moved[second], all)
	}
}

func (vm *movedVM) lastProgress() fleetdb.Progress { return vm.recordingDriver.last }

// The outage of a VM is the longest one of its runs, with the last estimate before it.
func TestMeasuredOutage(t *testing.T) {
	var driver recordingDriver
	events := newRunEvents(fleetdb.VM{}, &driver)
	if _, measured := events.measuredOutage(0); measured {
		t.Error("got an outage without a cutover")
	}
	began := time.Unix(1_800_000_000, 0)
	events.handleEvent(journal.Event{Kind: journal.RoundDone, OutageEstimate: &journal.OutageEstimate{Outage: time.Minute, Boot: 20 * time.Second}})
	if driver.last.Outage != time.Minute {
		t.Errorf("got progress %+v", driver.last)
	}
	events.handleEvent(journal.Event{Kind: journal.Summarized, Outage: &journal.Outage{Began: began, Took: 90 * time.Second}})
	events.handleEvent(journal.Event{Kind: journal.Summarized, Outage: &journal.Outage{Began: began.Add(time.Second), Took: 80 * time.Second}})
	want := fleetdb.Outage{Began: began, Took: 90 * time.Second, Boot: 20 * time.Second, Estimate: time.Minute, Limit: time.Hour}
	if got, measured := events.measuredOutage(time.Hour); !measured || got != want {
		t.Errorf("got outage %+v, want %+v", got, want)
	}
}
