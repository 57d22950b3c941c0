package esx_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// names are names of VMs, folders and datastores on which other tools failed.
var names = []string{
	"web01", "a b", " lead and trail ", "50%", "100%25", "%2f", "a%2fb", "a+b", "*star*", "_under_-._~", "a&b=c;d",
	"#1", "what?", `it's "quoted"`, `back\slash`, "[x] (y) {z}", "a,b:c@d!e$f", "<tag>", "tab\tnew\nline",
	"Grüße", "日本語", "e\u0301", "🖥️ desktop", "\xff\xfe not UTF-8", "...", "..a", "a..", "%2e%2e", "~", "-rf",
}

func TestFileURIEncodesEveryName(t *testing.T) {
	for _, vcenter := range []bool{false, true} {
		r := newESX(t)
		if vcenter {
			r = newVPX(t)
		}
		s := r.dial(t)
		for _, name := range names {
			dc, p := "F/"+name, inventory.Path{Datastore: name, File: name + "/" + name + "-flat.vmdk"}
			r.addFile(dc, p, []byte("content of "+name))
			if got := fetchFile(t, r, s, dc, p); got != "content of "+name {
				t.Errorf("%q: GET returned %q", name, got)
			}
			got, err := s.ReadFile(t.Context(), dc, p, 100)
			if err != nil || string(got) != "content of "+name {
				t.Errorf("%q: ReadFile returned %q, %v", name, got, err)
			}
		}
	}
}

// fetchFile reads a file by HTTP with the session's URI, TLS settings and cookie, as a transport does.
func fetchFile(t *testing.T, r *simServer, s *esx.Session, dc string, p inventory.Path) string {
	t.Helper()
	uri, err := s.FileURI(dc, p)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: s.TLS().Clone()}}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+s.Addr()+uri, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Cookie", sessionCookie(t, s, ""))
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestFileURIIsEscapedOnce(t *testing.T) {
	uri, err := newESX(t).dial(t).FileURI("ha-datacenter", inventory.Path{Datastore: "ds 1", File: "a+b/c%d#é.vmdk"})
	if want := "/folder/a%2Bb/c%25d%23%C3%A9.vmdk?dcPath=ha-datacenter&dsName=ds%201"; err != nil || uri != want {
		t.Fatalf("%s, %v; want %s", uri, err, want)
	}
}

func TestPathsOutsideTheDatastoreAreRefused(t *testing.T) {
	s := newESX(t).dial(t)
	for _, p := range []inventory.Path{
		{Datastore: "ds", File: "../etc/passwd"}, {Datastore: "ds", File: "a/../../b"}, {Datastore: "ds", File: ".."},
		{Datastore: "ds", File: "a/./b"}, {Datastore: "ds", File: "/a"}, {Datastore: "ds", File: "a//b"}, {Datastore: "ds", File: "a/"},
		{Datastore: "ds", File: ""}, {Datastore: "", File: "a"}, {Datastore: "ds", File: "a\x00b"},
	} {
		if uri, err := s.FileURI("ha-datacenter", p); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %s, %v", p, uri, err)
		}
		if _, err := s.ReadFile(t.Context(), "ha-datacenter", p, 10); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: ReadFile: %v", p, err)
		}
	}
}

// The first ReadFile detects a vCenter that decodes names twice. FileURI then encodes them
// twice.
func TestVCenterDecodingNamesTwice(t *testing.T) {
	r := newVPX(t)
	r.set(func(r *simServer) { r.twice = true })
	s := r.dial(t)
	p := inventory.Path{Datastore: "a+b 50%", File: "vm/disk.vmdk"}
	r.addFile("F/DC 1", p, []byte("text"))
	got, err := s.ReadFile(t.Context(), "F/DC 1", p, 10)
	if err != nil || string(got) != "text" {
		t.Fatalf("%q, %v", got, err)
	}
	if got := fetchFile(t, r, s, "F/DC 1", p); got != "text" {
		t.Fatalf("GET returned %q", got)
	}
}

func TestReadFileIsBounded(t *testing.T) {
	r := newESX(t)
	s := r.dial(t)
	p := inventory.Path{Datastore: "ds", File: "x.vmdk"}
	r.addFile("ha-datacenter", p, bytes.Repeat([]byte("x"), 1000))
	if got, err := s.ReadFile(t.Context(), "ha-datacenter", p, 1000); err != nil || len(got) != 1000 {
		t.Errorf("at the limit: %d bytes, %v", len(got), err)
	}
	if _, err := s.ReadFile(t.Context(), "ha-datacenter", p, 999); !fault.Is(err, fault.Unsupported) {
		t.Errorf("above the limit: %v", err)
	}
	p.File = "missing.vmdk"
	if _, err := s.ReadFile(t.Context(), "ha-datacenter", p, 999); !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), "[ds] missing.vmdk") {
		t.Errorf("missing: %v", err)
	}
}

func TestReadFileSurvivesAnExpiredSession(t *testing.T) {
	r := newESX(t)
	s := r.dial(t)
	p := inventory.Path{Datastore: "ds", File: "x.vmdk"}
	r.addFile("ha-datacenter", p, []byte("text"))
	for range 3 {
		if got, err := s.ReadFile(t.Context(), "ha-datacenter", p, 10); err != nil || string(got) != "text" {
			t.Fatalf("%q, %v", got, err)
		}
		r.expireSessions()
	}
	if n := r.countCalls("Login"); n != 3 {
		t.Fatalf("%d logins, want 3", n)
	}
}
