package vsphere

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A changeLog is the change tracking of a disk. Time is divided into epochs: each snapshot and each
// power-on ends one. The change ID LOG/N stands for the end of epoch N.
type changeLog struct {
	mu      sync.Mutex          // guards all fields
	on      bool                // whether changes are tracked
	log     int                 // number of times that tracking was enabled; change IDs of different logs are different
	epoch   int64               // current epoch, from 1
	since   int64               // first epoch that was tracked completely
	broken  bool                // whether tracking was enabled while a snapshot existed: answers are wrong without an error
	grown   []int64             // epochs in which the disk grew; answers across them are wrong
	changed map[int64]*granules // written granules by epoch
}

// newChangeLog returns a log in epoch 1.
func newChangeLog(on bool) *changeLog {
	return &changeLog{on: on, epoch: 1, since: 1, changed: map[int64]*granules{}}
}

// recordWrite records a write, even if it changed no byte.
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

// reopenDisk applies a change of the setting, which takes effect when the disk is closed and opened.
// snapshots is whether the VM has any.
func (c *changeLog) reopenDisk(wanted, snapshots bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if wanted == c.on { // the setting has not changed
		return
	}
	c.on, c.broken = wanted, wanted && snapshots // tracking that begins with snapshots is wrong
	if wanted {
		c.startLog()
	}
}

// startLog starts a log with new change IDs. mu must be held.
func (c *changeLog) startLog() {
	c.log++
	c.since, c.changed, c.grown = c.epoch, map[int64]*granules{}, nil
}

// invalidateIDs makes all existing change IDs invalid, as a move of the disk or a crash does.
func (c *changeLog) invalidateIDs() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.startLog()
}

// growDisk records that the disk grew in the current epoch.
func (c *changeLog) growDisk() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.grown = append(c.grown, c.epoch)
}

// grewIn reports whether the disk grew in the epochs after from, up to and including to.
func (c *changeLog) grewIn(from, to int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.grewBetween(from, to)
}

// grewBetween implements grewIn. mu must be held.
func (c *changeLog) grewBetween(from, to int64) bool {
	return slices.ContainsFunc(c.grown, func(epoch int64) bool { return epoch > from && epoch <= to })
}

// endEpoch starts a new epoch and returns the one that ended.
func (c *changeLog) endEpoch() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epoch++
	return c.epoch - 1
}

// currentEpoch returns the current epoch, its log, and whether changes are tracked.
func (c *changeLog) currentEpoch() (epoch int64, log int, on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.epoch, c.log, c.on
}

// changesBetween returns the changes of the epochs after from, up to and including to. If the log is
// known to be wrong, every other granule is missing.
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
			all.words[i] &= everyOther // the missing changes
		}
	}
	return all
}

// idAt returns the change ID for the end of an epoch.
func (d *vdisk) idAt(log int, epoch int64) string {
	name := d.id + "changes"
	if log > 0 { // the first log has no number in its ID
		name += strconv.Itoa(log)
	}
	text := fmt.Sprintf("% x", hashOf(name, 16))
	return fmt.Sprintf("%s-%s/%d", text[:23], text[24:], epoch)
}

// changeID returns the ID of the current epoch, as the VM's configuration contains it. It is empty
// while changes are not tracked.
func (d *vdisk) changeID() string {
	epoch, log, on := d.changes.currentEpoch()
	if !on {
		return ""
	}
	return d.idAt(log, epoch)
}

// epochOf returns the epoch of a change ID; ok is false if the ID does not belong to the current log.
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

// A changeMap is a set of changes as a content. Only Size and nextData may be used.
type changeMap struct {
	content
	set  *granules // changed granules
	size int64     // capacity of the disk in bytes
}

// Size returns the capacity of the disk in bytes.
func (m *changeMap) Size() int64 { return m.size }

// nextData implements content.
func (m *changeMap) nextData(off int64) (start, end int64, err error) {
	start, end, ok := m.set.nextGranule(off)
	if !ok || start >= m.size {
		return m.size, m.size, nil
	}
	return start, min(end, m.size), nil
}
