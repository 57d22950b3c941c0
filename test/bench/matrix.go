package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	rows "github.com/decamp/decamp/internal/bench"
	"github.com/decamp/decamp/internal/bench/report"
	"github.com/decamp/decamp/internal/lab"
)

// The published machines, eight times slower, so that two cores carry them beside other
// work: what counts is which layer is how much faster than which.
const (
	matrixDisk = 40 << 20 // bytes, all of it data
	matrixSync = 2 << 20  // bytes of the disk that is written to a server with sync
	serverHas  = 4 << 20  // bytes that the server holds and its storage has not taken
)

var (
	sourceRate = map[string]lab.Bytes{"hdd": 16 << 20, "ssd": 45 << 20}                                 // bytes/s
	landRate   = map[string]int64{"hdd": 22 << 20, "nvme": 100 << 20}                                   // bytes/s
	landCommit = map[string]time.Duration{"hdd": 200 * time.Millisecond, "nvme": 32 * time.Millisecond} // commit time of one WRITE, on a server with sync
	wireRate   = map[string]int64{"1g": 115e6, "25g": 2875e6}                                           // bits/s
	// variables in the published order of their effects
	matrixOrder = []rows.Variable{rows.ByExport, rows.ByNIC, rows.BySource, rows.ByDestination, rows.ByMTU}
)

const (
	matrixVM     = "bench"      // VM for setups with async
	matrixSyncVM = "bench-sync" // VM for setups with sync

	// matrixRounds is the number of measurements of a row, in turn with all others. The
	// fastest counts, because other work of the machine can only slow down a throttled
	// copy.
	matrixRounds = 3
)

// matrixFigures measures the setups of the published matrix between an emulated host
// and a server of decamp. It emulates the rate and MTU of the link, the rate of
// storage, and a sync export. It compares the effect of each variable with the
// published one, not the rates themselves.
func matrixFigures(ctx context.Context, b *bench) error {
	began := time.Now()
	m, err := newMatrix(ctx, b)
	if err != nil {
		return err
	}
	defer m.close()
	published := rows.Seed().Matrix
	measured, err := m.measureAll(ctx, published)
	if err != nil {
		return err
	}
	if err := m.saveRows(measured); err != nil {
		return err
	}
	addShape(b, measured, published)
	b.atMost(360, Row{Figure: "matrix: time of 19 rows", Value: time.Since(began).Seconds(), Unit: "s"})
	return nil
}

// measureAll measures the setups of rows. Rows with a sync export are measured once,
// because a timer determines their rate.
func (m *matrix) measureAll(ctx context.Context, like []rows.Row) ([]rows.Row, error) {
	best := make([]rows.Row, len(like))
	for round := range matrixRounds {
		for i, p := range like {
			if p.Export == rows.Sync && round > 0 {
				continue
			}
			row, err := m.measureSetup(ctx, p.Setup)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", p.Name(), err)
			}
			fmt.Fprintf(os.Stderr, "  round %d, %2d of %d  %s: %.1f MiB/s, published %.1f\n", round+1, i+1, len(like), row.Name(), row.Rate(), p.Rate())
			// The row with the shortest time counts.
			if best[i].Seconds == 0 || row.Seconds < best[i].Seconds {
				best[i] = row
			}
		}
	}
	return best, nil
}

// addShape adds the rows that compare the effects and the order of rates with the
// published ones.
func addShape(b *bench, measured, published []rows.Row) {
	ours, theirs := variableEffects(measured), variableEffects(published)
	var inOrder float64
	for i, v := range matrixOrder {
		b.addRow(Row{Figure: "matrix: what " + string(v) + " does alone", Value: ours[v], Unit: "x", Note: "geometric mean of its pairs; fastest of 3",
			Peers: []Peer{{Name: "published", Value: theirs[v]}}})
		// Each variable must have a smaller effect than the one before.
		if i > 0 && ours[matrixOrder[i-1]] > ours[v] {
			inOrder++
		}
	}
	b.atLeast(float64(len(matrixOrder)-1), Row{Figure: "matrix: effects that are in the published order", Value: inOrder, Unit: "of 4",
		Note: "sync, NIC, source, destination, MTU"})
	b.atLeast(1.01, Row{Figure: "matrix: what the least of the effects does", Value: ours[rows.ByMTU], Unit: "x", Note: "large frames are of use"})
	b.atLeast(10, Row{Figure: "matrix: what async is to sync", Value: ours[rows.ByExport], Unit: "x", Peers: []Peer{{Name: "published", Value: theirs[rows.ByExport]}}})
	b.atLeast(0.85, Row{Figure: "matrix: rank correlation with the published rates", Value: rankCorrelation(measured, published), Unit: "Spearman", Note: "19 rows; those within 2 % share a rank"})
}

// variableEffects returns, by variable, the geometric mean of the factors of all pairs.
func variableEffects(list []rows.Row) map[rows.Variable]float64 {
	all := map[rows.Variable]float64{}
	for _, e := range rows.Effects(list) {
		var sum float64
		for _, p := range e.Pairs {
			sum += math.Log(p.Factor())
		}
		all[e.Variable] = math.Exp(sum / float64(len(e.Pairs)))
	}
	return all
}

// rankCorrelation returns Spearman's rank correlation of two lists of rows with the
// same setups.
func rankCorrelation(a, b []rows.Row) float64 {
	x, y := rankRates(a), rankRates(b)
	var sum float64
	for i := range x {
		sum += (x[i] - y[i]) * (x[i] - y[i])
	}
	n := float64(len(x))
	return 1 - 6*sum/(n*(n*n-1))
}

// rankRates returns the ranks of the rates. Rates within 2 % share a rank.
func rankRates(list []rows.Row) []float64 {
	const alike = 1.02
	all := make([]float64, len(list))
	for i, r := range list {
		for k, s := range list {
			switch f := s.Rate() / r.Rate(); {
			case k == i:
			case f < 1/alike:
				all[i]++
			case f < alike:
				all[i] += 0.5
			}
		}
	}
	return all
}

// saveRows writes the rows, and a page that compares them with the published ones.
func (m *matrix) saveRows(measured []rows.Row) error {
	dir := filepath.Dir(m.b.dir)
	log, err := os.Create(filepath.Join(dir, "matrix.jsonl"))
	if err != nil {
		return err
	}
	enc := json.NewEncoder(log)
	for _, r := range measured {
		err = errors.Join(err, enc.Encode(r))
	}
	page, err2 := os.Create(filepath.Join(dir, "matrix.html"))
	if err2 != nil {
		return errors.Join(err, err2, log.Close())
	}
	err2 = report.WriteHTML(page, report.New(report.NewSet("lab", slices.Clone(measured)), report.Published()))
	return errors.Join(err, err2, log.Close(), page.Close())
}
