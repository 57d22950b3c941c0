package doctor

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// newCheck returns a check with one finding of the status.
func newCheck(code string, s Status, needs ...string) Check {
	return Check{Code: code, Title: "t " + code, Needs: needs, Run: func(context.Context) []Finding {
		return []Finding{{Status: s}}
	}}
}

func findingCodes(found []Finding) string {
	var s []string
	for _, f := range found {
		s = append(s, f.Code)
	}
	return strings.Join(s, " ")
}

func TestDependentsOfFailedChecksAreSkipped(t *testing.T) {
	checks := []Check{
		newCheck("grandchild", Failure, "child"),
		newCheck("child", Failure, "parent"),
		newCheck("parent", Failure),
		newCheck("other", Warning),
		newCheck("of-other", OK, "other"),
		newCheck("lost", Unknown),
		newCheck("of-lost", Failure, "lost"),
		newCheck("free", OK, "not-among-them"),
	}
	if got, want := findingCodes(Examine(t.Context(), checks, Options{})), "parent other lost of-other free"; got != want {
		t.Errorf("got findings %q, want %q", got, want)
	}
}

func TestShortSkipsSlowChecks(t *testing.T) {
	slow := newCheck("slow", Failure)
	slow.Slow = true
	checks := []Check{slow, newCheck("quick", OK), newCheck("of-slow", OK, "slow")}
	if got := findingCodes(Examine(t.Context(), checks, Options{Short: true})); got != "quick of-slow" {
		t.Errorf("short examination: got findings %q", got)
	}
	if got := findingCodes(Examine(t.Context(), checks, Options{Parallel: 1})); got != "slow quick" {
		t.Errorf("full examination: got findings %q", got)
	}
}

func TestSevereSkipsAdvice(t *testing.T) {
	advice := newCheck("advice", Advice)
	advice.Advises = true
	if got := findingCodes(Examine(t.Context(), []Check{advice, newCheck("warning", Warning)}, Options{Severe: true})); got != "warning" {
		t.Errorf("got findings %q, want warning", got)
	}
}

func TestFindingsHaveCodeAndTitle(t *testing.T) {
	var reported []string
	found := Examine(t.Context(), []Check{newCheck("a", Advice)}, Options{Report: func(f Finding) { reported = append(reported, f.Code) }})
	if len(found) != 1 || found[0].Title != "t a" || fmt.Sprint(reported) != "[a]" || Worst(found) != Advice || Worst(nil) != OK {
		t.Errorf("got findings %+v, reported %v", found, reported)
	}
}

func TestInvalidChecksPanic(t *testing.T) {
	for name, checks := range map[string][]Check{
		"is there twice":  {newCheck("a", OK), newCheck("a", OK)},
		"need each other": {newCheck("a", OK, "b"), newCheck("b", OK, "a")},
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, name) {
					t.Errorf("%s: got panic %q", name, got)
				}
			}()
			Examine(t.Context(), checks, Options{})
		}()
	}
}

func TestMergedGroupsExamineAllObjects(t *testing.T) {
	newChecks := func(object string) []Check {
		return []Check{
			{Code: "a", Run: func(context.Context) []Finding { return []Finding{{On: object}} }},
			{Code: "b", Needs: []string{"a"}, Run: func(context.Context) []Finding { return []Finding{{On: object, Status: Advice}} }},
		}
	}
	found := Examine(t.Context(), Merge(newChecks("x"), newChecks("y")), Options{})
	var got []string
	for _, f := range found {
		got = append(got, f.Code+" "+f.On)
	}
	if want := "b x, b y, a x, a y"; strings.Join(got, ", ") != want {
		t.Errorf("got findings %v, want %s", got, want)
	}
}

// A failed check of one object does not skip the dependent checks of another object.
func TestFailureSkipsOnlyChecksOfItsObject(t *testing.T) {
	newChecks := func(object string, parent Status) []Check {
		run := func(s Status) func(context.Context) []Finding {
			return func(context.Context) []Finding { return []Finding{{On: object, Status: s}} }
		}
		return []Check{{Code: "grandchild", Needs: []string{"child"}, Run: run(Advice)}, {Code: "child", Needs: []string{"parent"}, Run: run(Warning)}, {Code: "parent", Run: run(parent)}}
	}
	var got []string
	for _, f := range Examine(t.Context(), Merge(newChecks("x", Failure), newChecks("y", OK), newChecks("z", Unknown)), Options{}) {
		got = append(got, f.Code+" "+f.On)
	}
	if want := "parent x, child y, grandchild y, parent z, parent y"; strings.Join(got, ", ") != want {
		t.Errorf("got findings %v, want %s", got, want)
	}
}
