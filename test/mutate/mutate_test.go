package main

import (
	"slices"
	"strings"
	"testing"
)

// Each operator that the compiler does not evaluate becomes a mutant. The report lists the mutants that no test detects.
func TestMutantsOfAPackage(t *testing.T) {
	var out strings.Builder
	if err := measurePackage(t.Context(), options{pkg: "./testdata/toy", files: []string{"toy.go"}, short: true, workers: 2}, &out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	var survived, kinds []string
	for _, line := range lines[:len(lines)-1] {
		place, rest, _ := strings.Cut(line, ": ")
		kind, result, _ := strings.Cut(rest, ": ")
		kinds = append(kinds, kind)
		if !strings.HasPrefix(result, "killed by TestAll") {
			survived = append(survived, place+": "+kind+": "+result)
		}
	}
	slices.Sort(kinds)
	want := []string{
		"!= to ==", "% to *", "&& to ||", "&& to ||", "* to /", "+ to -", "++ to --", "++ to --",
		"- to +", "- to +", "/ to *", "< to <=", "< to >=", "== to !=", "== to !=", "> to <=", "> to >=", "|| to &&",
	}
	if !slices.Equal(kinds, want) {
		t.Errorf("mutants\n%q, want\n%q", kinds, want)
	}
	// The mutant at 11:7 is equivalent: clamp(3, 3) is 3 with it, too.
	wantSurvived := []string{"toy.go:11:7: > to >=: survived", "toy.go:46:38: + to -: not reached"}
	if !slices.Equal(survived, wantSurvived) {
		t.Errorf("survived\n%q, want\n%q", survived, wantSurvived)
	}
	if last, want := lines[len(lines)-1], "./testdata/toy toy.go: 18 mutants, 2 survived: kill rate 88.9 %"; last != want {
		t.Errorf("%q, want %q", last, want)
	}
}

func TestUnusableArguments(t *testing.T) {
	for _, o := range []options{
		{pkg: "./testdata/none"},
		{pkg: "./testdata/toy", files: []string{"none.go"}},
		{pkg: "./testdata/toy", skip: "("},
	} {
		if err := measurePackage(t.Context(), o, &strings.Builder{}); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
}
