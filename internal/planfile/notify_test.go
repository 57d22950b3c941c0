package planfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/fault"
)

func TestNotificationFile(t *testing.T) {
	n, found := ParseNotify([]byte(`version: 1
receivers:
  ops:
    webhook: {url: "https://ops.example.com/decamp", secretFile: /etc/decamp/ops.key}
    events: [vm-failed, outage-overrun]
    plans: [wave-*]
    giveUpAfter: 2h
  team:
    email: {server: "smtp.example.com:587", user: decamp, passwordFile: /etc/decamp/smtp, from: decamp@example.com, to: [a@example.com, "B <b@example.com>"]}
    subject: "decamp: {{.Subject}}"
  page:
    command: {run: [/usr/local/bin/page, --urgent], timeout: 10s}
`))
	if len(found) > 0 {
		t.Fatal(found)
	}
	if ops := n.Receivers["ops"]; ops.Webhook.URL != "https://ops.example.com/decamp" || len(ops.Events) != 2 || ops.Plans[0] != "wave-*" || ops.GiveUpAfter == 0 {
		t.Errorf("got receiver %+v", ops)
	}
	if team := n.Receivers["team"]; team.Email.User != "decamp" || len(team.Email.To) != 2 || team.Subject == "" {
		t.Errorf("got receiver %+v", team)
	}
}

// Each mistake is reported at its line, with a remedy.
func TestMistakesOfNotificationFiles(t *testing.T) {
	for name, c := range map[string]struct {
		receiver, want, remedy string
		line                   int
	}{
		"unknown key":      {"webhok: {url: https://h}", `unknown key "webhok"`, "did you mean webhook?", 4},
		"secret":           {"webhook: {url: https://h, secret: abc}", `unknown key "secret"`, "secretFile", 4},
		"none":             {"events: [vm-failed]", "exactly one of", "set one", 3},
		"two":              {"webhook: {url: https://h}\n    command: {run: [/bin/true]}", "exactly one of", "two receivers", 3},
		"unknown event":    {"webhook: {url: https://h}\n    events: [vm-faild]", `"vm-faild" is not one of`, "did you mean vm-failed?", 5},
		"pattern":          {"webhook: {url: https://h}\n    plans: ['[']", "not a pattern", "*", 5},
		"clear":            {"webhook: {url: http://h/x}", "only to a loopback address", "https", 4},
		"user":             {"webhook: {url: 'https://me:pw@h/x'}", "must not contain a user name", "https", 4},
		"scheme":           {"webhook: {url: 'file:///etc/passwd'}", "not a URL", "https", 4},
		"gopher":           {"webhook: {url: 'gopher://h/'}", "does not begin with https", "https", 4},
		"both URLs":        {"webhook: {url: https://h, urlFile: /f}", "exactly one of url", "urlFile", 4},
		"relative":         {"webhook: {url: https://h, secretFile: key}", "not an absolute path", "absolute", 4},
		"relative program": {"command: {run: [page]}", "not an absolute path", "absolute", 4},
		"no program":       {"command: {timeout: 1s}", "run is missing", "run:", 4},
		"port":             {"email: {server: h, from: a@b, to: [a@b]}", "with its port", "587", 4},
		"mail in clear":    {"email: {server: 'h:25', tls: none, from: a@b, to: [a@b]}", "only to a loopback address", "starttls", 4},
		"address":          {"email: {server: 'h:25', from: a@b, to: [ops]}", `"ops" is not a mail address`, "NAME@HOST", 4},
		"no recipient":     {"email: {server: 'h:25', from: a@b}", "to is missing", "to:", 4},
		"injected":         {"email: {server: 'h:25', from: a@b, to: [\"a@b\\r\\nBcc: c@d\"]}", "not a mail address", "NAME@HOST", 4},
	} {
		_, found := ParseNotify([]byte("version: 1\nreceivers:\n  ops:\n    " + c.receiver + "\n"))
		if len(found) == 0 || found[0].Line != c.line || !strings.Contains(found[0].Text, c.want) || !strings.Contains(found[0].Remedy, c.remedy) {
			t.Errorf("%s: got findings %+v", name, found)
		}
	}
}

func TestWritableNotificationFileIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), NotifyFile)
	if _, err := LoadNotify(path); !fault.Is(err, fault.NotFound) || fault.HintOf(err) == "" {
		t.Errorf("a missing file: %v", err)
	}
	if err := os.WriteFile(path, []byte("version: 1\nreceivers: {ops: {command: {run: [/bin/true]}}}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadNotify(path); err != nil {
		t.Error(err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadNotify(path); !fault.Is(err, fault.Denied) || !strings.Contains(fault.HintOf(err), "chmod go-w") {
		t.Errorf("a file that other users may write: %v", err)
	}
}
