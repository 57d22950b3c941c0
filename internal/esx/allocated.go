package esx

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// inUse is the change ID that makes QueryChangedDiskAreas return all allocated areas. A
// real change ID makes it return the areas written since that state.
const inUse = inventory.ChangeID("*")

// Allocated describes r of the disk with the device key: data in allocated areas, zero
// elsewhere. The extents are in order and without gaps. snapshot must be empty for a
// powered-off VM.
//
// The error has the kind fault.Unsupported if the server has no map or a map that
// contradicts itself. The disk can then be read without a map. It has the kind
// fault.Invalid if r is not a valid range.
//
// On NFS, vSAN and vVol the map may be one area that covers the whole disk. That map is
// correct.
func (s *vmController) Allocated(ctx context.Context, vm, snapshot inventory.MoRef, key int32, r disk.Range) ([]disk.Extent, error) {
	if r.Off < 0 || r.Len < 0 || r.Len > math.MaxInt64-r.Off {
		return nil, fault.New(fault.Invalid, "map of disk %d: range %v is invalid", key, r)
	}
	areas, err := s.readChangedAreas(ctx, vm, snapshot, key, inUse, r)
	if err != nil {
		return nil, fmt.Errorf("map of disk %d of VM %s: %w", key, vm, mapError(err))
	}
	return describeAreas(r, areas), nil
}

// readChangedAreas returns the areas of r that were written since a change ID. The
// areas are in the server's order, may overlap, and may extend beyond r.
func (s *vmController) readChangedAreas(ctx context.Context, vm, snapshot inventory.MoRef, key int32, since inventory.ChangeID, r disk.Range) ([]disk.Range, error) {
	req := &types.QueryChangedDiskAreas{This: moRef("VirtualMachine", vm), DeviceKey: key, ChangeId: string(since)}
	if snapshot != "" {
		ref := moRef("VirtualMachineSnapshot", snapshot)
		req.Snapshot = &ref
	}
	return readMap(r, func(at int64) (*types.DiskChangeInfo, error) {
		req.StartOffset = at
		res, err := methods.QueryChangedDiskAreas(ctx, s, req)
		if err != nil {
			return nil, err
		}
		return &res.Returnval, nil
	})
}

// readMap calls ask for one page after the other. Each page starts at the end of the
// previous one. A page without areas means that nothing in its Length is in use. The
// loop ends at r's end only. A page that ends within a sector before r's end is an
// error of kind fault.Unsupported.
func readMap(r disk.Range, ask func(at int64) (*types.DiskChangeInfo, error)) ([]disk.Range, error) {
	var areas []disk.Range
	// A page may start before the requested offset, but its end must be behind it, so
	// the loop ends.
	for at := r.Off; at < r.End(); {
		page, err := ask(at)
		if err != nil {
			return nil, err
		}
		next, err := checkPage(page, at)
		if err != nil {
			return nil, err
		}
		// A server that returns pages of single bytes would keep the loop busy for
		// years.
		if next-at < disk.SectorSize && next < r.End() {
			return nil, badMapError("page [%d, %d) ends within a sector", page.StartOffset, next)
		}
		for _, a := range page.ChangedArea {
			areas = append(areas, disk.Range{Off: a.Start, Len: a.Length})
		}
		at = next
	}
	return areas, nil
}

// checkPage returns the end of the page that contains the requested offset at. It fails
// if the page starts after at, ends at or before it, or contains an area with a
// negative or overflowing range. The server's numbers are untrusted input.
func checkPage(page *types.DiskChangeInfo, at int64) (int64, error) {
	if page.StartOffset < 0 || page.Length <= 0 || page.Length > math.MaxInt64-page.StartOffset {
		return 0, badMapError("page of %d bytes at %d, requested at %d", page.Length, page.StartOffset, at)
	}
	next := page.StartOffset + page.Length
	if page.StartOffset > at || next <= at {
		return 0, badMapError("page [%d, %d) does not contain the requested offset %d", page.StartOffset, next, at)
	}
	for _, a := range page.ChangedArea {
		if a.Start < 0 || a.Length < 0 || a.Length > math.MaxInt64-a.Start {
			return 0, badMapError("area of %d bytes at %d", a.Length, a.Start)
		}
	}
	return next, nil
}

// badMapError returns an error of kind fault.Unsupported for a map that contradicts
// itself.
func badMapError(format string, args ...any) error {
	return fault.New(fault.Unsupported, "the server's map contradicts itself: "+format, args...).
		WithHint("no action is required: decamp reads the whole disk instead")
}

// mapError converts the API's refusals to fault.Unsupported. Without change tracking, a
// query for "*" fails with FileFault; some datastores answer NotSupported or
// InvalidArgument. In each of these cases the map is missing. Network errors, login
// errors and the error for a removed VM keep their kind.
func mapError(err error) error {
	switch vimFault(err).(type) {
	case nil, *types.NotAuthenticated, *types.ManagedObjectNotFound:
		return classify(err)
	}
	return fault.New(fault.Unsupported, "the server gives none (is change tracking on?): %w", err).
		WithHint("no action is required: decamp reads the whole disk instead; change block tracking must be on before the last power-on or snapshot for a map")
}

// moRef returns the API's form of a reference. kind is the API's type name, such as
// VirtualMachine.
func moRef(kind string, ref inventory.MoRef) types.ManagedObjectReference {
	return types.ManagedObjectReference{Type: kind, Value: string(ref)}
}

// describeAreas converts areas in use to extents that describe r: data in the areas,
// zero between them. The areas may overlap and may be in any order.
func describeAreas(r disk.Range, areas []disk.Range) []disk.Extent {
	return disk.Describe(r, mergeAreas(r, areas))
}

// mergeAreas returns the parts of the areas that are within r, as sorted ranges that do
// not touch. It does not change areas.
func mergeAreas(r disk.Range, areas []disk.Range) []disk.Range {
	var in []disk.Range
	for _, a := range areas {
		if a = a.Intersect(r); !a.Empty() {
			in = append(in, a)
		}
	}
	// Servers normally return areas in order; sorting makes the result independent of
	// that.
	slices.SortFunc(in, func(a, b disk.Range) int { return cmp.Compare(a.Off, b.Off) })
	// The result reuses the memory of in: it is never longer than the part that was
	// read.
	out := in[:0]
	for _, a := range in {
		if n := len(out); n > 0 && a.Off <= out[n-1].End() {
			out[n-1].Len = max(out[n-1].End(), a.End()) - out[n-1].Off
			continue
		}
		out = append(out, a)
	}
	return out
}
