package fleet

import (
	"context"
	"os"
	"os/exec"
	"testing"

	"github.com/decamp/decamp/test/program"
)

// insideEnv is the environment variable that is set if the test binary runs in a separate network namespace.
const insideEnv = "DECAMP_TEST_INSIDE"

// inNamespace runs the test again in a new network namespace. It returns true in that process. In the first process
// it returns false after the end of the second one.
func inNamespace(t *testing.T) bool {
	t.Helper()
	if os.Getenv(insideEnv) != "" {
		return true
	}
	requires(t, "root", "unshare", "ip", "tc")
	ctx, cancel := context.WithTimeout(t.Context(), 4*waitTimeout)
	defer cancel()
	const begin = `mkdir -p /run/netns && mount -t tmpfs none /run/netns && ip link set lo up && exec "$@"`
	cmd := exec.CommandContext(ctx, "unshare", "--net", "--mount", "sh", "-c", begin, "sh", os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), insideEnv+"=1", program.BuiltEnv+"="+binary)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
	return false
}

func runTool(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
}
