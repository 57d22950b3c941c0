package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/target"
	"github.com/decamp/decamp/internal/unit"
)

// spot says what a spot check re-reads of each disk: the first bytes, and random ranges
// of 1 MiB. It is a pflag value: "100M" or "100M,16".
type spot struct {
	first  int64
	ranges int
}

// spotRanges is how many ranges are read where only the first bytes were named.
const spotRanges = 16

func (s *spot) String() string { return "" }
func (s *spot) Type() string   { return "SIZE[,N]" }

func (s *spot) Set(text string) (err error) {
	first, ranges, more := strings.Cut(text, ",")
	s.ranges = spotRanges
	if more {
		if s.ranges, err = strconv.Atoi(ranges); err != nil || s.ranges < 0 {
			return fmt.Errorf("%q is no number of ranges", ranges)
		}
	}
	s.first, err = unit.ParseSize(first)
	return err
}

func (s *spot) asked() bool { return s.first > 0 || s.ranges > 0 }

// spotCheck compares samples of the images with the source.
func (a *app) spotCheck(ctx context.Context, p *published, o verifyOptions, found []verified) (err error) {
	from, err := a.openOrigin(ctx, o.source, o.login, p.record.Source.Ref)
	if err != nil {
		return err
	}
	defer closing(&err, from.Close)
	for i, img := range p.images() {
		report, err := spotOne(ctx, p, from, img, o.spot)
		if err != nil {
			return fmt.Errorf("disk %d: %w", img.Key, err)
		}
		found[i].Spot = &report
	}
	return nil
}

func spotOne(ctx context.Context, p *published, from *origin, img target.Image, s spot) (_ manifest.SpotReport, err error) {
	var ends [2]disk.Source
	if ends[0], err = from.disk(ctx, img.Key); err != nil {
		return manifest.SpotReport{}, err
	}
	defer closing(&err, ends[0].Close)
	if ends[1], err = p.target.Read(ctx, img); err != nil {
		return manifest.SpotReport{}, err
	}
	defer closing(&err, ends[1].Close)
	return manifest.Spot(ctx, ends[0], ends[1], manifest.SpotOptions{First: s.first, Ranges: s.ranges, Seed: rand.Uint64()})
}
