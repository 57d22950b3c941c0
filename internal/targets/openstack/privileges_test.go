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

// An accessRule is one of Keystone's: it lets an application credential send one kind of request.
type accessRule struct {
	Service, Method, Path string

	used bool
}

func (r *accessRule) matches(req *http.Request) bool {
	// The emulated cloud has its services below a folder each, as uWSGI mounts them.
	folder := map[string]string{"compute": "/compute", "image": "/image", "network": "/network", "volumev3": "/volume"}[r.Service]
	pattern := "^" + strings.ReplaceAll(regexp.QuoteMeta(folder+r.Path), `\*`, `[^/]+`) + "$"
	return req.Method == r.Method && regexp.MustCompile(pattern).MatchString(req.URL.Path)
}

// ruled sends requests that match a rule and answers 401 to others, as the services do.
type ruled struct {
	next  http.RoundTripper
	rules []*accessRule

	mu      sync.Mutex
	refused []string
}

func (r *ruled) RoundTrip(req *http.Request) (*http.Response, error) {
	if strings.HasPrefix(req.URL.Path, "/identity/") { // logging in takes no rule
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

// The published access rules let decamp examine, deliver, start and withdraw, and each is needed.
func TestPublishedAccessRulesSuffice(t *testing.T) {
	text, err := os.ReadFile("../../../packaging/privileges/openstack.json")
	if err != nil {
		t.Fatal(err)
	}
	r := &ruled{}
	if err := json.Unmarshal(text, &r.rules); err != nil {
		t.Fatal(err)
	}
	cloud := serve(t, lab.Config{})
	p := place(t, cloud, "lab")
	r.next = p.cloud.http.Transport
	p.cloud.http.Transport = r
	d := deliveryOf(t, web())
	for _, aspect := range []platform.Aspect{platform.Login, platform.Parts, platform.Storage, platform.Network, platform.Rights, platform.Clock} {
		for _, look := range p.Examine(t.Context(), aspect) {
			if look.Err != nil {
				t.Errorf("%s: %s: %v", aspect, look.Object, look.Err)
			}
		}
	}
	if err := p.Check(t.Context(), d.VM); err != nil {
		t.Error(err)
	}
	deliver(t, p, d)
	startOf(t, p, d)
	id := cloud.Servers()[0].ID
	cloud.SetStatus(id, "SHUTOFF")
	startOf(t, p, d)
	cloud.SetStatus(id, "SHUTOFF")
	if err := p.Withdraw(t.Context(), d.VM); err != nil {
		t.Error(err)
	}
	checkNothing(t, cloud)
	if len(r.refused) > 0 {
		t.Errorf("no rule lets through %q", r.refused)
	}
	for _, rule := range r.rules {
		if !rule.used {
			t.Errorf("%s %s %s is granted and not needed", rule.Service, rule.Method, rule.Path)
		}
	}
}
