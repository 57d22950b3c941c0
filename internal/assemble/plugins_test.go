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

// A local plan may use a kubeconfig with a credential plugin. A submitted plan may use it only by a place of the access
// file: even an administrator could name a disk image with the text of a kubeconfig.
func TestSubmittedPlanStartsNoCredentialPlugin(t *testing.T) {
	r := newTestAssembler(t)
	stage := t.TempDir()
	kubeconfig := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(kubeconfig, []byte(pluginKubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	r.writeState(planfile.AccessFile, "version: 1\nplaces:\n  cluster: {to: \"kubevirt:?kubeconfig="+kubeconfig+"\", roles: [operate]}\n")
	direct, place := "kubevirt:"+stage+"?kubeconfig="+kubeconfig, "place:cluster?staging="+stage
	for _, c := range []struct {
		to   string
		role planfile.Role
		want bool
	}{
		{direct, planfile.Local, true}, {direct, planfile.Admin, false}, {direct, planfile.Operate, false}, {direct, "", false},
		{place, planfile.Local, true}, {place, planfile.Admin, true}, {place, planfile.Operate, true},
	} {
		err := r.OpenTargets(&Parts{}, Move{Options: planfile.Options{To: []planfile.Destination{planfile.Destination(c.to)}, Format: "raw"}}, c.role)
		if c.want && err != nil || !c.want && (!fault.Is(err, fault.Denied) || fault.HintOf(err) == "") {
			t.Errorf("%s in a plan of role %q: %v", c.to, c.role, err)
		}
	}
}
