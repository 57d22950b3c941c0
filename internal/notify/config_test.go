package notify

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/planfile"
)

func TestMistakesOfTheFile(t *testing.T) {
	key := writeFile(t, "key", whsec, 0o600)
	for name, c := range map[string]struct{ text, want string }{
		"template":         {"subject: '{{.Nothing}}'", ":3: receivers.ops"},
		"template syntax":  {"subject: '{{.Plan'", ":3: receivers.ops.subject"},
		"endless":          {"text: '{{range 100000}}xxxxxxxxxx{{end}}'", "more than 65536 bytes"},
		"kind without key": {"text: '{{.Failure.Text}}'", ":3: receivers.ops"},
	} {
		_, err := Load(writeFile(t, "notify.yaml", fmt.Sprintf("version: 1\nreceivers:\n  ops: {webhook: {url: https://h, secretFile: %q}, %s}", key, c.text), 0o644), Options{})
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), c.want) || fault.HintOf(err) == "" {
			t.Errorf("%s: got %v, want Invalid with %q and a hint", name, err, c.want)
		}
	}
	body := fmt.Sprintf("version: 1\nreceivers:\n  ops: {webhook: {url: https://h, secretFile: %q, body: '{\"a\": {{.Plan}} }'}}", key)
	if _, err := Load(writeFile(t, "notify.yaml", body, 0o644), Options{}); err == nil || !strings.Contains(err.Error(), "not JSON") {
		t.Errorf("body that is not JSON: got %v", err)
	}
}

func TestSecretsAreFilesOfMode0600OrCredentials(t *testing.T) {
	credentials := t.TempDir()
	t.Setenv("CREDENTIALS_DIRECTORY", credentials)
	loadWith := func(webhook string) error {
		_, err := Load(writeFile(t, "notify.yaml", "version: 1\nreceivers: {ops: {webhook: {"+webhook+"}}}", 0o644), Options{Log: slog.New(slog.DiscardHandler)})
		return err
	}
	for name, c := range map[string]struct {
		webhook string
		kind    fault.Kind
	}{
		"open":    {fmt.Sprintf("url: https://h, secretFile: %q", writeFile(t, "key", whsec, 0o644)), fault.Denied},
		"short":   {fmt.Sprintf("url: https://h, secretFile: %q", writeFile(t, "key", "whsec_c2hvcnQ=", 0o600)), fault.Invalid},
		"missing": {"url: https://h, secretFile: /nowhere/key", fault.NotFound},
		"none":    {"url: https://h", fault.NotFound},
		"lines":   {fmt.Sprintf("urlFile: %q", writeFile(t, "url", "https://h\nhttps://i", 0o600)), fault.Invalid},
		"http":    {fmt.Sprintf("urlFile: %q", writeFile(t, "url", "http://h/", 0o600)), fault.Invalid},
	} {
		if err := loadWith(c.webhook); !fault.Is(err, c.kind) || fault.HintOf(err) == "" || strings.Contains(err.Error(), "c2hvcnQ") {
			t.Errorf("%s: got %v, want %v with a hint", name, err, c.kind)
		}
	}
	must(t, loadWith(fmt.Sprintf("urlFile: %q", writeFile(t, "url", "https://h/T0/B0", 0o600))))
	must(t, writeCredential(filepath.Join(credentials, "ops")))
	must(t, loadWith("url: https://h"))
}

func TestDefaultTextsNameObjectCauseAndCommand(t *testing.T) {
	r := loadReceivers(t, fmt.Sprintf("version: 1\nreceivers: {ops: {webhook: {url: https://h, secretFile: %q}}}", writeFile(t, "key", whsec, 0o600)))
	for kind, want := range map[planfile.EventKind][]string{
		planfile.VMFailed:      {"VM sample-vm of plan sample-plan failed", "no space left", "Remedy: free 10 GiB", "esx1.example.com:443, vm-42", "dir:/srv/vm"},
		planfile.PlanFailed:    {"Plan sample-plan failed", "3 done", "1 failed", "decamp status sample-plan"},
		planfile.PlanDone:      {"Plan sample-plan is done", "3 done"},
		planfile.CutoverDue:    {"VM sample-vm of plan sample-plan waits for its cutover", "Estimate: 42s", "decamp cutover sample-plan/vm-42"},
		planfile.OutageOverrun: {"took 6m11s", "Limit: 5m0s", "Estimate: 42s"},
	} {
		e, _, err := r.Preview("ops", Sample(kind))
		must(t, err)
		for _, each := range want {
			if !strings.Contains(e.Subject+"\n"+e.Text, each) {
				t.Errorf("%s: %q is not in %q, %q", kind, each, e.Subject, e.Text)
			}
		}
	}
	if _, _, err := r.Preview("opps", Sample(planfile.PlanDone)); !fault.Is(err, fault.NotFound) || !strings.Contains(fault.HintOf(err), "did you mean ops?") {
		t.Errorf("unknown receiver: got %v, want NotFound with a suggestion", err)
	}
}

func TestSubjectsAreOneLine(t *testing.T) {
	for text, want := range map[string]string{"a\r\nBcc: x\t\x1bb": "a Bcc: x b", strings.Repeat("ü", 300): strings.Repeat("ü", 199) + "…"} {
		if got := oneLine(text); got != want {
			t.Errorf("oneLine(%q) = %q, want %q", text, got, want)
		}
	}
}
