package openstack

import (
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	lab "github.com/decamp/decamp/internal/lab/openstack"
	"github.com/decamp/decamp/internal/targets/platform"
)

// An accessRule is an access rule of Keystone. It lets an application credential send one kind of request.
type accessRule struct {
	Service, Method, Path string

	used bool
}

func (r *accessRule) matches(req *http.Request) bool {
	// Each service of the emulated cloud has a path prefix, like services that uWSGI mounts.
	folder := map[string]string{"compute": "/compute", "image": "/image", "network": "/network", "volumev3": "/volume"}[r.Service]
	pattern := "^" + strings.ReplaceAll(regexp.QuoteMeta(folder+r.Path), `\*`, `[^/]+`) + "$"
	return req.Method == r.Method && regexp.MustCompile(pattern).MatchString(req.URL.Path)
}

// ruledTransport sends requests that match a rule and answers others with 401, like the services.
type ruledTransport struct {
	next  http.RoundTripper
	rules []*accessRule

	mu      sync.Mutex
	refused []string
}

func (r *ruledTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if strings.HasPrefix(req.URL.Path, "/identity/") { // logins require no rule
		return r.next.RoundTrip(req)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rule := range r.rules {
		if rule.matches(req) {
			rule.used = true
			return r.next.RoundTrip(req)
		}
	}
	r.refused = append(r.refused, req.Method+" "+req.URL.Path)
	return &http.Response{StatusCode: http.StatusUnauthorized, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
}

// The published access rules permit decamp to examine, deliver, start and withdraw, and each rule is required.
func TestPublishedAccessRulesSuffice(t *testing.T) {
	text, err := os.ReadFile("../../../packaging/privileges/openstack.json")
	if err != nil {
		t.Fatal(err)
	}
	r := &ruledTransport{}
	if err := json.Unmarshal(text, &r.rules); err != nil {
		t.Fatal(err)
	}
	cloud := startCloud(t, lab.Config{})
	p := newPlatform(t, cloud, "lab")
	r.next = p.cloud.http.Transport
	p.cloud.http.Transport = r
	d := newTestDelivery(t, webVM())
	for _, aspect := range []platform.Aspect{platform.Login, platform.Parts, platform.Storage, platform.Network, platform.Rights, platform.Clock} {
		for _, result := range p.Examine(t.Context(), aspect) {
			if result.Err != nil {
				t.Errorf("%s: %s: %v", aspect, result.Object, result.Err)
			}
		}
	}
	if err := p.Check(t.Context(), d.VM); err != nil {
		t.Error(err)
	}
	mustDeliver(t, p, d)
	mustStart(t, p, d)
	id := cloud.Servers()[0].ID
	cloud.SetStatus(id, "SHUTOFF")
	mustStart(t, p, d)
	cloud.SetStatus(id, "SHUTOFF")
	if err := p.Withdraw(t.Context(), d.VM); err != nil {
		t.Error(err)
	}
	checkEmpty(t, cloud)
	if len(r.refused) > 0 {
		t.Errorf("no rule permits %q", r.refused)
	}
	for _, rule := range r.rules {
		if !rule.used {
			t.Errorf("%s %s %s is granted but not required", rule.Service, rule.Method, rule.Path)
		}
	}
}
