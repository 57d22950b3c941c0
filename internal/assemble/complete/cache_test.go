package complete

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

// newTestCache returns a cache with a clock that the test advances. Its requests have no time limit.
func newTestCache(t *testing.T) (c *Cache, now *time.Time) {
	at := time.Unix(1_800_000_000, 0)
	return &Cache{Dir: t.TempDir(), Now: func() time.Time { return at }, After: func(time.Duration) <-chan time.Time { return nil }}, &at
}

func TestExpiredCompletionsAreRequestedAgain(t *testing.T) {
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
			t.Errorf("%s: got %v after %d requests, want %v after %d", step.name, got, requests, step.words, step.requests)
		}
	}
}

// The words of a fleet are fresh for a short time. If the server fails, the old words are used.
func TestFleetCompletionsExpireAfterSeconds(t *testing.T) {
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
			t.Errorf("%+v: got %v after %d requests", step, got, requests)
		}
	}
}

// A request to a host that does not respond is canceled after the time limit.
func TestCompletionRequestTimesOut(t *testing.T) {
	c, now := newTestCache(t)
	passed := make(chan time.Time, 1)
	var timeout time.Duration
	c.After = func(d time.Duration) <-chan time.Time { timeout = d; return passed }
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
	if !slices.Equal(got, []string{"web01"}) || timeout != limit {
		t.Errorf("got words %v, time limit %v", got, timeout)
	}
}

// Plain removes the words that bash would expand.
func TestPlainRemovesShellSyntax(t *testing.T) {
	got := Plain([]string{"web01", "$(reboot)", "a b", "`id`", "-rf", "", "R&D", "esxi://root@esx1:8443", "web01", "Žižkov", "a\nb", "*"})
	if want := []string{"esxi://root@esx1:8443", "web01"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
