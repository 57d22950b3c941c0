package migrate

import (
	"sync"
	"time"

	"github.com/decamp/decamp/internal/blockcopy"
	"github.com/decamp/decamp/internal/bottleneck"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/manifest"
)

// A Meter turns the progress of one disk into events, a few a second, with the rate of
// the last seconds.
type Meter struct {
	record *Record
	key    int32

	mu         sync.Mutex
	past       []meterReading // the last few seconds, oldest first
	reportedAt time.Time
}

type meterReading struct {
	at    time.Time
	done  int64 // bytes of the disk, zeros included
	read  int64 // bytes moved
	times blockcopy.Times
}

const (
	meterEvery  = 200 * time.Millisecond
	meterWindow = 5 * time.Second

	// shortestRate is the time that a rate is over at least: bytes that a budget lets through at once
	// would be a rate above it else.
	shortestRate = time.Second
)

// Meter returns what turns the progress of a disk into events.
func (r *Record) Meter(key int32) *Meter { return &Meter{record: r, key: key} }

// Copying takes the progress of a copy.
func (m *Meter) Copying(p blockcopy.Progress) {
	m.reportProgress(journal.Bytes{Total: p.Size, Done: p.Done, Skipped: p.Skipped, Read: p.Read, Zero: max(p.Done-p.Written, 0)}, p.Times)
}

// Verifying takes the progress of reading an image back.
func (m *Meter) Verifying(p manifest.Progress) {
	m.reportProgress(journal.Bytes{Total: p.Size, Done: p.Done, Read: p.Read}, blockcopy.Times{})
}

// Delivering is of all disks together: key is 0. How much of it is sent is not known, so there is no rate.
func (m *Meter) Delivering(done, total int64) {
	m.reportProgress(journal.Bytes{Total: total, Done: done}, blockcopy.Times{})
}

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
	m.record.Tell(journal.Event{Kind: journal.Progressed, Disk: m.key, Bytes: &b})
}

// setRates sets the rates of the readings within the last meterWindow.
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

// busyOf returns how busy the readers and the writers of a copy were within d. It is zero without
// readers. For a landing the host is the reader.
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

// PerSecond is the rate of n bytes in d; 0 if that is unknown.
func PerSecond(n int64, d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64(float64(n) / d.Seconds())
}

// TimeFor is how long n bytes take at a rate in bytes per second; 0 if that is unknown.
func TimeFor(n, rate int64) time.Duration {
	if rate <= 0 {
		return 0
	}
	return time.Duration(float64(n) / float64(rate) * float64(time.Second))
}
