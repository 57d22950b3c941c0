package esx_test

import (
	"encoding/xml"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// query is a QueryChangedDiskAreas call that the server received.
type query struct {
	VM       string `xml:"Body>QueryChangedDiskAreas>_this"`
	Snapshot string `xml:"Body>QueryChangedDiskAreas>snapshot"`
	Key      int32  `xml:"Body>QueryChangedDiskAreas>deviceKey"`
	Start    int64  `xml:"Body>QueryChangedDiskAreas>startOffset"`
	ChangeID string `xml:"Body>QueryChangedDiskAreas>changeId"`
}

// page is the reply to a query.
type page struct {
	start, length int64
	areas         []disk.Range
}

// serveMap answers QueryChangedDiskAreas with f, and returns the list of queries.
func (r *simServer) serveMap(t *testing.T, f func(query) page) *[]query {
	var queries []query
	r.set(func(r *simServer) {
		r.answer = func(c call, w http.ResponseWriter) bool {
			if c.method != "QueryChangedDiskAreas" {
				return false
			}
			var q query
			if err := xml.Unmarshal(c.body, &q); err != nil {
				t.Error(err)
			}
			queries = append(queries, q)
			p := f(q)
			text := fmt.Sprintf("<returnval><startOffset>%d</startOffset><length>%d</length>", p.start, p.length)
			for _, a := range p.areas {
				text += fmt.Sprintf("<changedArea><start>%d</start><length>%d</length></changedArea>", a.Off, a.Len)
			}
			return soapReply(w, c.method, text+"</returnval>")
		}
	})
	return &queries
}

func dataExtent(off, n int64) disk.Extent { return disk.Extent{Range: disk.Range{Off: off, Len: n}} }
func zeroExtent(off, n int64) disk.Extent {
	return disk.Extent{Range: disk.Range{Off: off, Len: n}, Kind: disk.Zero}
}

// The server returns pages of 1 MiB. An empty page, here the second, does not end the map.
func TestAllocatedReadsAllPages(t *testing.T) {
	r := newESX(t)
	s := r.dial(t)
	const mib = 1 << 20
	queries := r.serveMap(t, func(q query) page {
		p := page{start: q.Start, length: mib}
		switch q.Start {
		case 0:
			p.areas = []disk.Range{{Off: 65536, Len: 65536}}
		case 2 * mib:
			p.areas = []disk.Range{{Off: 2*mib + 512, Len: 512}, {Off: 2 * mib, Len: 512}}
		case 3 * mib:
			p.areas = []disk.Range{{Off: 3 * mib, Len: mib}}
		}
		return p
	})
	got, err := s.Allocated(t.Context(), "42", "", 2000, disk.Range{Len: 4*mib - 1024})
	if err != nil {
		t.Fatal(err)
	}
	want := []disk.Extent{
		zeroExtent(0, 65536), dataExtent(65536, 65536), zeroExtent(131072, 2*mib-131072),
		dataExtent(2*mib, 1024), zeroExtent(2*mib+1024, mib-1024), dataExtent(3*mib, mib-1024),
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	for i, q := range *queries {
		if want := (query{"42", "", 2000, int64(i) * mib, "*"}); q != want {
			t.Errorf("query %d is %+v, want %+v", i, q, want)
		}
	}
	if len(*queries) != 4 {
		t.Errorf("%d queries, want 4", len(*queries))
	}
}

func TestAllocatedOfASnapshotAndAWindow(t *testing.T) {
	r := newESX(t)
	s := r.dial(t)
	queries := r.serveMap(t, func(q query) page {
		return page{start: q.Start / 4096 * 4096, length: 1 << 30, areas: []disk.Range{{Off: 0, Len: 1 << 30}}}
	})
	got, err := s.Allocated(t.Context(), "42", "7-snapshot-1", 2001, disk.Range{Off: 5000, Len: 3000})
	if err != nil || !slices.Equal(got, []disk.Extent{dataExtent(5000, 3000)}) {
		t.Errorf("%v, %v", got, err)
	}
	if q := (*queries)[0]; q.Snapshot != "7-snapshot-1" || q.Start != 5000 {
		t.Errorf("query %+v", q)
	}
}

// A map of one area is returned unchanged. NFS datastores report every disk like that.
func TestAllocatedOfAFullDisk(t *testing.T) {
	r := newESX(t)
	s := r.dial(t)
	r.serveMap(t, func(query) page { return page{0, 6 << 40, []disk.Range{{Off: 0, Len: 6 << 40}}} })
	got, err := s.Allocated(t.Context(), "42", "", 2000, disk.Range{Len: 6 << 40})
	if err != nil || !slices.Equal(got, []disk.Extent{dataExtent(0, 6<<40)}) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestAllocatedOfAnEmptyRange(t *testing.T) {
	s := newESX(t).dial(t)
	got, err := s.Allocated(t.Context(), "42", "", 2000, disk.Range{Off: 512})
	if err != nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
}

// A map that contradicts itself is an error after at most two queries.
func TestContradictoryMapIsRefused(t *testing.T) {
	r := newESX(t)
	s := r.dial(t)
	for name, p := range map[string]page{
		"length 0":           {0, 0, nil},
		"negative length":    {0, -1, nil},
		"begins later":       {4096, 1 << 30, nil},
		"begins before 0":    {-1, 1 << 30, nil},
		"overflows":          {1, 1<<63 - 1, nil},
		"negative area":      {0, 1 << 30, []disk.Range{{Off: -1, Len: 10}}},
		"negative area len":  {0, 1 << 30, []disk.Range{{Off: 1, Len: -10}}},
		"area overflows":     {0, 1 << 30, []disk.Range{{Off: 1, Len: 1<<63 - 1}}},
		"same page repeated": {0, 4096, nil},
		"backwards":          {0, 8192, nil},
	} {
		queries := r.serveMap(t, func(q query) page {
			if name == "backwards" && q.Start > 0 {
				return page{0, 4096, nil}
			}
			return p
		})
		_, err := s.Allocated(t.Context(), "42", "", 2000, disk.Range{Len: 1 << 20})
		if !fault.Is(err, fault.Unsupported) || !strings.Contains(err.Error(), "contradicts") || len(*queries) > 2 {
			t.Errorf("%s: %v after %d queries", name, err, len(*queries))
		}
	}
}

func TestServerWithoutMapIsUnsupported(t *testing.T) {
	r := newESX(t)
	s := r.dial(t)
	for _, kind := range []string{"FileFault", "NotSupported", "InvalidArgument", "SystemError", "NotFound", "RestrictedVersion", "NoPermission"} {
		r.set(func(r *simServer) {
			r.answer = func(c call, w http.ResponseWriter) bool {
				return c.method == "QueryChangedDiskAreas" && soapFault(w, kind, "")
			}
		})
		_, err := s.Allocated(t.Context(), "42", "", 2000, disk.Range{Len: 1 << 20})
		if !fault.Is(err, fault.Unsupported) || !strings.Contains(err.Error(), "said by the test: "+kind) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

func TestMapOfAMissingVM(t *testing.T) {
	s := newESX(t).dial(t)
	_, err := s.Allocated(t.Context(), "vm-gone", "", 2000, disk.Range{Len: 1 << 20})
	if !fault.Is(err, fault.NotFound) {
		t.Fatal(err)
	}
}

func TestMapOfAnInvalidRange(t *testing.T) {
	s := newESX(t).dial(t)
	for _, r := range []disk.Range{{Off: -1, Len: 1}, {Off: 0, Len: -1}, {Off: 1, Len: 1<<63 - 1}} {
		if _, err := s.Allocated(t.Context(), "42", "", 2000, r); !fault.Is(err, fault.Invalid) {
			t.Errorf("%v: %v", r, err)
		}
	}
}

func wholeDisk(d *inventory.Disk) disk.Range { return disk.Range{Len: d.Capacity} }
