package migrate

import (
	"testing"
	"time"

	"github.com/decamp/decamp/internal/blockcopy"
	"github.com/decamp/decamp/internal/bottleneck"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/manifest"
	pace "github.com/decamp/decamp/internal/sched/budget"
)

func TestBusyFromWaitTimes(t *testing.T) {
	const s = time.Second
	was := blockcopy.Times{ReadTime: 100 * s, PaceWait: 5 * s, HashTime: 10 * s, WindowWait: s, WriteTime: 20 * s, Writers: 2}
	for name, tc := range map[string]struct {
		more blockcopy.Times // times added within 5 s
		want bottleneck.Busy
	}{
		"eight readers wait, two writers write a quarter of the time": {
			blockcopy.Times{ReadTime: 36 * s, HashTime: 4 * s, WriteTime: 2500 * time.Millisecond, Writers: 2},
			bottleneck.Busy{Source: 0.9, Processor: 0.1, Target: 0.25}},
		"readers wait for windows, and writers write all the time": {
			blockcopy.Times{ReadTime: 4 * s, WindowWait: 36 * s, WriteTime: 11 * s, Writers: 2},
			bottleneck.Busy{Source: 0.1, Target: 1}},
		"a rate limit": {
			blockcopy.Times{ReadTime: 10 * s, PaceWait: 30 * s, Writers: 2},
			bottleneck.Busy{Source: 0.25, Budget: 0.75}},
		"the host waits for writers that hash a third of the time": {
			blockcopy.Times{ReadTime: s, WindowWait: 4 * s, WriteTime: 6 * s, WriterHash: 3 * s, Writers: 2},
			bottleneck.Busy{Source: 0.2, Target: 0.6, Processor: 0.3}},
		"the host does not wait for writers, which hash more than they write": {
			blockcopy.Times{ReadTime: 5 * s, WriteTime: s, WriterHash: 4 * s, Writers: 2},
			bottleneck.Busy{Source: 1, Target: 0.1, Processor: 0.4}},
		"no reader": {blockcopy.Times{Writers: 2}, bottleneck.Busy{}},
		"no copy":   {blockcopy.Times{ReadTime: s}, bottleneck.Busy{}},
	} {
		is := blockcopy.Times{
			ReadTime: was.ReadTime + tc.more.ReadTime, PaceWait: was.PaceWait + tc.more.PaceWait, HashTime: was.HashTime + tc.more.HashTime,
			WindowWait: was.WindowWait + tc.more.WindowWait, WriteTime: was.WriteTime + tc.more.WriteTime, Writers: tc.more.Writers, WriterHash: tc.more.WriterHash,
		}
		if got := busyOf(was, is, 5*s); got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}

// cappedBytes returns how many bytes a copy with a rate limit reads in t, with the burst that a budget permits.
func cappedBytes(rate float64, t time.Duration) int64 {
	return int64(rate * (t + pace.Burst).Seconds())
}

// The rate of a disk is never above its budget: skipped zeros and chunks that are already proven
// do not count as moved.
func TestRatesCountOnlyTransferredBytes(t *testing.T) {
	const limit = 30e6
	const most = limit * 1.05 // a rate covers at least one second, with one pace.Burst
	for name, tc := range map[string]struct {
		shown func(m *Meter, t time.Duration)
		least int64 // minimum rate at the end
	}{
		"a cold copy of a disk with holes": {func(m *Meter, t time.Duration) {
			read := cappedBytes(limit, t)
			m.Copying(blockcopy.Progress{Size: 100 << 30, Done: 20 * read, Read: read, Written: read})
		}, limit * 0.95},
		"a continued copy": {func(m *Meter, t time.Duration) {
			read := cappedBytes(limit, t)
			m.Copying(blockcopy.Progress{Size: 100 << 30, Done: read, Skipped: 90 << 30, Read: read, Written: read})
		}, limit * 0.95},
		"a warm round": {func(m *Meter, t time.Duration) {
			read := cappedBytes(limit, t)
			m.Copying(blockcopy.Progress{Size: 100 << 30, Done: 99 << 30, Read: read, Written: read})
		}, limit * 0.95},
		"a verify that reads few chunks": {func(m *Meter, t time.Duration) {
			m.Verifying(manifest.Progress{Size: 100 << 30, Done: int64(t.Seconds() * (10 << 30)), Read: cappedBytes(limit, t)})
		}, limit * 0.95},
		"a verify that is over at once": {func(m *Meter, t time.Duration) {
			m.Verifying(manifest.Progress{Size: 100 << 30, Done: 100 << 30, Read: 1 << 20})
		}, 0},
		"a delivery, with an unknown number of sent bytes": {func(m *Meter, t time.Duration) {
			m.Delivering(int64(t.Seconds()*(1<<30)), 100<<30)
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
			now, last := began, journal.Bytes{}
			opts := Options{Now: func() time.Time { return now }, Notify: func(e journal.Event) {
				if last = *e.Bytes; float64(last.Rate) > most {
					t.Errorf("after %v: rate %d, want at most %.0f", now.Sub(began), last.Rate, most)
				}
			}}
			m := unitRun(journal.Plan{}, Facts{}, Environment{}, Permit{}, opts).Record.Meter(2000)
			for _, step := range []time.Duration{time.Millisecond, 250 * time.Millisecond} { // the first event of a short copy is not delayed
				for range 40 {
					tc.shown(m, now.Sub(began))
					now = now.Add(step)
				}
			}
			if last.Rate < tc.least {
				t.Errorf("final rate %d, want at least %d", last.Rate, tc.least)
			}
		})
	}
}
