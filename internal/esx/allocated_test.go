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

// query is a QueryChangedDiskAreas call as the server sees it.
type query struct {
	VM       string `xml:"Body>QueryChangedDiskAreas>_this"`
	Snapshot string `xml:"Body>QueryChangedDiskAreas>snapshot"`
	Key      int32  `xml:"Body>QueryChangedDiskAreas>deviceKey"`
	Start    int64  `xml:"Body>QueryChangedDiskAreas>startOffset"`
	ChangeID string `xml:"Body>QueryChangedDiskAreas>changeId"`
}

// page is an answer to one.
type page struct {
	start, length int64
	areas         []disk.Range
}

// serveMap answers QueryChangedDiskAreas by f, and gives the list of queries.
func (r *rig) serveMap(t *testing.T, f func(query) page) *[]query {
	var asked []query
	r.set(func(r *rig) {
		r.answer = func(c call, w http.ResponseWriter) bool {
			if c.method != "QueryChangedDiskAreas" {
				return false
			}
			var q query
			if err := xml.Unmarshal(c.body, &q); err != nil {
				t.Error(err)
			}
			asked = append(asked, q)
			p := f(q)
			text := fmt.Sprintf("<returnval><startOffset>%d</startOffset><length>%d</length>", p.start, p.length)
			for _, a := range p.areas {
				text += fmt.Sprintf("<changedArea><start>%d</start><length>%d</length></changedArea>", a.Off, a.Len)
			}
			return soapReply(w, c.method, text+"</returnval>")
		}
	})
	return &asked
}

func data(off, n int64) disk.Extent { return disk.Extent{Range: disk.Range{Off: off, Len: n}} }
func zero(off, n int64) disk.Extent {
	return disk.Extent{Range: disk.Range{Off: off, Len: n}, Kind: disk.Zero}
}

// Pages of 1 MiB; the second is empty, which is legal and not the end.
func TestAllocatedReadsAllPages(t *testing.T) {
	r := newESX(t)
	s := r.dial(t)
	const mib = 1 << 20
	asked := r.serveMap(t, func(q query) page {
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
		zero(0, 65536), data(65536, 65536), zero(131072, 2*mib-131072),
		data(2*mib, 1024), zero(2*mib+1024, mib-1024), data(3*mib, mib-1024),
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	for i, q := range *asked {
		if want := (query{"42", "", 2000, int64(i) * mib, "*"}); q != want {
			t.Errorf("query %d is %+v, want %+v", i, q, want)
		}
	}
	if len(*asked) != 4 {
		t.Errorf("%d queries, want 4", len(*asked))
	}
}

func TestAllocatedOfASnapshotAndAWindow(t *testing.T) {
	r := newESX(t)
	s := r.dial(t)
	asked := r.serveMap(t, func(q query) page {
		return page{start: q.Start / 4096 * 4096, length: 1 << 30, areas: []disk.Range{{Off: 0, Len: 1 << 30}}}
	})
	got, err := s.Allocated(t.Context(), "42", "7-snapshot-1", 2001, disk.Range{Off: 5000, Len: 3000})
	if err != nil || !slices.Equal(got, []disk.Extent{data(5000, 3000)}) {
		t.Errorf("%v, %v", got, err)
	}
	if q := (*asked)[0]; q.Snapshot != "7-snapshot-1" || q.Start != 5000 {
		t.Errorf("asked %+v", q)
	}
}

// A disk that is one area from end to end is what NFS says of every disk.
func TestAllocatedInFullIsReturnedAsItIs(t *testing.T) {
	r := newESX(t)
	s := r.dial(t)
	r.serveMap(t, func(query) page { return page{0, 6 << 40, []disk.Range{{Off: 0, Len: 6 << 40}}} })
	got, err := s.Allocated(t.Context(), "42", "", 2000, disk.Range{Len: 6 << 40})
	if err != nil || !slices.Equal(got, []disk.Extent{data(0, 6<<40)}) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestAllocatedOfNothing(t *testing.T) {
	s := newESX(t).dial(t)
	got, err := s.Allocated(t.Context(), "42", "", 2000, disk.Range{Off: 512})
	if err != nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
}

// A map that contradicts itself is no map: neither followed nor asked for ever.
func TestMisbehavingMapIsUnsupported(t *testing.T) {
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
		"same page for ever": {0, 4096, nil},
		"backwards":          {0, 8192, nil},
	} {
		asked := r.serveMap(t, func(q query) page {
			if name == "backwards" && q.Start > 0 {
				return page{0, 4096, nil}
			}
			return p
		})
		_, err := s.Allocated(t.Context(), "42", "", 2000, disk.Range{Len: 1 << 20})
		if !fault.Is(err, fault.Unsupported) || !strings.Contains(err.Error(), "contradicts") || len(*asked) > 2 {
			t.Errorf("%s: %v after %d queries", name, err, len(*asked))
		}
	}
}

func TestServerWithoutMapIsUnsupported(t *testing.T) {
	r := newESX(t)
	s := r.dial(t)
	for _, kind := range []string{"FileFault", "NotSupported", "InvalidArgument", "SystemError", "NotFound", "RestrictedVersion", "NoPermission"} {
		r.set(func(r *rig) {
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

func TestMapOfAVMThatIsGone(t *testing.T) {
	s := newESX(t).dial(t)
	_, err := s.Allocated(t.Context(), "vm-gone", "", 2000, disk.Range{Len: 1 << 20})
	if !fault.Is(err, fault.NotFound) {
		t.Fatal(err)
	}
}

func TestMapOfNoRange(t *testing.T) {
	s := newESX(t).dial(t)
	for _, r := range []disk.Range{{Off: -1, Len: 1}, {Off: 0, Len: -1}, {Off: 1, Len: 1<<63 - 1}} {
		if _, err := s.Allocated(t.Context(), "42", "", 2000, r); !fault.Is(err, fault.Invalid) {
			t.Errorf("%v: %v", r, err)
		}
	}
}

func whole(d *inventory.Disk) disk.Range { return disk.Range{Len: d.Capacity} }
