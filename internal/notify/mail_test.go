package notify

import (
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"mime/quotedprintable"
	"net/mail"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/planfile"
)

// receivedMail is a mail as testdata/smtpd.py prints it.
type receivedMail struct {
	From, Login, Content string
	To                   []string
	TLS                  bool
}

func (m *mailServer) next(t *testing.T) receivedMail {
	t.Helper()
	var got receivedMail
	if !m.out.Scan() {
		t.Fatal("the mail server has ended")
	}
	must(t, json.Unmarshal(m.out.Bytes(), &got))
	return got
}

func TestMailReachesARealServer(t *testing.T) {
	password := writeFile(t, "password", "correct-horse\n", 0o600)
	for _, c := range []struct {
		mode, methods string
		tls, login    bool
	}{{"starttls", "PLAIN LOGIN", true, true}, {"tls", "LOGIN", true, true}, {"plain", "", false, false}} {
		t.Run(c.mode, func(t *testing.T) {
			m := startMail(t, c.mode, c.methods)
			config := fmt.Sprintf("{server: 'localhost:%s', caFile: %q, from: 'Decamp <decamp@example.com>', to: [ops@example.com, refused@example.com]", m.port, m.cert)
			config += map[string]string{"starttls": "", "tls": ", tls: tls", "plain": ", tls: none"}[c.mode]
			if c.login {
				config += fmt.Sprintf(", user: decamp, passwordFile: %q", password)
			}
			r := loadReceivers(t, "version: 1\nreceivers: {ops: {email: "+config+"}, subject: 'ÄÖÜ {{.Plan}}', text: \"Grüße\\n.\\nEnd\\n\"}}")
			e := Sample(planfile.PlanFailed)
			must(t, r.Test(t.Context(), "ops", e))
			got := m.next(t)
			if got.From != "decamp@example.com" || !slices.Equal(got.To, []string{"ops@example.com"}) || got.TLS != c.tls || (got.Login == "decamp") != c.login {
				t.Errorf("received %+v", got)
			}
			letter, err := mail.ReadMessage(strings.NewReader(got.Content))
			must(t, err)
			subject, err := new(mime.WordDecoder).DecodeHeader(letter.Header.Get("Subject"))
			must(t, err)
			text, err := io.ReadAll(quotedprintable.NewReader(letter.Body))
			must(t, err)
			if subject != "ÄÖÜ sample-plan" || strings.ReplaceAll(string(text), "\r", "") != "Grüße\n.\nEnd\n" || letter.Header.Get("Message-ID") != "<"+e.ID+"@example.com>" {
				t.Errorf("subject %q, text %q, header %v", subject, text, letter.Header)
			}
			if to, err := letter.Header.AddressList("To"); err != nil || len(to) != 2 {
				t.Errorf("to %v, %v", to, err)
			}
		})
	}
}

func TestMailRequiresVerifiedEncryptedServer(t *testing.T) {
	secure, plain := startMail(t, "starttls", "PLAIN"), startMail(t, "plain", "")
	wrong := writeFile(t, "password", "wrong", 0o600)
	for name, c := range map[string]struct{ config, want string }{
		"no STARTTLS":    {fmt.Sprintf("server: 'localhost:%s', caFile: %q, to: [a@example.com]", plain.port, plain.cert), "offers no STARTTLS"},
		"other CA":       {fmt.Sprintf("server: 'localhost:%s', caFile: %q, to: [a@example.com]", secure.port, plain.cert), "certificate"},
		"wrong password": {fmt.Sprintf("server: 'localhost:%s', caFile: %q, to: [a@example.com], user: decamp, passwordFile: %q", secure.port, secure.cert, wrong), "log in to the mail server: 535"},
		"refused":        {fmt.Sprintf("server: 'localhost:%s', tls: none, to: [refused@example.com]", plain.port), "refused refused@example.com: 550"},
	} {
		err := loadReceivers(t, "version: 1\nreceivers: {ops: {email: {from: d@example.com, "+c.config+"}}}").Test(t.Context(), "ops", Sample(planfile.PlanDone))
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "correct-horse") {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}
