package lab

import (
	"strings"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// QueryChangedDiskAreas answers for one page of a disk, beginning at the given offset.
// With "*" it reports allocated areas; with a change id of this disk, nothing: guests of the
// lab do not write.
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

func (v *virtualMachine) changedAreas(ctx *simulator.Context, req *types.QueryChangedDiskAreas) (types.DiskChangeInfo, types.BaseMethodFault) {
	page := types.DiskChangeInfo{StartOffset: req.StartOffset}
	d, fault := v.queriedDisk(ctx, req)
	if fault != nil {
		return page, fault
	}
	if req.ChangeId != "*" {
		page.Length = d.content.Size() - req.StartOffset
		return page, d.checkChangeID(req.ChangeId)
	}
	switch {
	case d.ds.spec.Map == MapFault:
		return page, fileFault(d)
	case d.ds.spec.Map == MapWhole, d.spec.Thick, d.spec.RDM != "":
		page.Length = d.content.Size() - req.StartOffset
		page.ChangedArea = []types.DiskChangeExtent{{Start: req.StartOffset, Length: page.Length}}
		return page, nil
	}
	areas, length, err := d.page(req.StartOffset, v.lab.cfg.CBT)
	if err != nil {
		v.lab.cfg.Log.Error("allocation map", "vm", d.vm.spec.Name, "err", err)
		return page, fileFault(d)
	}
	page.Length, page.ChangedArea = length, areas
	return page, nil
}

// queriedDisk applies the rules of the call: changes must be tracked, a running VM needs a
// snapshot, the disk and the offset must exist.
func (v *virtualMachine) queriedDisk(ctx *simulator.Context, req *types.QueryChangedDiskAreas) (*vdisk, types.BaseMethodFault) {
	if v.machine == nil || v.machine.disk(req.DeviceKey) == nil {
		return nil, &types.InvalidArgument{InvalidProperty: "deviceKey"}
	}
	d := v.machine.disk(req.DeviceKey)
	if req.Snapshot != nil {
		snapshot, ok := ctx.Map.Get(*req.Snapshot).(*simulator.VirtualMachineSnapshot)
		if !ok || snapshot.Vm != v.Self {
			return nil, &types.InvalidArgument{InvalidProperty: "snapshot"}
		}
	}
	switch {
	case req.StartOffset < 0 || req.StartOffset >= d.content.Size():
		return nil, &types.InvalidArgument{InvalidProperty: "startOffset"}
	case v.Config.ChangeTrackingEnabled == nil || !*v.Config.ChangeTrackingEnabled:
		return nil, fileFault(d)
	case req.Snapshot == nil && v.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOn:
		return nil, fileFault(d)
	}
	return d, nil
}

// checkChangeID refuses an id that is not of this disk's log.
func (d *vdisk) checkChangeID(id string) types.BaseMethodFault {
	if log, counter, ok := strings.Cut(id, "/"); !ok || log != d.logID() || counter == "" {
		return fileFault(d)
	}
	return nil
}

func fileFault(d *vdisk) types.BaseMethodFault {
	return &types.FileFault{File: datastorePath(d.ds.spec.Name, d.vm.spec.Folder, d.spec.Name)}
}

// page collects allocated areas from off on. It returns how far they describe the disk.
func (d *vdisk) page(off int64, cfg CBT) (areas []types.DiskChangeExtent, length int64, err error) {
	at := off
	for at < d.content.Size() {
		start, end, err := nextArea(d.content, at, int64(cfg.Granularity))
		if err != nil {
			return nil, 0, err
		}
		if cfg.EmptyPages && start > at {
			if len(areas) == 0 {
				at = start // the page describes the hole alone
			}
			break
		}
		if start < end && len(areas) == cfg.MaxAreas {
			break
		}
		areas = append(areas, d.shown(start, end)...)
		at = end
	}
	return areas, at - off, nil
}

// shown is the part of an allocated area that the map admits to.
func (d *vdisk) shown(start, end int64) []types.DiskChangeExtent {
	if start >= end {
		return nil
	}
	visible := []types.DiskChangeExtent{{Start: start, Length: end - start}}
	for _, h := range *d.hide.Load() {
		var rest []types.DiskChangeExtent
		for _, a := range visible {
			rest = append(rest, subtract(a, h)...)
		}
		visible = rest
	}
	return visible
}

// subtract returns what of a lies outside h.
func subtract(a types.DiskChangeExtent, h Span) (rest []types.DiskChangeExtent) {
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
