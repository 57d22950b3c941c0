package esx_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
)

// DiskReads uses only samples that are completely within the interval.
func TestDiskReads(t *testing.T) {
	r := newESX(t)
	s := r.dial(t)
	ended := time.Unix(1_750_000_000, 0)
	reads, err := s.DiskReads(t.Context(), "ha-host", ended.Add(-time.Minute), ended)
	if err != nil || reads.Samples < 2 || reads.Samples > 3 {
		t.Errorf("%+v, %v", reads, err)
	}
	if _, err := s.DiskReads(t.Context(), "ha-host", ended.Add(-19*time.Second), ended); !fault.Is(err, fault.Unsupported) || !strings.Contains(err.Error(), "a sample of the host, 20s") {
		t.Errorf("an interval without a complete sample: %v", err)
	}
}

// DiskReads adds up the devices, omits missing samples, and does not count the host's total in
// addition to the devices.
func TestDiskReadsOfSeveralDevices(t *testing.T) {
	r := newESX(t)
	s := r.dial(t)
	var requests, kib string
	r.set(func(r *simServer) {
		r.answer = func(c call, w http.ResponseWriter) bool {
			if c.method != "QueryPerf" {
				return false
			}
			ids := strings.Split(string(c.body), "<counterId>")
			requests, kib = ids[1][:strings.Index(ids[1], "<")], ids[2][:strings.Index(ids[2], "<")]
			series := func(id, instance, values string) string {
				text := `<value xsi:type="PerfMetricIntSeries"><id><counterId>` + id + `</counterId><instance>` + instance + `</instance></id>`
				for v := range strings.FieldsSeq(values) {
					text += "<value>" + v + "</value>"
				}
				return text + "</value>"
			}
			_, _ = io.WriteString(w, `<?xml version="1.0"?><soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"><soapenv:Body>`+
				`<QueryPerfResponse xmlns="urn:vim25"><returnval xsi:type="PerfEntityMetric"><entity type="HostSystem">ha-host</entity>`+
				series(requests, "naa.1", "100 300 -1")+series(requests, "naa.2", "50 50 50")+series(kib, "naa.1", "1024 3072 -1")+series(kib, "", "2048 2048 2048")+series("1", "x", "9")+
				`</returnval></QueryPerfResponse></soapenv:Body></soapenv:Envelope>`)
			return true
		}
	})
	ended := time.Unix(1_750_000_000, 0)
	reads, err := s.DiskReads(t.Context(), "ha-host", ended.Add(-time.Minute), ended)
	if want := (esx.DiskReads{PerSecond: 250, Bytes: 2 << 20, Samples: 3}); err != nil || reads != want {
		t.Errorf("got %+v, %v, want %+v", reads, err, want)
	}
}
