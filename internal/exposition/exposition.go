// Package exposition writes metrics in the text format of Prometheus, version 0.0.4, and reads the
// metrics of the Go runtime and of this process. It counts nothing: a Family is the values of one
// moment. Names and values are those of Prometheus's own client library, which a test compares.
//
// https://prometheus.io/docs/instrumenting/exposition_formats/
package exposition

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
)

// ContentType is the media type of the format. Names here have letters, digits and underscores only, so
// that they are the same in every escaping.
const ContentType = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"

// Type is the type of a family.
type Type string

// Types.
const (
	Counter   Type = "counter"   // value that only increases while the process runs
	Gauge     Type = "gauge"     // value that increases and decreases
	Histogram Type = "histogram" // observations by upper bounds
	Summary   Type = "summary"   // quantiles of observations
)

// Family is all metrics of one name.
type Family struct {
	Name    string   // letters, digits and underscores
	Help    string   // description, one or more lines
	Type    Type     // type of all Metrics
	Labels  []string // names of the labels of each metric
	Metrics []Metric // metrics with different label values
}

// Metric is the value of one metric.
type Metric struct {
	Labels []string // values of the Family's Labels, in the same order
	Value  float64  // value of a counter or a gauge; the sum of the observations of a histogram or a summary
	Count  uint64   // observations of a histogram or a summary
	Points []Point  // buckets of a histogram, without the infinite one; quantiles of a summary
}

// Point is one bucket or one quantile.
type Point struct {
	At    float64 // the upper bound of the bucket, or the quantile
	Value float64 // the observations in the bucket and all below it, or the value of the quantile
}

// Add adds a counter or a gauge to the family.
func (f *Family) Add(value float64, labels ...string) {
	f.Metrics = append(f.Metrics, Metric{Labels: labels, Value: value})
}

// Text returns the families as text, sorted by name and their metrics by labels. Families without
// metrics are left out. Names must be unique. Text sorts the slices in place.
func Text(families []Family) []byte {
	slices.SortFunc(families, func(a, b Family) int { return cmp.Compare(a.Name, b.Name) })
	var w writer
	for _, f := range families {
		if len(f.Metrics) == 0 {
			continue
		}
		w.writeText("# HELP ", f.Name, " ", escapeHelp.Replace(f.Help), "\n# TYPE ", f.Name, " ", string(f.Type), "\n")
		order := labelOrder(f.Labels)
		slices.SortStableFunc(f.Metrics, func(a, b Metric) int { return compareLabels(order, a, b) })
		for _, m := range f.Metrics {
			w.writeMetric(f, order, m)
		}
	}
	return w.Bytes()
}

// labelOrder returns the indexes of labels, sorted by their names.
func labelOrder(labels []string) []int {
	order := make([]int, len(labels))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(labels[a], labels[b]) })
	return order
}

// compareLabels compares two metrics by their label values. order are indexes into Labels.
func compareLabels(order []int, a, b Metric) int {
	for _, i := range order {
		if c := cmp.Compare(a.Labels[i], b.Labels[i]); c != 0 {
			return c
		}
	}
	return 0
}

var (
	escapeHelp  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)            // escapes a help text, in which quotes are allowed
	escapeLabel = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`) // escapes a label value
)

// A writer collects the text of the format.
type writer struct{ bytes.Buffer }

// writeText appends parts unchanged.
func (w *writer) writeText(parts ...string) {
	for _, p := range parts {
		w.WriteString(p)
	}
}

// writeMetric writes the lines of one metric. Histograms get the bucket with the infinite bound.
func (w *writer) writeMetric(f Family, order []int, m Metric) {
	point := func(suffix, name string, p Point) {
		w.writeSample(f, order, m, suffix, p.Value, name, formatFloat(p.At))
	}
	switch f.Type {
	case Histogram:
		for _, p := range m.Points {
			point("_bucket", "le", p)
		}
		point("_bucket", "le", Point{math.Inf(1), float64(m.Count)})
	case Summary:
		for _, p := range m.Points {
			point("", "quantile", p)
		}
	default:
		w.writeSample(f, order, m, "", m.Value)
		return
	}
	w.writeSample(f, order, m, "_sum", m.Value)
	w.writeSample(f, order, m, "_count", float64(m.Count))
}

// writeSample writes one line. further are names and values of labels that follow the labels of the
// metric. Invalid UTF-8 in label values is replaced.
func (w *writer) writeSample(f Family, order []int, m Metric, suffix string, value float64, further ...string) {
	w.writeText(f.Name, suffix)
	before := "{"
	label := func(name, value string) {
		w.writeText(before, name, `="`, escapeLabel.Replace(strings.ToValidUTF8(value, "\uFFFD")), `"`)
		before = ","
	}
	for _, i := range order {
		label(f.Labels[i], m.Labels[i])
	}
	for i := 0; i < len(further); i += 2 {
		label(further[i], further[i+1])
	}
	if before == "," {
		w.writeText("}")
	}
	w.writeText(" ", formatFloat(value), "\n")
}

// formatFloat formats a value as the format requires.
func formatFloat(v float64) string {
	if math.IsInf(v, 1) {
		return "+Inf"
	}
	return strconv.FormatFloat(v, 'g', -1, 64) // NaN and -Inf are as the format has them
}
