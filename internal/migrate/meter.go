package migrate

import (
	"sync"
	"time"

	"github.com/decamp/decamp/internal/blockcopy"
	"github.com/decamp/decamp/internal/bottleneck"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/manifest"
)

// A Meter reports the progress of one disk as events, a few per second, with the rate of the last
// seconds. It is safe for concurrent use.
type Meter struct {
	record *Record // receives the events
	key    int32   // device key of the disk; 0 for all disks together

	mu         sync.Mutex     // guards the fields below
	past       []meterReading // progress in the last meterWindow, oldest first
	reportedAt time.Time      // time of the last event
}

// A meterReading is the progress at one time.
type meterReading struct {
	at    time.Time       // time of the reading
	done  int64           // bytes of the disk that are done, zeros included
	read  int64           // bytes read from the source or the image
	times blockcopy.Times // times of the copy's stages
}

const (
	meterEvery  = 200 * time.Millisecond // minimum interval of events
	meterWindow = 5 * time.Second        // time over which rates are computed

	// shortestRate is the minimum time over which a rate is computed. Bytes that a budget lets through at
	// once would otherwise show a rate above the budget.
	shortestRate = time.Second
)

// Meter returns a meter for the progress of a disk.
func (r *Record) Meter(key int32) *Meter { return &Meter{record: r, key: key} }

// Copying reports the progress of a copy.
func (m *Meter) Copying(p blockcopy.Progress) {
	m.reportProgress(journal.Bytes{Total: p.Size, Done: p.Done, Skipped: p.Skipped, Read: p.Read, Zero: max(p.Done-p.Written, 0)}, p.Times)
}

// Verifying reports the progress of reading an image back.
func (m *Meter) Verifying(p manifest.Progress) {
	m.reportProgress(journal.Bytes{Total: p.Size, Done: p.Done, Read: p.Read}, blockcopy.Times{})
}

// Delivering reports the progress of a delivery of all disks together. The target does not report how
// many of the bytes are sent, so there is no rate.
func (m *Meter) Delivering(done, total int64) {
	m.reportProgress(journal.Bytes{Total: total, Done: done}, blockcopy.Times{})
}

// reportProgress reports b, unless the last event is too recent. The final progress is always reported.
func (m *Meter) reportProgress(b journal.Bytes, t blockcopy.Times) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.record.events.opts.Now()
	last := b.Done+b.Skipped == b.Total
	if now.Sub(m.reportedAt) < meterEvery && !last {
		return
	}
	m.reportedAt = now
	m.setRates(&b, meterReading{now, b.Done, b.Read, t})
	m.record.Report(journal.Event{Kind: journal.Progressed, Disk: m.key, Bytes: &b})
}

// setRates sets the rates of b from the readings in the last meterWindow. mu must be held.
func (m *Meter) setRates(b *journal.Bytes, now meterReading) {
	m.past = append(m.past, now)
	for len(m.past) > 2 && now.at.Sub(m.past[1].at) >= meterWindow {
		m.past = m.past[1:]
	}
	first := m.past[0]
	d := now.at.Sub(first.at)
	if d <= 0 {
		return
	}
	b.Rate = PerSecond(now.read-first.read, max(d, shortestRate))
	b.Left = TimeFor(b.Total-b.Done-b.Skipped, PerSecond(now.done-first.done, d))
	b.Busy = busyOf(first.times, now.times, d)
}

// busyOf returns the load of the readers and the writers of a copy within d. It is zero without
// readers. In a landing the host is the reader.
func busyOf(was, is blockcopy.Times, d time.Duration) (busy bottleneck.Busy) {
	source, budget := max(float64(is.ReadTime-was.ReadTime), 0), float64(is.PaceWait-was.PaceWait)
	processor, target := float64(is.HashTime-was.HashTime), float64(is.WindowWait-was.WindowWait)
	readers := source + budget + processor + target
	if readers <= 0 || is.Writers == 0 {
		return busy
	}
	hash, write := float64(is.WriterHash-was.WriterHash), float64(is.WriteTime-was.WriteTime)
	if hash > 0 { // a reader that waits for writers that hash waits for both
		part := target * hash / (hash + write)
		processor, target = processor+part, target-part
	}
	writers := float64(is.Writers) * float64(d)
	return bottleneck.Busy{
		Source: source / readers, Budget: budget / readers,
		Processor: min(max(processor/readers, hash/writers), 1), Target: min(max(target/readers, write/writers), 1),
	}
}

// PerSecond returns the rate of n bytes in d, in bytes per second; 0 if d is not positive.
func PerSecond(n int64, d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64(float64(n) / d.Seconds())
}

// TimeFor returns how long n bytes take at a rate in bytes per second; 0 if the rate is unknown.
func TimeFor(n, rate int64) time.Duration {
	if rate <= 0 {
		return 0
	}
	return time.Duration(float64(n) / float64(rate) * float64(time.Second))
}
