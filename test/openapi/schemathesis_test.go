// Package openapi fuzzes the server's API from its own document.
package openapi

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/server"
	"github.com/decamp/decamp/internal/server/servertest"
)

// program is what scripts/setup.sh installs, at the version that it says.
const program = "../../build/schemathesis/bin/schemathesis"

func requires(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("fuzzes for seconds")
	}
	if _, err := exec.LookPath(program); err != nil {
		t.Skip("no schemathesis: run scripts/setup.sh test")
	}
}

// Requests that are as the document says, and requests that are not, are answered as it says:
// never with a fault of the server, never with a status or a body that it does not name.
func TestTheAPIIsAsItsDocumentSays(t *testing.T) {
	requires(t)
	var minutes atomic.Int64 // the clock of the throttle, which is not what this test is about
	f := servertest.Start(t, func(c *server.Config) {
		c.Now = func() time.Time { return time.Unix(60*minutes.Add(1), 0) }
	})
	ctx := t.Context()
	for _, plan := range []string{"wave-1", "wave-2"} {
		if err := f.Plan(ctx, plan, 20); err != nil {
			t.Fatal(err)
		}
	}
	claims, err := f.Run(ctx, "wave-1", 1, 5)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Report(ctx, claims, 30); err != nil {
		t.Fatal(err)
	}
	text := fuzz(t, f)
	if n := regexp.MustCompile(`(\d+) generated`).FindStringSubmatch(text); n == nil || len(n[1]) < 3 {
		t.Errorf("fewer than a hundred requests:\n%s", text)
	}
}

// fuzz has schemathesis ask the server, and returns what it says. Event streams do not end, so
// they are left out; requests and their number are the same in each run. That what the document
// allows is taken is not asked: of a plan's text it only says that it is one, and Go takes no
// 3.0 for a whole number.
func fuzz(t *testing.T, f *servertest.Fleet) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	path, err := filepath.Abs(program)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, path, "run", f.URL+"/openapi.json", "--url", f.URL, "--tls-verify", "false",
		"--header", "Authorization: Bearer "+f.Tokens[server.Admin], "--exclude-operation-id", "followEvents",
		"--phases", "examples,coverage,fuzzing", "--checks", "all", "--exclude-checks", "positive_data_acceptance", "--max-examples", "5", "--seed", "1", "--no-shrink", "--no-color",
		"--suppress-health-check", "all", "--request-timeout", "60", "--warnings", "off")
	cmd.Dir = t.TempDir() // it leaves a folder of examples there
	cmd.Env = append(os.Environ(), "PYTHONWARNINGS=ignore", "COLUMNS=200")
	out, err := cmd.CombinedOutput()
	text := strings.ReplaceAll(string(out), f.Tokens[server.Admin], "***")
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return text
}
