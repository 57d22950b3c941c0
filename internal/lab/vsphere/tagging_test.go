package vsphere

import (
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/vapi/tags"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

func taggedLab(t *testing.T, change func(*Config)) (*Lab, types.ManagedObjectReference) {
	t.Helper()
	cfg := Config{VCenter: true, VMs: []VM{
		{Name: "web", Tags: []Tag{{"env", "prod"}, {"app", "<db> & ü"}}},
		{Name: "hidden", TagsHidden: true, Tags: []Tag{{"env", "prod"}}},
	}}
	change(&cfg)
	l := startLab(t, cfg)
	m, err := l.findMachine("web")
	if err != nil {
		t.Fatal(err)
	}
	return l, m.ref
}

// The tags can be read with govmomi's client.
func TestGovmomiReadsTags(t *testing.T) {
	l, vm := taggedLab(t, func(*Config) {})
	at, err := url.Parse(l.URL())
	if err != nil {
		t.Fatal(err)
	}
	c := &rest.Client{Client: soap.NewClient(at, true)}
	if err := c.Login(t.Context(), url.UserPassword(l.User(), "wrong")); err == nil {
		t.Error("a wrong password is accepted")
	}
	if err := c.Login(t.Context(), url.UserPassword(l.User(), l.Password())); err != nil {
		t.Fatal(err)
	}
	m := tags.NewManager(c)
	found, err := m.GetAttachedTagsOnObjects(t.Context(), []mo.Reference{vm})
	if err != nil || len(found) != 1 || len(found[0].Tags) != 2 {
		t.Fatalf("%+v, %v", found, err)
	}
	var names []string
	for _, tag := range found[0].Tags {
		category, err := m.GetCategory(t.Context(), tag.CategoryID)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, category.Name+"/"+tag.Name)
	}
	slices.Sort(names)
	if !slices.Equal(names, []string{"app/<db> & ü", "env/prod"}) {
		t.Errorf("%q", names)
	}
	if err := c.Logout(t.Context()); err != nil || l.TagSessions() != 0 {
		t.Errorf("%v, %d sessions", err, l.TagSessions())
	}
}

// The service refuses the same requests as a vCenter, in both APIs and for each version.
func TestTaggingRefuses(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	list := "tag-association?~action=list-attached-tags-on-objects"
	for name, c := range map[string]struct {
		version, method, path, body string
		after                       time.Duration // time since the login; negative for no login
		want                        int
	}{
		"no session":            {"8.0.3", "GET", "/rest/com/vmware/cis/tagging/tag/id:x", "", -1, 401},
		"an old session":        {"8.0.3", "GET", "/rest/com/vmware/cis/tagging/tag/id:x", "", 5 * time.Minute, 401},
		"no such tag":           {"8.0.3", "GET", "/rest/com/vmware/cis/tagging/tag/id:x", "", 0, 404},
		"no such tag in /api":   {"8.0.3", "GET", "/api/cis/tagging/tag/x", "", 4 * time.Minute, 404},
		"no such VM":            {"8.0.3", "POST", "/rest/com/vmware/cis/tagging/" + list, `{"object_ids":[{"id":"vm-0","type":"VirtualMachine"}]}`, 0, 403},
		"empty request":         {"8.0.3", "POST", "/rest/com/vmware/cis/tagging/" + list, `{}`, 0, 400},
		"an action of /api":     {"8.0.3", "POST", "/rest/com/vmware/cis/tagging/" + strings.Replace(list, "~", "", 1), `{}`, 0, 404},
		"version without /api":  {"7.0.1", "GET", "/api/cis/tagging/tag/x", "", 0, 404},
		"version without /rest": {"6.0.0", "GET", "/rest/com/vmware/cis/tagging/tag/id:x", "", -1, 404},
	} {
		clock := now
		l, _ := taggedLab(t, func(cfg *Config) { cfg.Version, cfg.Clock = c.version, func() time.Time { return clock } })
		id := ""
		if c.after >= 0 {
			status, answer := askREST(t, l, "", "POST", "/rest/com/vmware/cis/session", "")
			if id = strings.Split(answer+`"""`, `"`)[3]; status != 200 || len(id) < 20 {
				t.Fatalf("%s: login: %d %s", name, status, answer)
			}
			clock = clock.Add(c.after)
		}
		if status, answer := askREST(t, l, id, c.method, c.path, c.body); status != c.want {
			t.Errorf("%s: %d %s, want %d", name, status, answer, c.want)
		}
	}
}

func askREST(t *testing.T, l *Lab, session, method, path, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "https://"+l.Addr()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if session == "" {
		req.SetBasicAuth(l.User(), l.Password())
	} else {
		req.Header.Set("vmware-api-session-id", session)
	}
	res, err := newClient(t, l).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// An ESXi host has no tagging service, and its configuration must not contain tags or attributes.
func TestHostHasNoTagging(t *testing.T) {
	l := startLab(t, Config{VMs: []VM{{Name: "web"}}})
	for _, path := range []string{"/api/session", "/rest/com/vmware/cis/session"} {
		if status, _ := askREST(t, l, "", "POST", path, ""); status != http.StatusNotFound {
			t.Errorf("%s: %d", path, status)
		}
	}
	for _, vm := range []VM{{Name: "web", Tags: []Tag{{"env", "prod"}}}, {Name: "web", Attributes: map[string]string{"a": "b"}}} {
		if other, err := Start(t.Context(), Config{VMs: []VM{vm}}); err == nil {
			t.Errorf("%+v is accepted", vm)
			_ = other.Close()
		}
	}
}
