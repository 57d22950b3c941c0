package esx_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/test/lane"
)

// taggedFleet returns a vCenter with n VMs and hundreds of unused tags. Every second VM has a tag of
// "env", every third VM has two tags of "app", and VM 0 has attributes.
func taggedFleet(n int) lab.Config {
	cfg := lab.Config{VCenter: true}
	for i := range 400 {
		cfg.Tagging.Spare = append(cfg.Tagging.Spare, lab.Tag{Category: fmt.Sprintf("spare-%d", i%50), Name: fmt.Sprintf("tag-%d", i)})
	}
	for i := range n {
		vm := lab.VM{Name: fmt.Sprintf("vm%04d", i)}
		if i%2 == 0 {
			vm.Tags = append(vm.Tags, lab.Tag{Category: "env", Name: fmt.Sprintf("stage %d", i%4)})
		}
		if i%3 == 0 {
			vm.Tags = append(vm.Tags, lab.Tag{Category: "app", Name: "web"}, lab.Tag{Category: "app", Name: "<db> & ü/%"})
		}
		cfg.VMs = append(cfg.VMs, vm)
	}
	cfg.VMs[0].Attributes = map[string]string{"Owner": "R&D <x>", "Cost centre": "4711", "cleared": ""}
	return cfg
}

func wantTags(vm lab.VM) []inventory.Tag {
	var want []inventory.Tag
	for _, t := range vm.Tags {
		want = append(want, inventory.Tag{Category: t.Category, Name: t.Name})
	}
	slices.SortFunc(want, func(a, b inventory.Tag) int {
		return strings.Compare(a.Category+"\x00"+a.Name, b.Category+"\x00"+b.Name)
	})
	return want
}

// checkTags compares the tags and attributes of VMs with the lab's configuration, by name.
func checkTags(t *testing.T, cfg lab.Config, vms []inventory.VM) {
	t.Helper()
	if len(vms) != len(cfg.VMs) {
		t.Fatalf("%d VMs, want %d", len(vms), len(cfg.VMs))
	}
	for _, vm := range vms {
		i := slices.IndexFunc(cfg.VMs, func(v lab.VM) bool { return v.Name == vm.Name })
		if !slices.Equal(vm.Tags, wantTags(cfg.VMs[i])) {
			t.Errorf("%s: %q, want %q", vm.Name, vm.Tags, wantTags(cfg.VMs[i]))
		}
		attributes := maps.Clone(cfg.VMs[i].Attributes)
		maps.DeleteFunc(attributes, func(_, value string) bool { return value == "" })
		if !maps.Equal(vm.Attributes, attributes) {
			t.Errorf("%s: %q, want %q", vm.Name, vm.Attributes, attributes)
		}
		if w := findWarning(vm, "tags", "attributes"); w != nil {
			t.Errorf("%s: %+v", vm.Name, w)
		}
	}
}

func findWarning(vm inventory.VM, codes ...string) *inventory.Warning {
	at := slices.IndexFunc(vm.Warnings, func(w inventory.Warning) bool { return slices.Contains(codes, w.Code) })
	if at < 0 {
		return nil
	}
	return &vm.Warnings[at]
}

// The first inventory takes a few calls, one for each 200 VMs, and one for each name of a used tag. Later
// inventories take one call for each 200 VMs, regardless of the number of tags.
func TestTagsTakeFewCalls(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	for _, paths := range []lab.TagPaths{lab.TagsBoth, lab.TagsRest, lab.TagsMixed} {
		if paths == lab.TagsMixed && !lane.Slow {
			continue // mixes the paths of the others
		}
		t.Run(string(paths), func(t *testing.T) {
			cfg := taggedFleet(240)
			cfg.Tagging.Paths = paths
			b := startLab(t, cfg)
			s := b.dial(t)
			checkCalls := func(want map[string]int64) {
				t.Helper()
				if got := b.Stats().REST; !maps.Equal(got, want) {
					t.Errorf("calls %v, want %v", got, want)
				}
				b.ResetStats()
			}
			vms, err := s.VMs(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			checkTags(t, cfg, vms)
			checkCalls(map[string]int64{"login": 1, "list-attached-tags-on-objects": 2, "tag": 4, "category": 2})
			if _, err = s.VMs(t.Context()); err != nil {
				t.Fatal(err)
			}
			checkCalls(map[string]int64{"list-attached-tags-on-objects": 2})
			b.clock.advance(11 * time.Minute) // the names are outdated, and the session ended
			vm, err := s.VMByRef(t.Context(), vms[0].Ref)
			if err != nil || !slices.Equal(vm.Tags, vms[0].Tags) || !maps.Equal(vm.Attributes, vms[0].Attributes) {
				t.Errorf("%+v, %v", vm, err)
			}
			checkCalls(map[string]int64{"login": 1, "list-attached-tags-on-objects": 2, "tag": 3, "category": 2})
			bare, err := s.BareVM(t.Context(), vms[0].Ref)
			if err != nil || bare.Tags != nil || bare.Attributes != nil || bare.Name != vm.Name {
				t.Errorf("bare: %+v, %v", bare, err)
			}
			checkCalls(map[string]int64{})
			var paged []inventory.VM
			refs := make([]inventory.MoRef, len(vms))
			for i := range vms {
				refs[i] = vms[i].Ref
			}
			err = s.EachVM(t.Context(), refs, func(page []inventory.VM) error { paged = append(paged, page...); return nil })
			if err != nil {
				t.Fatal(err)
			}
			checkTags(t, cfg, paged)
			checkCalls(map[string]int64{"list-attached-tags-on-objects": 3, "tag": 1})
			if err := s.Close(); err != nil || b.TagSessions() != 0 {
				t.Errorf("closed with %v; %d sessions are left", err, b.TagSessions())
			}
		})
	}
}

// An ESXi host has neither tags nor attributes, and gets no request for them.
func TestNoTagsOnESXi(t *testing.T) {
	b := startLab(t, lab.Config{VMs: []lab.VM{{Name: "web"}}})
	vms, err := b.dial(t).VMs(t.Context())
	if err != nil || len(vms) != 1 || findWarning(vms[0], "tags", "attributes") != nil {
		t.Errorf("%+v, %v", vms, err)
	}
	for path := range b.Stats().Paths {
		if strings.HasPrefix(path, "/api") || strings.HasPrefix(path, "/rest") {
			t.Errorf("request for %s", path)
		}
	}
}

// If the tagging service fails, the VMs have no tags, and a warning with a remedy. The service gets no
// requests for a while.
func TestUnavailableTagsCauseWarning(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	for name, c := range map[string]struct {
		change func(*lab.Config)
		text   string // part of the warning
		calls  int    // 0 if an inventory six minutes later must not call the service
	}{
		"old vCenter":   {func(c *lab.Config) { c.Version = "6.0.0" }, "no tagging service", 1},
		"no rights":     {failREST("/tagging/tag-association", http.StatusForbidden), "Read-only", 1},
		"busy":          {failREST("/tagging/", http.StatusServiceUnavailable), "vmware-vapi-endpoint", 1},
		"broken":        {failREST("/api/session", http.StatusInternalServerError), "vmware-vapi-endpoint", 1},
		"a bad request": {failREST("/tagging/", http.StatusBadRequest), "vmware-vapi-endpoint", 1},
		"garbage":       {func(c *lab.Config) { c.Faults = []lab.Fault{{Kind: lab.FaultRESTGarbage, Path: "/tagging/"}} }, "unexpected EOF", 1},
		"refused":       {failREST("/api/session", http.StatusUnauthorized), "refuses the user", 0},
		"names hidden":  {failREST("/tagging/tag/", http.StatusForbidden), "Read-only", 1},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := taggedFleet(12)
			c.change(&cfg)
			b := startLab(t, cfg)
			b.clock.auto = true
			var log bytes.Buffer
			b.cfg.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
			s := b.dial(t)
			vms, err := s.VMs(t.Context())
			if err != nil || len(vms) != 12 {
				t.Fatalf("%d VMs, %v", len(vms), err)
			}
			for _, vm := range vms {
				w := findWarning(vm, "tags")
				if w == nil || w.Blocks || w.Remedy == "" || !strings.Contains(w.Text+w.Remedy, c.text) {
					t.Errorf("%s: %+v, want %q", vm.Name, w, c.text)
				}
				if len(vm.Tags) != 0 || vm.Name == "vm0000" && vm.Attributes["Owner"] != "R&D <x>" {
					t.Errorf("%s: %v, %v", vm.Name, vm.Tags, vm.Attributes)
				}
				if w != nil && strings.Contains(w.Text+w.Remedy, b.Password()) {
					t.Error("the password is in the warning")
				}
			}
			b.ResetStats()
			if name != "no rights" { // the service refuses each VM alone
				_, _ = s.VMs(t.Context())
				if n := countREST(b.Stats()); n != 0 {
					t.Errorf("%d calls right after the failure", n)
				}
			}
			b.clock.advance(6 * time.Minute)
			if _, err := s.VMs(t.Context()); err != nil {
				t.Error(err)
			}
			if n := countREST(b.Stats()); n == 0 != (c.calls == 0) {
				t.Errorf("%d calls six minutes later", n)
			}
			if strings.Contains(log.String(), b.Password()) || strings.Contains(log.String(), "Basic ") {
				t.Errorf("the password is in the log:\n%s", log.String())
			}
		})
	}
}

func failREST(path string, code int) func(*lab.Config) {
	return func(c *lab.Config) { c.Faults = []lab.Fault{{Kind: lab.FaultREST, Path: path, Status: code}} }
}

// countREST returns the number of requests to the REST service, including unknown paths. It excludes
// requests for names: they are sent concurrently and may arrive after the call returned.
func countREST(s lab.Stats) (n int64) {
	for path, p := range s.Paths {
		for _, count := range p.Methods {
			if (strings.HasPrefix(path, "/api/") || strings.HasPrefix(path, "/rest/")) && !strings.Contains(path, "/tagging/tag/") {
				n += count
			}
		}
	}
	return n
}

// Transient errors are retried, and a session that ended is replaced.
func TestTagsAreRetriedAfterErrors(t *testing.T) {
	for name, f := range map[string]lab.Fault{
		"busy at the login": {Kind: lab.FaultREST, Path: "/session", Count: 2},
		"busy":              {Kind: lab.FaultREST, Path: "/tag-association", Count: 2},
		"too many calls":    {Kind: lab.FaultREST, Path: "/tagging/tag/", Count: 1, Status: http.StatusTooManyRequests},
		"session lost":      {Kind: lab.FaultREST, Path: "/tagging/category/", Count: 1, Status: http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := taggedFleet(12)
			cfg.Faults = []lab.Fault{f}
			b := startLab(t, cfg)
			b.clock.auto = true
			s := b.dial(t)
			vms, err := s.VMs(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			checkTags(t, cfg, vms)
			b.KillSessions()
			if vms, err = s.VMs(t.Context()); err != nil {
				t.Fatal(err)
			}
			checkTags(t, cfg, vms)
		})
	}
}

// The service refuses a whole page if the user may not read one VM. Only that VM has no tags in the result.
func TestUnreadableVMDoesNotHideOtherTags(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	cfg := taggedFleet(210)
	cfg.VMs[42].TagsHidden = true
	b := startLab(t, cfg)
	s := b.dial(t)
	vms, err := s.VMs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(vms, func(vm inventory.VM) bool { return vm.Name == "vm0042" })
	if w := findWarning(vms[at], "tags"); w == nil || w.Remedy == "" || len(vms[at].Tags) != 0 {
		t.Errorf("%+v", vms[at])
	}
	vms[at].Warnings, cfg.VMs[42].Tags = nil, nil
	checkTags(t, cfg, vms)
	if n := b.Stats().REST["list-attached-tags-on-objects"]; n > 2*10 {
		t.Errorf("%d calls for 210 VMs", n)
	}
}

// A tag that is deleted between two calls is omitted, without a warning.
func TestDeletedTagIsOmitted(t *testing.T) {
	cfg := taggedFleet(3)
	cfg.VMs[0].Tags, cfg.VMs[2].Tags = []lab.Tag{{Category: "env", Name: "x"}}, nil
	cfg.Faults = []lab.Fault{{Kind: lab.FaultREST, Path: "/tagging/tag/", Status: http.StatusNotFound}}
	vms, err := startLab(t, cfg).dial(t).VMs(t.Context())
	cfg.VMs[0].Tags = nil
	if err != nil {
		t.Fatal(err)
	}
	checkTags(t, cfg, vms)
}

// The login for tags needs permission from Admit. If Admit refuses it, no login is sent.
func TestTagLoginRequiresAdmission(t *testing.T) {
	b := startLab(t, taggedFleet(4))
	admits, closed := 0, false
	b.cfg.Admit = func(context.Context) (func(error), error) {
		admits++
		if closed {
			return nil, fault.New(fault.Denied, "a login was refused").WithHint("say resume")
		}
		return func(err error) {
			if err != nil {
				t.Errorf("login: %v", err)
			}
		}, nil
	}
	s := b.dial(t)
	closed = true
	vms, err := s.VMs(t.Context())
	if w := findWarning(vms[0], "tags"); err != nil || w == nil || w.Remedy != "say resume" || admits != 2 || b.Stats().REST["login"] != 0 {
		t.Errorf("%+v, %v, %d calls of Admit", vms[0].Warnings, err, admits)
	}
}

// A canceled inventory returns the context error, and the next one has no warning about tags.
func TestTagsAreCanceled(t *testing.T) {
	b := startLab(t, taggedFleet(4))
	ctx, cancel := context.WithCancel(t.Context())
	b.cfg.Admit = func(context.Context) (func(error), error) {
		return func(error) {}, nil
	}
	s := b.dial(t)
	b.clock.disableAuto()
	if _, err := b.Faults().Add(lab.Fault{Kind: lab.FaultREST}); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { _, err := s.VMs(ctx); done <- err }()
	for b.Stats().REST["login"] == 0 { // until the login is sent and its retry waits
		<-b.clock.timers
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	b.Faults().Clear()
	vms, err := s.VMs(t.Context())
	if err != nil || findWarning(vms[0], "tags") != nil {
		t.Errorf("%+v, %v", vms[0].Warnings, err)
	}
}
