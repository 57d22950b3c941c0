package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
)

// secretTests matches the tests that search for passwords, tokens and keys: in files of
// the state folder, logs, journals, output, arguments and environments of processes,
// dumps of databases, and responses of the API.
const secretTests = "^(TestSecretsAreOnlyInTheirFiles|TestWorkerSecretsAreOnlyInTheirFiles|TestPasswordIsOnlyInItsFile|" +
	"TestNoSecretIsInTheFiles|TestTokenIsNotPrinted|TestFormattedClusterContainsNoSecrets|TestOutputContainsNoSecrets|TestPlanHoldsNoPassword)$"

// secretsFound runs these tests and counts those that fail or are skipped.
func secretsFound(ctx context.Context, b *bench) error {
	cmd := exec.CommandContext(ctx, "go", "test", "-count", "1", "-json", "-run", secretTests, "./internal/journal", "./internal/server",
		"./internal/targets/...", "./test/cli", "./test/fleet")
	out, _ := cmd.Output() // a failed test is a row, and no error
	passed, failed := 0, 0
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		var event struct{ Action, Test string }
		// Subtests are part of their test.
		if json.Unmarshal(lines.Bytes(), &event) != nil || event.Test == "" || bytes.ContainsRune([]byte(event.Test), '/') {
			continue
		}
		switch event.Action {
		case "pass":
			passed++
		case "fail", "skip":
			failed++
		}
	}
	const tests = 8
	if passed+failed != tests {
		return fmt.Errorf("%d of %d tests that look for secrets ran", passed+failed, tests)
	}
	b.atMost(0, Row{Figure: "secrets found in logs, arguments, journals, databases, API answers", Value: float64(failed), Unit: "tests",
		Note: fmt.Sprintf("%d tests look for the secrets they use", tests)})
	return nil
}
