package vsphere

import (
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// QueryChangedDiskAreas returns one page of the areas of a disk from the given offset. With "*" it
// returns allocated areas; with a change ID of this disk, areas written since then, up to the snapshot
// in the request.
func (v *virtualMachine) QueryChangedDiskAreas(ctx *simulator.Context, req *types.QueryChangedDiskAreas) soap.HasFault {
	body := &methods.QueryChangedDiskAreasBody{}
	page, fault := v.changedAreas(ctx, req)
	if fault != nil {
		body.Fault_ = simulator.Fault("", fault)
		return body
	}
	body.Res = &types.QueryChangedDiskAreasResponse{Returnval: page}
	return body
}

// changedAreas implements QueryChangedDiskAreas. It returns FileFault for unknown change IDs and for
// injected faults.
func (v *virtualMachine) changedAreas(ctx *simulator.Context, req *types.QueryChangedDiskAreas) (types.DiskChangeInfo, types.BaseMethodFault) {
	page := types.DiskChangeInfo{StartOffset: req.StartOffset}
	q, fault := v.resolveQuery(ctx, req)
	if fault != nil {
		return page, fault
	}
	d := q.disk
	if v.lab.snapshotFault(v.machine, FaultCBTFail) {
		return page, fileFault(d)
	}
	var err error
	switch {
	case req.ChangeId != "*": // changes since an ID
		from, ok := d.epochOf(req.ChangeId)
		if !ok || from > q.epoch || v.lab.cfg.CBT.GrowthFails && d.changes.grewIn(from, q.epoch) {
			return page, fileFault(d)
		}
		changed := &changeMap{set: d.changes.changesBetween(from, q.epoch), size: q.view.Size()}
		page.ChangedArea, page.Length, err = d.collectAreas(changed, req.StartOffset, v.lab.cfg.CBT, asArea)
		if v.lab.snapshotFault(v.machine, FaultCBTLose) {
			page.ChangedArea = everyOther(page.ChangedArea)
		}
	case d.ds.spec.Map == MapFault: // such as on vSAN
		return page, fileFault(d)
	case d.ds.spec.Map == MapWhole, d.spec.Thick, d.spec.RDM != "": // everything is allocated
		page.Length = q.view.Size() - req.StartOffset
		page.ChangedArea = []types.DiskChangeExtent{{Start: req.StartOffset, Length: page.Length}}
	default:
		page.ChangedArea, page.Length, err = d.collectAreas(q.view, req.StartOffset, v.lab.cfg.CBT, d.shownAreas)
	}
	if err != nil {
		v.lab.cfg.Log.Error("changed areas", "vm", d.vm.spec.Name, "err", err)
		return page, fileFault(d)
	}
	return page, nil
}

// everyOther drops the second, fourth and so on of the areas.
func everyOther(all []types.DiskChangeExtent) (some []types.DiskChangeExtent) {
	for i := 0; i < len(all); i += 2 {
		some = append(some, all[i])
	}
	return some
}

// A diskQuery is a disk at the time that a query refers to.
type diskQuery struct {
	disk  *vdisk     // disk of the query
	view  *chainView // content at that time
	epoch int64      // epoch of the change log at that time
}

// resolveQuery checks a query: disk and offset must exist, changes must be tracked, also when the
// snapshot was taken, and the query must name a snapshot if the VM is running.
func (v *virtualMachine) resolveQuery(ctx *simulator.Context, req *types.QueryChangedDiskAreas) (diskQuery, types.BaseMethodFault) {
	if v.machine == nil || v.machine.findDisk(req.DeviceKey) == nil {
		return diskQuery{}, &types.InvalidArgument{InvalidProperty: "deviceKey"}
	}
	q := diskQuery{disk: v.machine.findDisk(req.DeviceKey)}
	q.view = q.disk.activeView()
	on := false
	q.epoch, _, on = q.disk.changes.currentEpoch()
	if req.Snapshot != nil {
		snapshot, ok := ctx.Map.Get(*req.Snapshot).(*simulator.VirtualMachineSnapshot)
		if !ok || snapshot.Vm != v.Self {
			return q, &types.InvalidArgument{InvalidProperty: "snapshot"}
		}
		on = q.selectSnapshot(*req.Snapshot) && on
	}
	switch {
	case req.StartOffset < 0 || req.StartOffset >= q.view.Size():
		return q, &types.InvalidArgument{InvalidProperty: "startOffset"}
	case !on: // changes are not tracked, or were not
		return q, fileFault(q.disk)
	case req.Snapshot == nil && v.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOn: // a running VM requires a snapshot
		return q, fileFault(q.disk)
	}
	return q, nil
}

// selectSnapshot changes the time of the query to a snapshot. It returns false if the snapshot does not
// exist or changes were not tracked.
func (q *diskQuery) selectSnapshot(ref types.ManagedObjectReference) bool {
	m := q.disk.vm
	m.writing.Lock()
	defer m.writing.Unlock()
	i := m.snapAt(ref)
	if i < 0 {
		return false
	}
	t := m.snaps[i].epochs[q.disk]
	q.epoch = t.epoch
	links := q.disk.currentLinks()
	q.view = q.disk.viewThrough(links[:min(i+1, len(links))])
	return t.on
}

// fileFault returns a FileFault for the disk's descriptor.
func fileFault(d *vdisk) types.BaseMethodFault {
	return &types.FileFault{File: datastorePath(d.ds.spec.Name, d.vm.spec.Folder, d.spec.Name)}
}

// asArea returns the range as one area, or no area if it is empty.
func asArea(start, end int64) []types.DiskChangeExtent {
	if start >= end {
		return nil
	}
	return []types.DiskChangeExtent{{Start: start, Length: end - start}}
}

// collectAreas returns the areas of c from off on, after the filter shown, and the length of the disk
// that they describe. CBT.MaxAreas limits their number.
func (d *vdisk) collectAreas(c content, off int64, cfg CBT, shown func(start, end int64) []types.DiskChangeExtent) (areas []types.DiskChangeExtent, length int64, err error) {
	at := off
	for at < c.Size() {
		start, end, err := nextArea(c, at, int64(cfg.Granularity))
		if err != nil {
			return nil, 0, err
		}
		if cfg.EmptyPages && start > at { // a hole before the next area
			if len(areas) == 0 {
				at = start // the page describes the hole alone
			}
			break
		}
		if start < end && len(areas) == cfg.MaxAreas { // the next page begins at at
			break
		}
		areas = append(areas, shown(start, end)...)
		at = end
	}
	return areas, at - off, nil
}

// shownAreas returns the parts of an allocated range that Disk.Hide does not remove from the map.
func (d *vdisk) shownAreas(start, end int64) []types.DiskChangeExtent {
	if start >= end {
		return nil
	}
	visible := []types.DiskChangeExtent{{Start: start, Length: end - start}}
	for _, h := range *d.hide.Load() {
		var rest []types.DiskChangeExtent
		for _, a := range visible {
			rest = append(rest, subtractSpan(a, h)...)
		}
		visible = rest
	}
	return visible
}

// subtractSpan returns the parts of a outside h.
func subtractSpan(a types.DiskChangeExtent, h Span) (rest []types.DiskChangeExtent) {
	aEnd, hEnd := a.Start+a.Length, h.Offset+h.Length
	if hEnd <= a.Start || h.Offset >= aEnd {
		return []types.DiskChangeExtent{a}
	}
	if h.Offset > a.Start {
		rest = append(rest, types.DiskChangeExtent{Start: a.Start, Length: h.Offset - a.Start})
	}
	if hEnd < aEnd {
		rest = append(rest, types.DiskChangeExtent{Start: hEnd, Length: aEnd - hEnd})
	}
	return rest
}
