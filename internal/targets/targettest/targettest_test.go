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

// bugEnv selects a bug for the platform of TestSuiteAcceptsCorrectPlatform.
const bugEnv = "TARGETTEST_BUG"

func TestSuiteAcceptsCorrectPlatform(t *testing.T) {
	bug := os.Getenv(bugEnv)
	Run(t, Harness{
		New: func(*testing.T) Site {
			m := &memory{bug: bug, vms: map[string]*storedEntry{}}
			return Site{Platform: m, VMs: m.storedVMs, Objects: m.objects, Occupy: m.occupy, SetCallHook: m.setHook, Reads: m.isRead}
		},
		Denied: func(*testing.T) platform.Platform {
			return closedPlatform{fault.New(fault.Denied, "wrong token").WithHint("make a new one")}
		},
		Unreachable: func(*testing.T) platform.Platform {
			return closedPlatform{fault.New(fault.Unreachable, "no answer").WithHint("check the network")}
		},
	})
}

// A suite that accepts every platform would prove nothing.
func TestSuiteFindsBugs(t *testing.T) {
	if testing.Short() {
		t.Skip("starts the suite once for each bug")
	}
	for _, bug := range []string{"bitrot", "untidy", "eager", "greedy", "endless", "hasty", "awake", "forgetful"} {
		t.Run(bug, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSuiteAcceptsCorrectPlatform$")
			cmd.Env = append(os.Environ(), bugEnv+"="+bug)
			if out, err := cmd.CombinedOutput(); err == nil {
				t.Errorf("the suite does not detect the bug:\n%s", out)
			}
		})
	}
}

// closedPlatform is a platform that refuses everything.
type closedPlatform struct{ err error }

func (c closedPlatform) Check(context.Context, *inventory.VM) error { return c.err }
func (c closedPlatform) Deliver(context.Context, platform.Delivery) (platform.Receipt, error) {
	return platform.Receipt{}, c.err
}
func (c closedPlatform) Withdraw(context.Context, *inventory.VM) error { return c.err }
