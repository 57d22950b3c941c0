package main

import (
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"

	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/units"
)

// textsFlag is a list of texts as a pflag.Value; each occurrence of the flag appends one.
type textsFlag []planfile.Text

// String returns "": the help shows no default.
func (t *textsFlag) String() string { return "" }

// Type returns the type name of pflag for repeatable flags.
func (t *textsFlag) Type() string { return "stringArray" }

// Set appends text. It implements pflag.Value, as the methods below do.
func (t *textsFlag) Set(text string) error {
	*t = append(*t, planfile.Text(text))
	return nil
}

// spot is the value of --spot: the part of each disk that is read from the source a second time. "100M"
// is the first bytes, "100M,16" also sets the number of random MiB, and "0" turns it off.
type spot struct {
	given bool // the flag is set
	migrate.Spot
}

// String returns "": the usage describes the default.
func (s *spot) String() string { return "" }

// Type returns the name of the value in the help.
func (s *spot) Type() string { return "SIZE[,N]" }

// Set parses SIZE[,N].
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

// isRequested reports whether the user requested a second reading.
func (s *spot) isRequested() bool { return s.given && !s.None }

// newSample returns the sample of a disk, with a new random seed.
func (s *spot) newSample() (manifest.Sample, error) {
	chosen := manifest.Sample{First: s.First, Random: s.Random}
	if chosen.Random == 0 {
		chosen.Random = migrate.RandomChunks
	}
	_, err := rand.Read(chosen.Seed[:])
	return chosen, err
}
