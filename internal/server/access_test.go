package server_test

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/server"
)

// The server lists the names that plans of the role may use. No response contains the path of a secret file.
func TestNamesOfTheAccessFileAreListedByRole(t *testing.T) {
	r := newTestServer(t, nil)
	const fingerprint = "ABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABAB"
	esx1 := `{"name":"esx1","url":"esxi://root@esx1.example.com","fingerprint":"` + fingerprint + `"}`
	esx2 := `{"name":"esx2","url":"esxi://root@esx2.example.com","fingerprint":"` + fingerprint + `"}`
	rack1 := `{"name":"rack1","to":"proxmox:https://pve1:8006/pve1"}`
	for _, c := range []struct {
		role server.Role
		path string
		want string
	}{
		{server.Operate, "/v1/credentials", esx1},
		{server.Admin, "/v1/credentials", esx1 + "," + esx2},
		{server.Operate, "/v1/places", rack1},
		{server.Admin, "/v1/places", rack1},
	} {
		if a := r.sendAs(c.role, "GET", c.path, ""); a.status != http.StatusOK || a.body != `{"items":[`+c.want+"]}\n" {
			t.Errorf("%s as %s: %d %s", c.path, c.role, a.status, a.body)
		}
	}

	file := filepath.Join(r.State, planfile.AccessFile)
	r.must(os.WriteFile(file, []byte("version: 1\ncredentials:\n  ssh: {ssh: {key: /etc/k, hostKeys: {b: 'SHA256:x', a: 'SHA256:y'}}, roles: [operate]}\n"), 0o600))
	if a := r.sendAs(server.Operate, "GET", "/v1/credentials", ""); a.body != `{"items":[{"name":"ssh","hosts":["a","b"]}]}`+"\n" {
		t.Errorf("an SSH credential: %s", a.body)
	}
	r.must(os.Remove(file))
	if a := r.sendAs(server.Operate, "GET", "/v1/places", ""); a.body != `{"items":[]}`+"\n" {
		t.Errorf("without an access file: %s", a.body)
	}
	r.must(os.WriteFile(file, []byte("version: 2\n"), 0o600))
	if a := r.sendAs(server.Operate, "GET", "/v1/places", ""); a.status != http.StatusUnprocessableEntity {
		t.Errorf("an invalid access file: %d %s", a.status, a.body)
	} else if p := r.wantProblem(a, "invalid"); p.Remedy == "" {
		t.Errorf("the problem has no remedy: %+v", p)
	}
}
