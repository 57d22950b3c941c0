package fleet

import (
	"fmt"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/lab/loopback"
)

// A plan whose source never answers has failed after it is canceled. plan run and status report that in their output
// and exit code.
func TestPlanWithSilentSource(t *testing.T) {
	t.Parallel()
	r := newTestEnv(t, slowLabOf(1))
	unused := loopback.Reserve(t) // address without a listener
	file := r.writeFile("dead.yaml", fmt.Sprintf("version: 1\nname: dead\nsource:\n  url: esxi://root@%s\n  fingerprint: %q\n  credentials: {file: %s}\ndefaults: {to: [dir:%s]}\nselect: name ~ *\n",
		unused, strings.Repeat("ab", 32), r.writeFile("dead.password", "secret\n"), r.vmFolder()))
	p := r.startCommand("plan", "run", file)
	eventually(t, "the plan reports the source", func() bool { return strings.Contains(r.run("status", "dead").stdout, unused) })
	r.run("cancel", "dead").wantExit(0)
	ended := p.wantExit(5)
	if output := ended.stdout + ended.stderr; !strings.Contains(output, "dead, failed") || !strings.Contains(output, unused) {
		t.Errorf("plan run printed %s", output)
	}
	r.run("status", "dead").wantExit(5).wantOutput("dead, failed", unused)
	r.run("status", "dead", "--json").wantExit(5).wantOutput(`"state":"failed"`)
	r.run("status").wantExit(0).wantOutput("failed")
	r.run("cancel", "dead").wantExit(6).wantOutput("has ended")
}
