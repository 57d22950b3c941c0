package fleet

import (
	"context"
	"os"
	"os/exec"
	"testing"

	"github.com/decamp/decamp/test/program"
)

// insideEnv is set if the test binary runs in its own network namespace.
const insideEnv = "DECAMP_TEST_INSIDE"

// inside runs the test again where it has networks of its own, which go with it. It returns true
// there, and false where the test began and is already over.
func inside(t *testing.T) bool {
	t.Helper()
	if os.Getenv(insideEnv) != "" {
		return true
	}
	requires(t, "root", "unshare", "ip", "tc")
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
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

func tool(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
}
