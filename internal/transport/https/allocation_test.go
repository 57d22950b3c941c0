package https

import (
	"context"
	"fmt"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

// mapOf returns an Allocated function that returns the extents of a disk.
func mapOf(d disk.Source) func(disk.Range) ([]disk.Extent, error) {
	return func(r disk.Range) ([]disk.Extent, error) { return d.Extents(context.Background(), r) }
}

func wholeDisk(src *Source) disk.Range { return disk.Range{Len: src.Size()} }

func TestCorrectMapIsTrusted(t *testing.T) {
	want := disk.NewSparsePattern(256<<20, 0.3, 7)
	src, _ := openTestDisk(t, want, func(_ *server, h *fakeHost, o *Options) { h.allocated, o.Seed = mapOf(want), 1 })
	extents, err := src.Extents(t.Context(), wholeDisk(src))
	if err != nil {
		t.Fatal(err)
	}
	var data, allocated int64
	for _, e := range extents {
		if e.Kind == disk.Data {
			data += e.Len
		}
	}
	real, _ := want.Extents(t.Context(), wholeDisk(src))
	for _, e := range real {
		if e.Kind == disk.Data {
			allocated += e.Len
		}
	}
	r := src.Report()
	if r.Map != MapTrusted || r.MapNote == "" {
		t.Errorf("report %+v, want MapTrusted and a note", r)
	}
	if wire := data + r.Body; data < allocated || float64(wire) > 1.01*float64(allocated) {
		t.Errorf("%d bytes to read and %d sampled, want in total %d to 1 %% more", data, r.Body, allocated)
	}
}

// A map that omits a part of the data is detected and dropped, for any position of the part.
func TestIncompleteMapIsDropped(t *testing.T) {
	want := disk.NewPattern(1 << 30)
	half := want.Size() / 2
	omitted := map[string]func(int64) bool{ // whether the map omits a MiB
		"it ends early":           func(mib int64) bool { return mib >= 512 },
		"the first block":         func(mib int64) bool { return mib == 0 },
		"the last block":          func(mib int64) bool { return mib == 1023 },
		"every other MiB":         func(mib int64) bool { return mib%2 == 1 },
		"an eighth in the middle": func(mib int64) bool { return mib >= half>>20 && mib < half>>20+128 },
	}
	for name, omits := range omitted {
		t.Run(name, func(t *testing.T) {
			src, _ := openTestDisk(t, want, func(_ *server, h *fakeHost, o *Options) {
				o.Seed = 3
				h.allocated = func(r disk.Range) (out []disk.Extent, err error) {
					for off := r.Off; off < r.End(); off += 1 << 20 {
						e := disk.Extent{Range: disk.Range{Off: off, Len: min(1<<20, r.End()-off)}}
						if omits(off >> 20) {
							e.Kind = disk.Zero
						}
						out = append(out, e)
					}
					return out, nil
				}
			})
			extents, err := src.Extents(t.Context(), wholeDisk(src))
			if err != nil {
				t.Fatal(err)
			}
			if len(extents) != 1 || extents[0].Kind != disk.Data || extents[0].Range != wholeDisk(src) {
				t.Errorf("%d extents, the first %+v; want all data", len(extents), extents[0])
			}
			if r := src.Report(); r.Map != MapDropped || r.MapNote == "" {
				t.Errorf("report %+v, want MapDropped and a note", r)
			}
		})
	}
}

func TestDiskWithoutUsableMapIsAllData(t *testing.T) {
	holes := func(r disk.Range) []disk.Extent {
		return []disk.Extent{{Range: disk.Range{Off: r.Off, Len: r.Len / 2}}, {Range: disk.Range{Off: r.Off + r.Len/2 + 512, Len: r.Len/2 - 512}}}
	}
	answers := map[string]func(disk.Range) ([]disk.Extent, error){
		"none":      nil,
		"fault":     func(disk.Range) ([]disk.Extent, error) { return nil, fault.New(fault.Transient, "vpxd is restarting") },
		"a gap":     func(r disk.Range) ([]disk.Extent, error) { return holes(r), nil },
		"too short": func(r disk.Range) ([]disk.Extent, error) { return holes(r)[:1], nil },
		"nothing":   func(disk.Range) ([]disk.Extent, error) { return nil, nil },
	}
	want := disk.NewPattern(1 << 20)
	for name, answer := range answers {
		t.Run(name, func(t *testing.T) {
			src, _ := openTestDisk(t, want, func(_ *server, h *fakeHost, _ *Options) { h.allocated = answer })
			extents, err := src.Extents(t.Context(), wholeDisk(src))
			if err != nil || len(extents) != 1 || extents[0].Kind != disk.Data {
				t.Errorf("extents %v, error %v", extents, err)
			}
			if r := src.Report(); r.Map != MapAbsent || r.MapNote == "" {
				t.Errorf("report %+v, want MapAbsent and a note", r)
			}
		})
	}
}

func TestLostSessionIsNotAMissingMap(t *testing.T) {
	src, _ := openTestDisk(t, disk.NewPattern(1<<20), func(_ *server, h *fakeHost, _ *Options) {
		h.allocated = func(disk.Range) ([]disk.Extent, error) { return nil, fault.New(fault.Denied, "no") }
	})
	if _, err := src.Extents(t.Context(), wholeDisk(src)); !fault.Is(err, fault.Denied) {
		t.Errorf("got %v, want Denied", err)
	}
}

func TestMapIsRequestedOncePerWindow(t *testing.T) {
	const size = 150 << 30
	var requested []disk.Range
	want := disk.NewSparsePattern(size, 0, 0)
	src, _ := openTestDisk(t, want, func(_ *server, h *fakeHost, _ *Options) {
		h.allocated = func(r disk.Range) ([]disk.Extent, error) {
			requested = append(requested, r)
			return []disk.Extent{{Range: r, Kind: disk.Zero}}, nil
		}
	})
	for _, r := range []disk.Range{{Len: 1 << 20}, {Off: size - 512, Len: 512}, {Off: 1 << 30, Len: 5 << 30}} {
		extents, err := src.Extents(t.Context(), r)
		if err != nil || len(extents) != 1 || extents[0].Range != r || extents[0].Kind != disk.Zero {
			t.Fatalf("extents of %v: %v, error %v", r, extents, err)
		}
	}
	want3 := []disk.Range{{Len: 64 << 30}, {Off: 64 << 30, Len: 64 << 30}, {Off: 128 << 30, Len: 22 << 30}}
	if fmt.Sprint(requested) != fmt.Sprint(want3) {
		t.Errorf("requested %v, want %v", requested, want3)
	}
}
