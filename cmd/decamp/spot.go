package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/dir"
	"github.com/decamp/decamp/internal/targets/dir/verify"
	"github.com/decamp/decamp/internal/unit"
)

// spot is the value of --spot: "100M" or "100M,16", or "0" for nothing. It says how much of each disk
// is read from the source a second time.
type spot struct {
	given bool
	migrate.Spot
}

func (s *spot) String() string { return "" }
func (s *spot) Type() string   { return "SIZE[,N]" }

// Set is part of pflag.Value.
func (s *spot) Set(text string) (err error) {
	first, random, more := strings.Cut(text, ",")
	next := spot{given: true}
	if next.First, err = unit.ParseSize(first); err != nil {
		return err
	}
	if more {
		if next.Random, err = strconv.Atoi(random); err != nil || next.Random < 1 {
			return fmt.Errorf("%q is not a number of random chunks: want 1 or more", random)
		}
	}
	next.None = next.First == 0 && !more
	*s = next
	return nil
}

// asked reports whether the user asked for a second reading.
func (s *spot) asked() bool { return s.given && !s.None }

// sample returns what --spot chooses of a disk.
func (s *spot) sample() (manifest.Sample, error) {
	chosen := manifest.Sample{First: s.First, Random: s.Random}
	if chosen.Random == 0 {
		chosen.Random = migrate.RandomChunks
	}
	_, err := rand.Read(chosen.Seed[:])
	return chosen, err
}

// spotCheck compares samples of the source with the manifests of the images.
func (a *app) spotCheck(ctx context.Context, p *dir.Published, o verifyOptions, found []verify.Image) (err error) {
	from, err := a.OpenOrigin(ctx, o.source, o.Login, p.Record.Source.Ref)
	if err != nil {
		return err
	}
	defer closing(&err, from.Close)
	for i, img := range p.Images() {
		report, err := spotOne(ctx, from, img, o.spot)
		if err != nil {
			return fmt.Errorf("compare with the source: %w", err)
		}
		found[i].Reread = &report
	}
	return nil
}

func spotOne(ctx context.Context, from *assemble.Origin, img targets.Image, s spot) (report manifest.Reread, err error) {
	sample, err := s.sample()
	if err != nil {
		return report, err
	}
	m, err := manifest.Load(img.Manifest)
	if err != nil {
		return report, err
	}
	defer closing(&err, m.Close)
	source, err := from.Disk(ctx, img.Key)
	if err != nil {
		return report, err
	}
	defer closing(&err, source.Close)
	report, err = sample.Compare(ctx, source, m, nil)
	report.By = "https"
	return report, err
}
