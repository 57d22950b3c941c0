package assemble

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/planfile"
)

const pluginKubeconfig = `current-context: one
contexts: [{name: one, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://k8s.example.com"}}]
users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: aws, interactiveMode: Never}}}]
`

// A kubeconfig that starts a command is used for the local user, and for a submitted plan only if a place in the
// access file names it: an administrator's plan could name a disk image that reads as one.
func TestSubmittedPlanStartsNoCredentialPlugin(t *testing.T) {
	r := newMachine(t)
	stage := t.TempDir()
	kubeconfig := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(kubeconfig, []byte(pluginKubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	r.put(planfile.AccessFile, "version: 1\nplaces:\n  cluster: {to: \"kubevirt:?kubeconfig="+kubeconfig+"\", roles: [operate]}\n")
	direct, place := "kubevirt:"+stage+"?kubeconfig="+kubeconfig, "place:cluster?staging="+stage
	for _, c := range []struct {
		to    string
		role  planfile.Role
		wants bool
	}{
		{direct, planfile.Local, true}, {direct, planfile.Admin, false}, {direct, planfile.Operate, false}, {direct, "", false},
		{place, planfile.Local, true}, {place, planfile.Admin, true}, {place, planfile.Operate, true},
	} {
		err := r.OpenTargets(&Parts{}, Move{Options: planfile.Options{To: []planfile.Destination{planfile.Destination(c.to)}, Format: "raw"}}, c.role)
		if c.wants && err != nil || !c.wants && (!fault.Is(err, fault.Denied) || fault.HintOf(err) == "") {
			t.Errorf("%s for the role %q: %v", c.to, c.role, err)
		}
	}
}
