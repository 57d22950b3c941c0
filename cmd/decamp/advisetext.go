package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/decamp/decamp/internal/bench"
	"github.com/decamp/decamp/internal/bench/advise"
)

// writeAdvice prints what limits now, then what to do about it.
func writeAdvice(w io.Writer, r adviceReport, verbose bool) {
	fmt.Fprintf(w, "%s: %.1f MiB/s, %s take %s%s\n", r.Name, r.MiBs, size(r.Allocated), lasts(r.Allocated, r.MiBs), measuredToo(r.Measured))
	limit := r.Layers[0]
	fmt.Fprintf(w, "Limited by the %s, %s: %.0f %% of a change there comes through.\n\n", limit.Layer, layerMeans[limit.Layer], 100*limit.Part)
	writeLayers(w, r.Layers)
	writeSteps(w, r)
	if len(r.Notes) > 0 {
		fmt.Fprintln(w)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(w, "Note: %s.\n", n)
	}
	if verbose {
		writeModel(w, r)
	}
}

// layerMeans says in a few words what a layer is.
var layerMeans = map[advise.Layer]string{
	advise.Source:      "what the datastore lies on",
	advise.Host:        "the ESXi host's clone and NFS client",
	advise.Wire:        "the link",
	advise.Destination: "what the image lies on",
	advise.Commit:      "writes of a sync export that wait for the medium",
}

func lasts(bytes int64, mibs float64) string {
	return duration(time.Duration(float64(bytes) / bench.MiB / mibs * float64(time.Second)))
}

func measuredToo(rows []bench.Row) string {
	if len(rows) == 0 {
		return ""
	}
	return fmt.Sprintf(" (measured: %.1f, %s)", rows[0].Rate(), rows[0].Origin)
}

func writeLayers(w io.Writer, layers []advise.Share) {
	t := newTable("LAYER", "ALONE", "COMES THROUGH", "")
	t.alignRight(1, 2)
	for _, l := range layers {
		t.add(string(l.Layer), fmt.Sprintf("%.0f MiB/s", l.Alone), fmt.Sprintf("%.0f %%", 100*l.Part), layerMeans[l.Layer])
	}
	t.write(w)
}

func writeSteps(w io.Writer, r adviceReport) {
	if len(r.Steps) == 0 {
		fmt.Fprintln(w, "\nNo change that was measured gives anything here.")
		return
	}
	header := []string{"", "CHANGE", "NOW", "THEN", "GAIN", "BETWEEN", "TAKES"}
	if slices.ContainsFunc(r.Steps, func(s advise.Advice) bool { return s.Price > 0 }) {
		header = append(header, "COSTS", "FOR 1 MiB/s")
	}
	fmt.Fprintln(w)
	t := newTable(header...)
	t.alignRight(0, 2, 3, 4, 5, 6, 7, 8)
	for i, s := range r.Steps {
		t.add(append([]string{strconv.Itoa(i + 1), s.String(), fmt.Sprintf("%.1f", s.Before), fmt.Sprintf("%.1f", s.After),
			fmt.Sprintf("%+.0f %%", 100*s.Gain()), fmt.Sprintf("%.1f-%.1f", s.Least, s.Most), lasts(r.Allocated, s.After)}, priceCells(s)...)...)
	}
	t.write(w)
	fmt.Fprintln(w, "\nMeasured, by others or by you:")
	for i, s := range r.Steps {
		for _, e := range s.Rests {
			fmt.Fprintf(w, "%d  %s\n", i+1, e)
		}
	}
}

func priceCells(s advise.Advice) []string {
	if s.Price == 0 || s.After <= s.Before {
		return nil
	}
	return []string{fmt.Sprintf("%.0f", s.Price), fmt.Sprintf("%.2f", s.Price/(s.After-s.Before))}
}

// writeModel prints all that was fitted, so that anyone can follow a prediction by hand.
func writeModel(w io.Writer, r adviceReport) {
	m := r.Model
	fmt.Fprintln(w, "\nModel: sending = (source^p + host^p + wire^p)^(1/p), rate = 1 / ((sending^q + dest^q)^(1/q) + 16 commits)")
	t := newTable("PARAMETER", "VALUE", "")
	t.alignRight(1)
	for _, k := range []struct {
		name  string
		of    map[string]float64
		scale float64
		unit  string
	}{{"source", m.Source, 1e3, "ms/MiB"}, {"dest", m.Destination, 1e3, "ms/MiB"}, {"commit", m.Commit, 1e3, "ms a write of 64 KiB"}} {
		for _, medium := range slices.Sorted(maps.Keys(k.of)) {
			t.add(k.name+" "+medium, fmt.Sprintf("%.3f", k.of[medium]*k.scale), k.unit)
		}
	}
	t.add("host", fmt.Sprintf("%.3f", m.Host*1e3), "ms/MiB")
	t.add("wire", fmt.Sprintf("%.3f", m.Efficiency), "of the link's bits")
	t.add("jumbo", fmt.Sprintf("%.3f", m.Jumbo), "times host and wire, with an MTU of 9000")
	t.add("p", fmt.Sprintf("%.3f", m.P), "1: one after the other; infinite: wholly overlapped")
	t.add("q", fmt.Sprintf("%.3f", m.Q), "the same, of the destination and the rest")
	t.write(w)
	gbits, _ := bench.Gigabits(r.NIC) // it was looked up before
	fmt.Fprintf(w, "\nOver https, where disks are faster: %.0f MiB/s with one connection, %.0f with eight (%s).\n\n",
		r.HTTPS.Predict(1, gbits, r.MTU), r.HTTPS.Predict(8, gbits, r.MTU), bench.Seed().HTTPS.Origin)
	rows := newTable("ROW", "MEASURED", "PREDICTED", "OFF", "ORIGIN")
	rows.alignRight(1, 2, 3)
	for _, row := range r.Rows {
		if p, err := m.Predict(row.Setup); err == nil {
			rows.add(row.Name(), fmt.Sprintf("%.1f", row.Rate()), fmt.Sprintf("%.1f", p.MiBs), fmt.Sprintf("%+.1f %%", 100*(p.MiBs/row.Rate()-1)), row.Origin)
		}
	}
	rows.write(w)
}
