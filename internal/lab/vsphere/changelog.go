package vsphere

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// changeLog is a disk's change tracking. Time is cut into epochs: a snapshot ends one, a
// power-on another. The change id LOG/N stands for the moment at which epoch N ended.
type changeLog struct {
	mu      sync.Mutex
	on      bool
	log     int     // number of times that tracking was enabled: each time has a separate log and separate change IDs
	epoch   int64   // the current one, from 1
	since   int64   // the first epoch that was tracked as a whole
	broken  bool    // enabled while a snapshot existed: answers are wrong without an error
	grown   []int64 // the epochs in which the disk grew; answers across them are wrong
	changed map[int64]*granules
}

func newChangeLog(on bool) *changeLog {
	return &changeLog{on: on, epoch: 1, since: 1, changed: map[int64]*granules{}}
}

// recordWrite notes a write, whether it changed anything or not.
func (c *changeLog) recordWrite(off, length int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.on {
		return
	}
	g := c.changed[c.epoch]
	if g == nil {
		g = &granules{}
		c.changed[c.epoch] = g
	}
	g.addRange(off, length)
}

// reopenDisk is what happens when the disk is closed and opened again: a change of the setting
// takes effect.
func (c *changeLog) reopenDisk(wanted, snapshots bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if wanted == c.on {
		return
	}
	c.on, c.broken = wanted, wanted && snapshots
	if wanted {
		c.startLog()
	}
}

// startLog begins a log whose ids are new. The caller holds the lock.
func (c *changeLog) startLog() {
	c.log++
	c.since, c.changed, c.grown = c.epoch, map[int64]*granules{}, nil
}

// invalidateIDs is what a move of the disk or a crash does: ids handed out so far are worth nothing.
func (c *changeLog) invalidateIDs() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.startLog()
}

func (c *changeLog) growDisk() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.grown = append(c.grown, c.epoch)
}

// grewIn reports whether the disk grew in the epochs after from, up to to.
func (c *changeLog) grewIn(from, to int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.grewBetween(from, to)
}

// grewBetween is grewIn; the caller holds the lock.
func (c *changeLog) grewBetween(from, to int64) bool {
	return slices.ContainsFunc(c.grown, func(epoch int64) bool { return epoch > from && epoch <= to })
}

// endEpoch closes the current epoch and returns it.
func (c *changeLog) endEpoch() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epoch++
	return c.epoch - 1
}

// currentEpoch returns the current epoch, and the log it is of.
func (c *changeLog) currentEpoch() (epoch int64, log int, on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.epoch, c.log, c.on
}

// changesBetween unites the epochs after from, up to to. If the log is known to be wrong, every other granule
// is missing.
func (c *changeLog) changesBetween(from, to int64) *granules {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := &granules{}
	for epoch, g := range c.changed {
		if epoch > from && epoch <= to {
			all.addAll(g)
		}
	}
	if c.broken || c.grewBetween(from, to) {
		const everyOther = 0x5555555555555555
		for i := range all.words {
			all.words[i] &= everyOther
		}
	}
	return all
}

// idAt writes the change id of an epoch's end.
func (d *vdisk) idAt(log int, epoch int64) string {
	name := d.id + "changes"
	if log > 0 {
		name += strconv.Itoa(log)
	}
	text := fmt.Sprintf("% x", hashOf(name, 16))
	return fmt.Sprintf("%s-%s/%d", text[:23], text[24:], epoch)
}

// changeID is the id of the current epoch, as the VM's config shows it. It is empty while
// changes are not tracked.
func (d *vdisk) changeID() string {
	epoch, log, on := d.changes.currentEpoch()
	if !on {
		return ""
	}
	return d.idAt(log, epoch)
}

// epochOf returns the epoch of an id, if it is one of the disk's present log.
func (d *vdisk) epochOf(id string) (int64, bool) {
	_, counter, ok := strings.Cut(id, "/")
	epoch, err := strconv.ParseInt(counter, 10, 64)
	if !ok || err != nil {
		return 0, false
	}
	now, log, _ := d.changes.currentEpoch()
	d.changes.mu.Lock()
	since := d.changes.since
	d.changes.mu.Unlock()
	return epoch, id == d.idAt(log, epoch) && epoch >= since && epoch <= now
}

// changeMap is a set of changes as a content. Only the positions are meaningful.
type changeMap struct {
	content
	set  *granules
	size int64
}

func (m *changeMap) Size() int64 { return m.size }

func (m *changeMap) nextData(off int64) (start, end int64, err error) {
	start, end, ok := m.set.nextGranule(off)
	if !ok || start >= m.size {
		return m.size, m.size, nil
	}
	return start, min(end, m.size), nil
}
