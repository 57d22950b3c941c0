package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/units"
)

// textsFlag is a list of texts as a pflag value; each flag adds one.
type textsFlag []planfile.Text

func (t *textsFlag) String() string { return "" }

func (t *textsFlag) Type() string { return "stringArray" }

// Set is part of pflag.Value.
func (t *textsFlag) Set(text string) error {
	*t = append(*t, planfile.Text(text))
	return nil
}

// tmpfsFlag is tmpfs:SIZE as a pflag value, in bytes.
type tmpfsFlag int64

func (f *tmpfsFlag) String() string {
	if *f == 0 {
		return ""
	}
	return "tmpfs:" + (*sizeFlag)(f).String()
}

func (f *tmpfsFlag) Type() string { return "tmpfs:SIZE" }

// Set reads tmpfs:SIZE.
func (f *tmpfsFlag) Set(s string) error {
	digits, ok := strings.CutPrefix(s, "tmpfs:")
	n, err := units.ParseSize(digits)
	switch {
	case !ok:
		return errors.New("want tmpfs:SIZE, such as tmpfs:16G")
	case err == nil && n == 0:
		return errors.New("want a size above 0, such as tmpfs:16G")
	}
	*f = tmpfsFlag(n)
	return err
}

// spot is the value of --spot: "100M" or "100M,16", or "0" for none: the part of each disk that is read
// from the source a second time.
type spot struct {
	given bool
	migrate.Spot
}

func (s *spot) String() string { return "" }

func (s *spot) Type() string { return "SIZE[,N]" }

// Set is part of pflag.Value.
func (s *spot) Set(text string) (err error) {
	first, random, more := strings.Cut(text, ",")
	next := spot{given: true}
	if next.First, err = units.ParseSize(first); err != nil {
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

// isRequested reports whether the user asked for a second reading.
func (s *spot) isRequested() bool { return s.given && !s.None }

// newSample returns what --spot chooses of a disk.
func (s *spot) newSample() (manifest.Sample, error) {
	chosen := manifest.Sample{First: s.First, Random: s.Random}
	if chosen.Random == 0 {
		chosen.Random = migrate.RandomChunks
	}
	_, err := rand.Read(chosen.Seed[:])
	return chosen, err
}

// sizeFlag is a size as a pflag value.
type sizeFlag int64

// String returns it in the largest unit that is whole.
func (f *sizeFlag) String() string {
	if *f == 0 {
		return ""
	}
	return units.FormatSize(int64(*f))
}

func (f *sizeFlag) Type() string { return "SIZE" }

// Set reads what units.ParseSize reads.
func (f *sizeFlag) Set(s string) error {
	n, err := units.ParseSize(s)
	*f = sizeFlag(n)
	return err
}
