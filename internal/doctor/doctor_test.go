package doctor

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// finds is a check that finds one thing.
func finds(code string, s Status, needs ...string) Check {
	return Check{Code: code, Title: "t " + code, Needs: needs, Run: func(context.Context) []Finding {
		return []Finding{{Status: s}}
	}}
}

func codes(found []Finding) string {
	var s []string
	for _, f := range found {
		s = append(s, f.Code)
	}
	return strings.Join(s, " ")
}

func TestChildrenOfWhatFailedAreSilent(t *testing.T) {
	checks := []Check{
		finds("grandchild", Failure, "child"),
		finds("child", Failure, "parent"),
		finds("parent", Failure),
		finds("other", Warning),
		finds("of-other", OK, "other"),
		finds("lost", Unknown),
		finds("of-lost", Failure, "lost"),
		finds("free", OK, "not-among-them"),
	}
	if got, want := codes(Examine(t.Context(), checks, Options{})), "parent other lost of-other free"; got != want {
		t.Errorf("found %q, want %q", got, want)
	}
}

func TestShortLeavesOutWhatIsSlow(t *testing.T) {
	slow := finds("slow", Failure)
	slow.Slow = true
	checks := []Check{slow, finds("quick", OK), finds("of-slow", OK, "slow")}
	if got := codes(Examine(t.Context(), checks, Options{Short: true})); got != "quick of-slow" {
		t.Errorf("short: %q", got)
	}
	if got := codes(Examine(t.Context(), checks, Options{Parallel: 1})); got != "slow quick" {
		t.Errorf("long: %q", got)
	}
}

func TestSevereLeavesOutAdvice(t *testing.T) {
	advice := finds("advice", Advice)
	advice.Advises = true
	if got := codes(Examine(t.Context(), []Check{advice, finds("warning", Warning)}, Options{Severe: true})); got != "warning" {
		t.Errorf("found %q", got)
	}
}

func TestFindingsCarryTheirCheck(t *testing.T) {
	var told []string
	found := Examine(t.Context(), []Check{finds("a", Advice)}, Options{Report: func(f Finding) { told = append(told, f.Code) }})
	if len(found) != 1 || found[0].Title != "t a" || fmt.Sprint(told) != "[a]" || Worst(found) != Advice || Worst(nil) != OK {
		t.Errorf("found %+v, told %v", found, told)
	}
}

func TestBadChecksAreBroken(t *testing.T) {
	for name, checks := range map[string][]Check{
		"is there twice":  {finds("a", OK), finds("a", OK)},
		"need each other": {finds("a", OK, "b"), finds("b", OK, "a")},
	} {
		func() {
			defer func() {
				if said := fmt.Sprint(recover()); !strings.Contains(said, name) {
					t.Errorf("%s: panic %q", name, said)
				}
			}()
			Examine(t.Context(), checks, Options{})
		}()
	}
}

func TestMergedGroupsLookAtAll(t *testing.T) {
	of := func(thing string) []Check {
		return []Check{
			{Code: "a", Run: func(context.Context) []Finding { return []Finding{{On: thing}} }},
			{Code: "b", Needs: []string{"a"}, Run: func(context.Context) []Finding { return []Finding{{On: thing, Status: Advice}} }},
		}
	}
	found := Examine(t.Context(), Merge(of("x"), of("y")), Options{})
	var got []string
	for _, f := range found {
		got = append(got, f.Code+" "+f.On)
	}
	if want := "b x, b y, a x, a y"; strings.Join(got, ", ") != want {
		t.Errorf("found %v, want %s", got, want)
	}
}

// A folder that nothing can be written to says nothing of the one beside it, and a host that has no
// route nothing of the next.
func TestWhatFailsOfOneThingSilencesNothingOfAnother(t *testing.T) {
	of := func(thing string, parent Status) []Check {
		saw := func(s Status) func(context.Context) []Finding {
			return func(context.Context) []Finding { return []Finding{{On: thing, Status: s}} }
		}
		return []Check{{Code: "grandchild", Needs: []string{"child"}, Run: saw(Advice)}, {Code: "child", Needs: []string{"parent"}, Run: saw(Warning)}, {Code: "parent", Run: saw(parent)}}
	}
	var got []string
	for _, f := range Examine(t.Context(), Merge(of("x", Failure), of("y", OK), of("z", Unknown)), Options{}) {
		got = append(got, f.Code+" "+f.On)
	}
	if want := "parent x, child y, grandchild y, parent z, parent y"; strings.Join(got, ", ") != want {
		t.Errorf("found %v, want %s", got, want)
	}
}
