package complete

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

// newTestCache returns a cache whose clock the test moves, and whose requests have all the time they need.
func newTestCache(t *testing.T) (c *Cache, now *time.Time) {
	at := time.Unix(1_800_000_000, 0)
	return &Cache{Dir: t.TempDir(), Now: func() time.Time { return at }, After: func(time.Duration) <-chan time.Time { return nil }}, &at
}

func TestWordsAreRequestedWhenTheyAreOld(t *testing.T) {
	c, now := newTestCache(t)
	requests, failed := 0, error(nil)
	words := func() []string {
		return c.Words(t.Context(), "vms esxi://root@esx1", func(context.Context) ([]string, error) {
			requests++
			return []string{"web02", "web01"}, failed
		})
	}
	for _, step := range []struct {
		name     string
		wait     time.Duration
		failed   error
		requests int
		words    []string
	}{
		{"the first", 0, nil, 1, []string{"web01", "web02"}},
		{"fresh", freshTime - time.Second, nil, 1, []string{"web01", "web02"}},
		{"old", time.Second, nil, 2, []string{"web01", "web02"}},
		{"old, and the host fails", freshTime, errors.New("away"), 3, []string{"web01", "web02"}},
		{"not tried again at once", retryTime - time.Second, errors.New("away"), 3, []string{"web01", "web02"}},
		{"too old", staleTime, errors.New("away"), 4, nil},
	} {
		*now, failed = now.Add(step.wait), step.failed
		if got := words(); !slices.Equal(got, step.words) || requests != step.requests {
			t.Errorf("%s: %v after %d requests, want %v after %d", step.name, got, requests, step.words, step.requests)
		}
	}
}

// Words of a fleet are requested again soon, and are kept for a server that fails.
func TestWordsOfAFleetAreFreshForSeconds(t *testing.T) {
	c, now := newTestCache(t)
	requests, failed := 0, error(nil)
	for _, step := range []struct {
		wait     time.Duration
		failed   error
		requests int
	}{{0, nil, 1}, {fleetTime - time.Second, nil, 1}, {time.Second, nil, 2}, {retryTime, errors.New("away"), 3}, {retryTime - time.Second, nil, 3}} {
		*now, failed = now.Add(step.wait), step.failed
		got := c.FleetWords(t.Context(), "https://h:8470 ", func(context.Context) ([]string, error) {
			requests++
			return []string{"wave-1"}, failed
		})
		if !slices.Equal(got, []string{"wave-1"}) || requests != step.requests {
			t.Errorf("%+v: %v after %d requests", step, got, requests)
		}
	}
}

// A host that does not respond costs the limit, and no more.
func TestWordsDoNotWaitForTheHost(t *testing.T) {
	c, now := newTestCache(t)
	passed := make(chan time.Time, 1)
	var asked time.Duration
	c.After = func(d time.Duration) <-chan time.Time { asked = d; return passed }
	c.Store("vms", []string{"web01"})
	*now = now.Add(freshTime)
	ended := make(chan struct{})
	passed <- *now
	got := c.Words(t.Context(), "vms", func(ctx context.Context) ([]string, error) {
		defer close(ended)
		<-ctx.Done() // the request is canceled
		return nil, ctx.Err()
	})
	<-ended
	if !slices.Equal(got, []string{"web01"}) || asked != limit {
		t.Errorf("words %v, limit %v", got, asked)
	}
}

// Words are those that bash does not expand.
func TestPlainWordsAreNotExpanded(t *testing.T) {
	got := Plain([]string{"web01", "$(reboot)", "a b", "`id`", "-rf", "", "R&D", "esxi://root@esx1:8443", "web01", "Žižkov", "a\nb", "*"})
	if want := []string{"esxi://root@esx1:8443", "web01"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
