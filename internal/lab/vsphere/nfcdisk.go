package vsphere

import (
	"path/filepath"
	"strings"
	"sync"

	"github.com/decamp/decamp/internal/lab/nfchost"
)

// An nfcDisk is a link of a chain that an NFC session has open. Reads include the link's parents.
type nfcDisk struct {
	*chainView
	hosts  *nfcHosts // NFC servers, for the rules
	link   diskLink  // link that is open
	closed sync.Once // runs Close once
}

// ReadAt implements nfchost.Disk. The reaction of a host when the file is merged during a session is
// not known; here the read fails, and never mixes two states.
func (d *nfcDisk) ReadAt(p []byte, off int64) (int, error) {
	if d.isStale() {
		return 0, errStale
	}
	return d.chainView.ReadAt(p, off)
}

// NextData implements nfchost.Disk.
func (d *nfcDisk) NextData(off int64) (start, end int64, err error) { return d.nextData(off) }

// Allocated implements nfchost.Disk, with the same map as QueryChangedDiskAreas("*").
func (d *nfcDisk) Allocated(off, length int64) (list []nfchost.Area, err error) {
	v := d.link.disk
	switch {
	case v.ds.spec.Map == MapFault:
		return nil, nfchost.Refuse("allocated blocks are not known on this datastore")
	case v.ds.spec.Map == MapWhole, v.spec.Thick, v.spec.RDM != "":
		return []nfchost.Area{{Offset: off, Length: length}}, nil
	}
	granularity := int64(d.hosts.cfg.CBT.Granularity)
	for at, end := off, off+length; at < end; {
		start, stop, err := nextArea(d.mappedContent(), at, granularity)
		if err != nil {
			return nil, err
		}
		start, stop = max(start, at), min(stop, end)
		for _, a := range v.shownAreas(start, stop) {
			list = append(list, nfchost.Area{Offset: a.Start, Length: a.Length})
		}
		at = max(stop, at+1)
	}
	return list, nil
}

// mappedContent returns the content that the allocation map describes: with NFC.OwnLinkMap only the
// link's own layer.
func (d *nfcDisk) mappedContent() content {
	if !d.hosts.rules.Load().OwnLinkMap || len(d.link.links) == 1 {
		return d.chainView
	}
	own := *d.chainView
	own.base, own.layers = &generated{size: d.Size()}, own.layers[len(own.layers)-1:]
	return &own
}

// Entry implements nfchost.Disk: it returns a value of the descriptor's disk database.
func (d *nfcDisk) Entry(key string) string {
	v := d.link.disk
	text, err := v.ds.root.ReadFile(filepath.Join(v.vm.spec.Folder, d.link.name()))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), " = ")
		if ok && name == "ddb."+key {
			return strings.Trim(value, `"`)
		}
	}
	return ""
}

// Pacer implements nfchost.Disk.
func (d *nfcDisk) Pacer() nfchost.Pacer { return d.link.disk.ds.rate }

// Close implements nfchost.Disk. The content belongs to the inventory and stays open.
func (d *nfcDisk) Close() {
	d.closed.Do(func() { d.link.disk.opened.Add(-1) })
}
