package targettest

import (
	"context"
	"os"
	"os/exec"
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets/platform"
)

// bugEnv has TestSoundPlacePasses suffer from a bug.
const bugEnv = "TARGETTEST_BUG"

func TestSoundPlacePasses(t *testing.T) {
	bug := os.Getenv(bugEnv)
	Run(t, Harness{
		New: func(*testing.T) Site {
			m := &memory{bug: bug, vms: map[string]*kept{}}
			return Site{Platform: m, VMs: m.seen, Objects: m.things, Occupy: m.occupy, SetCallHook: m.tap, Reads: m.reads}
		},
		Denied: func(*testing.T) platform.Platform {
			return closed{fault.New(fault.Denied, "wrong token").WithHint("make a new one")}
		},
		Unreachable: func(*testing.T) platform.Platform {
			return closed{fault.New(fault.Unreachable, "nobody answers").WithHint("ping it")}
		},
	})
}

// A suite that takes every place would prove nothing.
func TestSuiteFindsBugs(t *testing.T) {
	if testing.Short() {
		t.Skip("starts the suite once for each bug")
	}
	for _, bug := range []string{"bitrot", "untidy", "eager", "greedy", "endless", "hasty", "awake", "forgetful"} {
		t.Run(bug, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSoundPlacePasses$")
			cmd.Env = append(os.Environ(), bugEnv+"="+bug)
			if out, err := cmd.CombinedOutput(); err == nil {
				t.Errorf("the suite passed:\n%s", out)
			}
		})
	}
}

// closed is a place that refuses everything.
type closed struct{ err error }

func (c closed) Check(context.Context, *inventory.VM) error { return c.err }
func (c closed) Deliver(context.Context, platform.Delivery) (platform.Receipt, error) {
	return platform.Receipt{}, c.err
}
func (c closed) Withdraw(context.Context, *inventory.VM) error { return c.err }
