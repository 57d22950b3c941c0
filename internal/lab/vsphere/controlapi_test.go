package vsphere

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// callControl calls the control API, decodes the reply into v, and returns the status.
func callControl(t *testing.T, l *Lab, method, path, body string, v any) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, l.ControlURL()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{DisableKeepAlives: true}
	resp, data, err := fetch(t, &http.Client{Transport: tr}, r)
	if err != nil {
		t.Fatal(err)
	}
	if v != nil {
		if err := json.Unmarshal(data, v); err != nil {
			t.Fatalf("%s %s: %s", method, path, data)
		}
	}
	return resp.StatusCode
}

func TestControlAPI(t *testing.T) {
	vm := web01()
	vm.Name, vm.Folder = "web 01", "web01"
	vm.Disks[0].Name = "web01.vmdk"
	l := startLab(t, Config{VMs: []VM{vm}})
	c := newClient(t, l)
	get := func() int { return fetchStatus(t, c, folderRequest(t, l, "HEAD", folderURL(l, flat))) }

	var info Info
	callControl(t, l, "GET", "/", "", &info)
	if info.URL != l.URL() || info.Fingerprint != l.Fingerprint() || fmt.Sprint(info.VMs) != "[web 01]" {
		t.Errorf("info %+v", info)
	}

	var added struct{ ID int }
	callControl(t, l, "POST", "/faults", `{"kind": "status", "status": 500}`, &added)
	var active []Fault
	callControl(t, l, "GET", "/faults", "", &active)
	if got := get(); got != 500 || len(active) != 1 || active[0].ID != added.ID {
		t.Errorf("with a fault: %d, %+v", got, active)
	}
	callControl(t, l, "DELETE", fmt.Sprintf("/faults/%d", added.ID), "", nil)
	if got := get(); got != 200 {
		t.Errorf("fault removed: %d", got)
	}
	callControl(t, l, "POST", "/faults", `{"kind": "status"}`, nil)
	callControl(t, l, "DELETE", "/faults", "", nil)
	if got := get(); got != 200 {
		t.Errorf("faults cleared: %d", got)
	}

	callControl(t, l, "PUT", "/limits", `{"connRate": "10MiB"}`, nil)
	if got := l.currentLimits(); got.ConnRate != 10<<20 || got.MaxConns != 128 {
		t.Errorf("limits %+v", got)
	}

	callControl(t, l, "PUT", "/power/"+url.PathEscape("web 01"), `{"on": true}`, nil)
	if got := get(); got != 500 {
		t.Errorf("powered on: %d", got)
	}
	callControl(t, l, "PUT", "/power/"+url.PathEscape("web 01"), `{"on": false}`, nil)

	callControl(t, l, "PUT", "/ssh", `{"on": true}`, nil)
	if l.SSHAddr("") == "" {
		t.Error("SSH is off")
	}

	var s Stats
	callControl(t, l, "GET", "/stats", "", &s)
	if s.Status[200] != 2 || s.Status[500] != 2 {
		t.Errorf("status counts %v", s.Status)
	}
	callControl(t, l, "DELETE", "/stats", "", nil)
	if got := l.Stats().Requests; got != 0 {
		t.Errorf("%d requests after the reset", got)
	}

	cookie := basicLogin(t, l, c)
	callControl(t, l, "DELETE", "/sessions", "", nil)
	if got := fetchStatus(t, c, withCookie(t, l, cookie)); got != 401 {
		t.Errorf("session killed: %d", got)
	}
	before := l.Fingerprint()
	callControl(t, l, "POST", "/certificate", "", nil)
	if before == l.Fingerprint() {
		t.Error("same certificate")
	}
	callControl(t, l, "POST", "/stop", "", nil)
	c.CloseIdleConnections()
	if _, err := c.Do(folderRequest(t, l, "HEAD", folderURL(l, flat))); err == nil {
		t.Error("a stopped lab answers")
	}
	callControl(t, l, "POST", "/resume", "", nil)
	callControl(t, l, "POST", "/restart", "", nil)
	c.CloseIdleConnections()
	if got := get(); got != 200 {
		t.Errorf("after the restart: %d", got)
	}
}

func TestControlRefusals(t *testing.T) {
	l := startLab(t, Config{VMs: []VM{web01()}})
	for _, tc := range []struct{ method, path, body string }{
		{"POST", "/faults", `{"kind": "fire"}`}, {"POST", "/faults", `{"kin": "status"}`}, {"POST", "/faults", ``},
		{"DELETE", "/faults/x", ``}, {"PUT", "/power/nobody", `{"on": true}`}, {"PUT", "/ssh", `{"off": true}`}, {"PUT", "/limits", `{"rate": 1}`}, {"POST", "/resume", ``},
	} {
		var reply struct{ Error string }
		if got := callControl(t, l, tc.method, tc.path, tc.body, &reply); got != 400 || reply.Error == "" {
			t.Errorf("%s %s %s: %d %q", tc.method, tc.path, tc.body, got, reply.Error)
		}
	}
	if _, err := Start(t.Context(), Config{ControlAddr: "0.0.0.0:0"}); err == nil || !strings.Contains(err.Error(), "loopback") {
		t.Errorf("a control API on all addresses: %v", err)
	}
}
