package notify

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/decamp/decamp/internal/planfile"
)

// The library of Standard Webhooks accepts a request, and refuses a changed one.
func TestStandardWebhooksVerifiesRequests(t *testing.T) {
	h := newHook(t)
	r := loadReceivers(t, "version: 1\nreceivers: {ops: {webhook: "+h.config(t)+"}}")
	for _, kind := range planfile.EventKinds {
		must(t, r.Test(t.Context(), "ops", Sample(kind)))
		req, body := h.next()
		verifier, err := standardwebhooks.NewWebhook(whsec)
		must(t, err)
		if err := verifier.Verify([]byte(body), req.Header); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		if err := verifier.Verify([]byte(strings.Replace(body, "sample", "simple", 1)), req.Header); err == nil {
			t.Errorf("%s: a changed body is accepted", kind)
		}
		var e Event
		must(t, json.Unmarshal([]byte(body), &e))
		if e.Kind != kind || e.ID != req.Header.Get("Webhook-Id") || e.Subject == "" || e.Text == "" || req.Header.Get("Content-Type") != "application/json" || req.URL.Path != "/hook" {
			t.Errorf("received %+v with %v", e, req.Header)
		}
	}
}

func TestFailuresOfWebhooksAreErrorsWithoutTheURL(t *testing.T) {
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // otherwise the server does not notice that the client has disconnected
		<-r.Context().Done()
	}))
	defer slow.Close()
	failing, redirecting, strange := newHook(t, 503), newHook(t, 307), newHook(t)
	for name, c := range map[string]struct{ url, ca, want string }{
		"closed":      {closed.URL, "", "refused"},
		"slow":        {slow.URL, "", "deadline exceeded"},
		"failing":     {failing.URL, failing.ca, "HTTP 503"},
		"redirecting": {redirecting.URL, redirecting.ca, "redirects are not followed"},
		"strange":     {strange.URL, "", "certificate"},
	} {
		secret := writeFile(t, "url", c.url+"/s3cr3t", 0o600)
		config := fmt.Sprintf("{urlFile: %q}", secret)
		if c.ca != "" {
			config = fmt.Sprintf("{urlFile: %q, caFile: %q}", secret, c.ca)
		}
		ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
		if name == "slow" {
			ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
		}
		err := loadReceivers(t, "version: 1\nreceivers: {ops: {webhook: "+config+"}}").Test(ctx, "ops", Sample(planfile.VMFailed))
		cancel()
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	if len(redirecting.received) > 0 {
		t.Error("a redirect was followed")
	}
}

func TestBodiesOfWebhooksAreTemplates(t *testing.T) {
	h := newHook(t)
	r := loadReceivers(t, `version: 1
receivers:
  chat:
    webhook: `+h.config(t)+`
    subject: "{{.Kind}}: {{.Plan}}"
`)
	_, body, err := r.Preview("chat", Sample(planfile.PlanDone))
	must(t, err)
	if !strings.Contains(string(body), `"subject":"plan-done: sample-plan"`) {
		t.Errorf("body %s", body)
	}
	config := strings.TrimSuffix(h.config(t), "}") + `, body: '{"text": {{json .Subject}}, "icon": "ship"}'}`
	r = loadReceivers(t, "version: 1\nreceivers: {chat: {webhook: "+config+", subject: 'plan \"{{.Plan}}\"'}}")
	must(t, r.Test(t.Context(), "chat", Sample(planfile.PlanFailed)))
	if _, body := h.next(); body != `{"text": "plan \"sample-plan\"", "icon": "ship"}` {
		t.Errorf("received %s", body)
	}
}

// The time limit of a delivery also ends the wait for a connection that the receiver never accepts.
func TestDeadlinesIncludeTheConnection(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	secret := writeFile(t, "url", "https://"+l.Addr().String(), 0o600)
	if err := loadReceivers(t, fmt.Sprintf("version: 1\nreceivers: {ops: {webhook: {urlFile: %q}}}", secret)).Test(ctx, "ops", Sample(planfile.VMFailed)); err == nil {
		t.Error("the delivery succeeded without a response")
	}
}
