package main

import (
	"fmt"
	"strconv"
	"strings"
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
	s.first, err = parseSize(first)
	return err
}

func (s *spot) asked() bool { return s.first > 0 || s.ranges > 0 }
