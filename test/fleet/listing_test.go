package fleet

import (
	"fmt"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/lab/loopback"
)

// A plan whose source never answered has failed, once it is canceled: in what plan run prints and exits
// with, and in status.
func TestPlanWhoseSourceNeverAnswers(t *testing.T) {
	t.Parallel()
	r := newRig(t, slow(1))
	nobody := loopback.Reserve(t)
	file := r.write("dead.yaml", fmt.Sprintf("version: 1\nname: dead\nsource:\n  url: esxi://root@%s\n  fingerprint: %q\n  credentials: {file: %s}\ndefaults: {to: [dir:%s]}\nselect: name ~ *\n",
		nobody, strings.Repeat("ab", 32), r.write("dead.password", "secret\n"), r.vms()))
	p := r.begin("plan", "run", file)
	eventually(t, "the plan reports the source", func() bool { return strings.Contains(r.run("status", "dead").stdout, nobody) })
	r.run("cancel", "dead").ends(0)
	ended := p.ends(5)
	if said := ended.stdout + ended.stderr; !strings.Contains(said, "dead, failed") || !strings.Contains(said, nobody) {
		t.Errorf("plan run printed %s", said)
	}
	r.run("status", "dead").ends(5).says("dead, failed", nobody)
	r.run("status", "dead", "--json").ends(5).says(`"state":"failed"`)
	r.run("status").ends(0).says("failed")
	r.run("cancel", "dead").ends(6).says("has ended")
}
