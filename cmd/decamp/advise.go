package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/bench"
	"github.com/decamp/decamp/internal/bench/advise"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/flaghelp"
	"github.com/decamp/decamp/internal/server"
	"github.com/decamp/decamp/internal/units"
)

const adviseHelp = `
Report what limits the copy of a disk to an NFS export or a landing, what to change first, and
the expected gain of each change.

The flags describe the path of the data: the medium of the datastore (--source), the medium of
the image (--dest), the slowest link, the MTU of the whole path, and the mode of the export.
An async export answers before it writes, as decamp's own landing does; a sync export answers
after it. hdd, ssd and nvme are the media of the published measurements to which the model is
fitted. A measured rate such as 450MiB/s gives better results.

The steps are in order: each is the change with the largest gain after the steps above it. The
gain of a step lies between the two rates shown. Their distance is the error of the model for
the measured pairs of that change, which are printed below. The model ignores other load.

With PLAN it reports what limits a running plan now, from measurements of its transfers: the
part of the time in which each component was busy, and how much faster the plan could be
before the next component limits it. It looks for PLAN in the state directory, in the database
of --db, or at the server of --server.
`

const adviseExamples = `
decamp advise wave-1
decamp advise --source hdd --dest nvme --nic 1g --nfs sync
decamp advise --source ssd --dest nvme --what-if nic=10g --what-if nic=25g --allocated 2T
decamp advise --source 900MiB/s --dest hdd --nic 10g --prices prices.json
decamp advise --verbose
`

// adviseCommand is decamp advise.
type adviseCommand struct {
	out       *output       // output and messages
	fleet     fleetFlags    // flags of the fleet
	setup     bench.Setup   // path of the data that is predicted
	export    string        // mode of the NFS export: async or sync
	whatIf    []string      // changes to evaluate; empty: those of the published measurements
	allocated flaghelp.Size // bytes of the predicted copy
	prices    string        // path of a JSON file with prices; empty for none
	rows      string        // path of a file with the user's rows; empty for none
}

// newAdvise returns the command decamp advise.
func newAdvise(p *program) *cobra.Command {
	ad := &adviseCommand{out: p.out, fleet: fleetFlags{assembler: p.assembler}, allocated: 19 << 30}
	cmd := &cobra.Command{
		Use: "advise [PLAN]", Short: "Report what limits a copy, and what to change first", Long: trimHelp(adviseHelp), Example: trimHelp(adviseExamples),
		Args: cobra.MaximumNArgs(1),
		Annotations: exitCodes(exit{fault.NotFound, "the plan or a named file does not exist"},
			exit{fault.Conflict, "the plan has no running transfer to measure"},
			exit{fault.Unreachable, "the server or the database cannot be reached"}),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return ad.runLive(cmd.Context(), args[0])
			}
			return ad.predict()
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&ad.setup.Source, "source", "hdd", "medium of the datastore: hdd, ssd, or a rate such as 450MiB/s")
	f.StringVar(&ad.setup.Destination, "dest", "hdd", "medium of the image: hdd, nvme, or a rate")
	f.StringVar(&ad.setup.NIC, "nic", "1g", "speed of the slowest link between them, such as 10g")
	f.IntVar(&ad.setup.MTU, "mtu", 1500, "MTU of the whole path in bytes")
	f.StringVar(&ad.export, "nfs", "async", "mode of the NFS export: async or sync")
	f.StringArrayVar(&ad.whatIf, "what-if", nil, "a change to evaluate, such as nic=25g; may be repeated (default the changes of the published measurements, in their best order)")
	f.Var(&ad.allocated, "allocated", "bytes to copy, for the times")
	f.StringVar(&ad.prices, "prices", "", "`FILE` with the prices of changes: {\"nic=25g\": 420}")
	f.StringVar(&ad.rows, "rows", "", "`FILE` with your own rows (JSON, as decamp bench matrix writes them); the model is fitted to them and to the published ones")
	ad.fleet.registerFlags(cmd)
	return cmd
}

// predict prints the predicted limits and steps for the setup of the flags.
func (ad *adviseCommand) predict() error {
	if ad.setup.Export = bench.Export(ad.export); ad.setup.Export != bench.Async && ad.setup.Export != bench.Sync {
		return fault.New(fault.Invalid, "--nfs %s: want async or sync", ad.export)
	}
	rows, err := ad.loadRows()
	if err != nil {
		return err
	}
	advisor, err := advise.New(rows)
	if err != nil {
		return err
	}
	report, err := advisor.Report(advise.Question{Setup: ad.setup, Changes: ad.whatIf, Allocated: int64(ad.allocated)})
	if err != nil {
		return err
	}
	if err := ad.addPrices(report.Steps); err != nil {
		return err
	}
	if ad.out.json {
		return ad.out.printJSON(report)
	}
	writeAdvice(ad.out, report, ad.out.verbose)
	return nil
}

// loadRows returns the published rows and those of the user that the model supports.
func (ad *adviseCommand) loadRows() ([]bench.Row, error) {
	rows := bench.Seed().Matrix
	if ad.rows == "" {
		return rows, nil
	}
	own, err := bench.LoadRows(ad.rows)
	if err != nil {
		return nil, err
	}
	for _, r := range own {
		if r.Modelled() {
			rows = append(rows, r)
		}
	}
	return rows, nil
}

// addPrices sets the prices of the steps from the file of --prices. It fails for invalid changes and
// negative prices.
func (ad *adviseCommand) addPrices(steps []advise.Advice) error {
	if ad.prices == "" {
		return nil
	}
	prices := map[string]float64{}
	if err := readJSON(ad.prices, &prices); err != nil {
		return err
	}
	for name, price := range prices {
		if _, err := advise.ParseChange(name); err != nil || price < 0 {
			return fault.New(fault.Invalid, "%s: %q: want a change with its price", ad.prices, name).WithHint(`{"nic=25g": 420, "source=ssd": 1900}`)
		}
	}
	for i := range steps {
		steps[i].Price = prices[steps[i].String()]
	}
	return nil
}

// readJSON parses a JSON file of the user into the value at into. An unknown field is an error, because
// it is most likely misspelled.
func readJSON(path string, into any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fault.Wrap(fault.NotFound, err)
	}
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fault.New(fault.Invalid, "read %s: %w", path, err)
	}
	return nil
}

// writeAdvice prints the current limit, the steps and the notes; with verbose also the fitted model.
func writeAdvice(w io.Writer, r advise.Report, verbose bool) {
	fmt.Fprintf(w, "%s: %.1f MiB/s, a copy of %s takes %s%s\n", r.Name, r.MiBs, units.Binary(r.Allocated), copyDuration(r.Allocated, r.MiBs), measuredSuffix(r.Measured))
	limit := r.Layers[0]
	fmt.Fprintf(w, "Limited by the %s, %s: %.0f %% of a change there becomes effective.\n\n", limit.Layer, layerMeans[limit.Layer], 100*limit.Part)
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

// layerMeans describes each layer in a few words.
var layerMeans = map[advise.Layer]string{
	advise.Source:      "medium of the datastore",
	advise.Host:        "clone and NFS client of the ESXi host",
	advise.Wire:        "network link",
	advise.Destination: "medium of the image",
	advise.Commit:      "writes of a sync export that wait for the medium",
}

// copyDuration returns the time to copy bytes at a rate in MiB/s.
func copyDuration(bytes int64, mibs float64) string {
	return units.Duration(time.Duration(float64(bytes) / bench.MiB / mibs * float64(time.Second)))
}

// measuredSuffix returns the measured rate of the setup with its origin; empty without a measurement.
func measuredSuffix(rows []bench.Row) string {
	if len(rows) == 0 {
		return ""
	}
	return fmt.Sprintf(" (measured: %.1f, %s)", rows[0].Rate(), rows[0].Origin)
}

// writeLayers prints how much of a change in each layer becomes effective.
func writeLayers(w io.Writer, layers []advise.Share) {
	t := newTable("LAYER", "ALONE", "EFFECTIVE", "")
	t.alignRight(1, 2)
	for _, l := range layers {
		t.addRow(string(l.Layer), fmt.Sprintf("%.0f MiB/s", l.Alone), fmt.Sprintf("%.0f %%", 100*l.Part), layerMeans[l.Layer])
	}
	t.writeTo(w)
}

// writeSteps prints the steps in their order, and the measurements on which they are based.
func writeSteps(w io.Writer, r advise.Report) {
	if len(r.Steps) == 0 {
		fmt.Fprintln(w, "\nNo measured change improves this setup.")
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
		t.addRow(append([]string{strconv.Itoa(i + 1), s.String(), fmt.Sprintf("%.1f", s.Before), fmt.Sprintf("%.1f", s.After),
			fmt.Sprintf("%+.0f %%", 100*s.Gain()), fmt.Sprintf("%.1f-%.1f", s.Least, s.Most), copyDuration(r.Allocated, s.After)}, priceCells(s)...)...)
	}
	t.writeTo(w)
	fmt.Fprintln(w, "\nBased on these measurements:")
	for i, s := range r.Steps {
		for _, e := range s.Rests {
			fmt.Fprintf(w, "%d  %s\n", i+1, e)
		}
	}
}

// priceCells returns the price of a step and its price per MiB/s; nil without a price or a gain.
func priceCells(s advise.Advice) []string {
	if s.Price == 0 || s.After <= s.Before {
		return nil
	}
	return []string{fmt.Sprintf("%.0f", s.Price), fmt.Sprintf("%.2f", s.Price/(s.After-s.Before))}
}

// writeModel prints the fitted parameters and the error of the model for each row, so that a prediction
// can be recomputed.
func writeModel(w io.Writer, r advise.Report) {
	m := r.Model
	fmt.Fprintln(w, "\nModel: sending = (source^p + host^p + wire^p)^(1/p), rate = 1 / ((sending^q + dest^q)^(1/q) + 16 commits)")
	t := newTable("PARAMETER", "VALUE", "")
	t.alignRight(1)
	for _, k := range []struct {
		name  string
		of    map[string]float64
		scale float64
		unit  string
	}{{"source", m.Source, 1e3, "ms/MiB"}, {"dest", m.Destination, 1e3, "ms/MiB"}, {"commit", m.Commit, 1e3, "ms per write of 64 KiB"}} {
		for _, medium := range slices.Sorted(maps.Keys(k.of)) {
			t.addRow(k.name+" "+medium, fmt.Sprintf("%.3f", k.of[medium]*k.scale), k.unit)
		}
	}
	t.addRow("host", fmt.Sprintf("%.3f", m.Host*1e3), "ms/MiB")
	t.addRow("wire", fmt.Sprintf("%.3f", m.Efficiency), "of the link's bits")
	t.addRow("jumbo", fmt.Sprintf("%.3f", m.Jumbo), "factor of host and wire for an MTU of 9000")
	t.addRow("p", fmt.Sprintf("%.3f", m.P), "1: sequential; infinite: fully overlapped")
	t.addRow("q", fmt.Sprintf("%.3f", m.Q), "the same, for the destination and the rest")
	t.writeTo(w)
	gbits, _ := bench.Gigabits(r.NIC) // valid, as it was parsed before
	fmt.Fprintf(w, "\nOver https, if the disks are faster: %.0f MiB/s with one connection, %.0f with eight (%s).\n\n",
		r.HTTPS.Predict(1, gbits, r.MTU), r.HTTPS.Predict(8, gbits, r.MTU), bench.Seed().HTTPS.Origin)
	rows := newTable("ROW", "MEASURED", "PREDICTED", "OFF", "ORIGIN")
	rows.alignRight(1, 2, 3)
	for _, row := range r.Rows {
		if p, err := m.Predict(row.Setup); err == nil {
			rows.addRow(row.Name(), fmt.Sprintf("%.1f", row.Rate()), fmt.Sprintf("%.1f", p.MiBs), fmt.Sprintf("%+.1f %%", 100*(p.MiBs/row.Rate()-1)), row.Origin)
		}
	}
	rows.writeTo(w)
}

// runLive prints the current limit of a running plan, with remedies.
func (ad *adviseCommand) runLive(ctx context.Context, name string) (err error) {
	c, closeControl, err := ad.fleet.openControl(ctx)
	if err != nil {
		return err
	}
	defer joinClose(&err, closeControl)
	r, err := server.MeasureLoad(ctx, c, name)
	if err != nil {
		return err
	}
	if ad.out.json {
		return ad.out.printJSON(r)
	}
	fmt.Fprintf(ad.out, "Plan %s: %s, %s\n%s\n\n", r.Plan, units.Count(r.Moving, "VM"), units.Rate(r.Rate, time.Second), r.Limit)
	t := newTable("PART", "BUSY", "COMPONENT")
	t.alignRight(1)
	for _, p := range r.Busy.Parts() {
		t.addRow(p.Name, fmt.Sprintf("%.0f %%", 100*p.Busy), p.Means)
	}
	t.writeTo(ad.out)
	fmt.Fprintln(ad.out)
	for _, do := range r.Do {
		fmt.Fprintln(ad.out, "- "+do)
	}
	return nil
}
