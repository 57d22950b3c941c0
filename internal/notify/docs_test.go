package notify

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/planfile"
)

// docBlock returns the indented block of the documentation that begins with a line.
func docBlock(t *testing.T, first string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/notifications.md")
	must(t, err)
	_, rest, found := strings.Cut(string(text), "\n    "+first+"\n")
	if !found {
		t.Fatalf("the documentation has no block %q", first)
	}
	lines := []string{first}
	for line := range strings.Lines(rest) {
		if !strings.HasPrefix(line, "    ") {
			break
		}
		lines = append(lines, strings.TrimRight(line[4:], "\n"))
	}
	return strings.Join(lines, "\n") + "\n"
}

func TestDocumentedFileIsValid(t *testing.T) {
	n, found := planfile.ParseNotify([]byte(docBlock(t, "version: 1")))
	if len(found) > 0 || len(n.Receivers) != 3 {
		t.Errorf("the documented file is parsed as %+v with mistakes %v", n, found)
	}
	chat := "version: 1\nreceivers:\n  " + strings.ReplaceAll(docBlock(t, "chat:"), "\n", "\n  ")
	if _, found := planfile.ParseNotify([]byte(chat)); len(found) > 0 {
		t.Errorf("the documented chat service has mistakes %v", found)
	}
}

// The documented verification accepts a request, and refuses a changed one.
func TestDocumentedVerification(t *testing.T) {
	h := newHook(t)
	must(t, loadReceivers(t, "version: 1\nreceivers: {ops: {webhook: "+h.config(t)+"}}").Test(t.Context(), "ops", Sample(planfile.VMFailed)))
	req, body := h.next()
	program := docBlock(t, "import base64, hashlib, hmac") + `
import sys
headers = dict(zip(["Webhook-Id", "Webhook-Timestamp", "Webhook-Signature"], sys.argv[2:]))
body = sys.stdin.buffer.read()
print(verify(sys.argv[1], headers, body), verify(sys.argv[1], headers, body + b" "))
`
	cmd := exec.Command("/usr/bin/python3", "-c", program, whsec, req.Header.Get("Webhook-Id"), req.Header.Get("Webhook-Timestamp"), req.Header.Get("Webhook-Signature"))
	cmd.Stdin = strings.NewReader(body)
	out, err := cmd.CombinedOutput()
	if err != nil || string(out) != "True False\n" {
		t.Errorf("the documented program printed %q, %v; want True False", out, err)
	}
}
