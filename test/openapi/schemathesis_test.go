// Package openapi fuzzes the API of the server according to its OpenAPI document.
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

// schemathesis is the path of the program that scripts/setup.sh installs.
const schemathesis = "../../build/schemathesis/bin/schemathesis"

func requireSchemathesis(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("fuzzes for seconds")
	}
	if _, err := exec.LookPath(schemathesis); err != nil {
		t.Skip("no schemathesis: run scripts/setup.sh test")
	}
}

// The answers to valid and invalid requests match the OpenAPI document. The server never returns a 5xx status, or a status
// or body that the document does not define.
func TestAPIMatchesOpenAPIDocument(t *testing.T) {
	requireSchemathesis(t)
	var minutes atomic.Int64 // clock of the throttle, one minute later at each call, so that it refuses no request
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
	text := runSchemathesis(t, f)
	if n := regexp.MustCompile(`(\d+) generated`).FindStringSubmatch(text); n == nil || len(n[1]) < 3 {
		t.Errorf("fewer than 100 generated requests:\n%s", text)
	}
}

// runSchemathesis runs schemathesis against the server and returns its output. Each run sends the same requests. It
// excludes event streams, because they do not end. It does not check that the server accepts all valid data: the document
// does not define the syntax of a plan, and Go does not accept 3.0 as an integer.
func runSchemathesis(t *testing.T, f *servertest.Fleet) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	path, err := filepath.Abs(schemathesis)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, path, "run", f.URL+"/openapi.json", "--url", f.URL, "--tls-verify", "false",
		"--header", "Authorization: Bearer "+f.Tokens[server.Admin], "--exclude-operation-id", "followEvents",
		"--phases", "examples,coverage,fuzzing", "--checks", "all", "--exclude-checks", "positive_data_acceptance", "--max-examples", "5", "--seed", "1", "--no-shrink", "--no-color",
		"--suppress-health-check", "all", "--request-timeout", "60", "--warnings", "off")
	cmd.Dir = t.TempDir() // schemathesis creates a folder of examples there
	cmd.Env = append(os.Environ(), "PYTHONWARNINGS=ignore", "COLUMNS=200")
	out, err := cmd.CombinedOutput()
	text := strings.ReplaceAll(string(out), f.Tokens[server.Admin], "***")
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return text
}
