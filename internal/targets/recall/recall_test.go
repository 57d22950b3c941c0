package recall

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// countingServer answers with the number of requests so far. /no returns an error; the answer of /cut is shorter than
// its Content-Length.
func countingServer(t *testing.T) (url string, requests *int) {
	t.Helper()
	requests = new(int)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*requests++
		switch r.URL.Path {
		case "/no":
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/cut":
			w.Header().Set("Content-Length", "100")
		}
		fmt.Fprint(w, *requests)
	}))
	t.Cleanup(s.Close)
	return s.URL, requests
}

func sendRequest(t *testing.T, ctx context.Context, c *http.Client, method, url string) (string, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return string(text), err
}

func TestTransport(t *testing.T) {
	url, requests := countingServer(t)
	one, other := &http.Client{Transport: &Transport{http.DefaultTransport}}, &http.Client{Transport: &Transport{http.DefaultTransport}}
	ctx, end := Begin(t.Context())
	defer end()
	for i, q := range []struct {
		ctx          context.Context
		by           *http.Client
		method, path string
		want         string
	}{
		{ctx, one, "GET", "/a", "1"}, {ctx, one, "GET", "/a", "1"}, {ctx, one, "GET", "/a?b=c", "2"}, // another query
		{ctx, other, "GET", "/a", "3"},       // another client
		{ctx, one, "POST", "/a", "4"},        // not a read
		{ctx, one, "GET", "/no", "5"},        // an error
		{ctx, one, "GET", "/no", "6"},        // is not remembered
		{t.Context(), one, "GET", "/a", "7"}, // a context without Begin
		{ctx, one, "GET", "/a", "1"},
	} {
		if got, err := sendRequest(t, q.ctx, q.by, q.method, url+q.path); got != q.want || err != nil {
			t.Errorf("request %d, %s %s: got %q, want %q, %v", i, q.method, q.path, got, q.want, err)
		}
	}
	for range 2 {
		before := *requests
		if _, err := sendRequest(t, ctx, one, "GET", url+"/cut"); !errors.Is(err, io.ErrUnexpectedEOF) || *requests != before+1 {
			t.Errorf("short answer: got %v after %d requests", err, *requests-before)
		}
	}
}

func TestKeep(t *testing.T) {
	opens, closes := 0, 0
	open := func(context.Context) (int, error) { opens++; return opens, nil }
	use := func(ctx context.Context, name string) int {
		n, release, err := Keep(ctx, name, open, func(int) { closes++ })
		if err != nil {
			t.Fatal(err)
		}
		release()
		return n
	}
	for want := range 2 {
		if n := use(t.Context(), "a"); n != want+1 || closes != n {
			t.Errorf("without Begin: %d opened, %d closed", opens, closes)
		}
	}
	ctx, end := Begin(t.Context())
	for i, key := range []string{"a", "a", "b"} {
		if n, want := use(ctx, key), []int{3, 3, 4}[i]; n != want || closes != 2 {
			t.Errorf("%s: got %d, %d opened, %d closed", key, n, opens, closes)
		}
	}
	_, _, err := Keep(ctx, "c", func(context.Context) (int, error) { return 0, io.EOF }, func(int) { t.Error("close is called after a failed open") })
	if !errors.Is(err, io.EOF) || use(ctx, "c") != 5 { // a failed open is repeated
		t.Errorf("after a failed open: %v, %d opened", err, opens)
	}
	end()
	if end(); closes != 5 {
		t.Errorf("got %d closed at the end, want 5", closes)
	}
}
