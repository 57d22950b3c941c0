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

// counter answers with how often it was asked; /no with a refusal, /cut with less than it says.
func counter(t *testing.T) (url string, asked *int) {
	t.Helper()
	asked = new(int)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*asked++
		switch r.URL.Path {
		case "/no":
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/cut":
			w.Header().Set("Content-Length", "100")
		}
		fmt.Fprint(w, *asked)
	}))
	t.Cleanup(s.Close)
	return s.URL, asked
}

func ask(t *testing.T, ctx context.Context, c *http.Client, method, url string) (string, error) {
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

func TestAnswersAreRecalled(t *testing.T) {
	url, asked := counter(t)
	one, other := &http.Client{Transport: &Transport{http.DefaultTransport}}, &http.Client{Transport: &Transport{http.DefaultTransport}}
	ctx, end := Begin(t.Context())
	defer end()
	for i, q := range []struct {
		ctx          context.Context
		by           *http.Client
		method, path string
		want         string
	}{
		{ctx, one, "GET", "/a", "1"}, {ctx, one, "GET", "/a", "1"}, {ctx, one, "GET", "/a?b=c", "2"}, // another question
		{ctx, other, "GET", "/a", "3"},       // another login
		{ctx, one, "POST", "/a", "4"},        // it changes something
		{ctx, one, "GET", "/no", "5"},        // what failed
		{ctx, one, "GET", "/no", "6"},        // is asked again
		{t.Context(), one, "GET", "/a", "7"}, // nobody began
		{ctx, one, "GET", "/a", "1"},
	} {
		if got, err := ask(t, q.ctx, q.by, q.method, url+q.path); got != q.want || err != nil {
			t.Errorf("%d: %s %s: %q, want %q, %v", i, q.method, q.path, got, q.want, err)
		}
	}
	for range 2 {
		before := *asked
		if _, err := ask(t, ctx, one, "GET", url+"/cut"); !errors.Is(err, io.ErrUnexpectedEOF) || *asked != before+1 {
			t.Errorf("an answer that was cut: %v, asked %d times", err, *asked-before)
		}
	}
}

func TestKeep(t *testing.T) {
	opened, shut := 0, 0
	open := func(context.Context) (int, error) { opened++; return opened, nil }
	take := func(ctx context.Context, name string) int {
		n, release, err := Keep(ctx, name, open, func(int) { shut++ })
		if err != nil {
			t.Fatal(err)
		}
		release()
		return n
	}
	for want := range 2 {
		if n := take(t.Context(), "a"); n != want+1 || shut != n {
			t.Errorf("nobody began: %d opened, %d shut", opened, shut)
		}
	}
	ctx, end := Begin(t.Context())
	for i, key := range []string{"a", "a", "b"} {
		if n, want := take(ctx, key), []int{3, 3, 4}[i]; n != want || shut != 2 {
			t.Errorf("%s: %d of %d opened, %d shut", key, n, opened, shut)
		}
	}
	_, _, err := Keep(ctx, "c", func(context.Context) (int, error) { return 0, io.EOF }, func(int) { t.Error("what was not opened is shut") })
	if !errors.Is(err, io.EOF) || take(ctx, "c") != 5 { // what failed is tried again
		t.Errorf("%v, %d opened", err, opened)
	}
	end()
	if end(); shut != 5 {
		t.Errorf("in the end %d are shut", shut)
	}
}
