package notify

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"mime"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"net/smtp"
	"os"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/planfile"
)

// mailTime is the time limit of a connection to a mail server.
const mailTime = time.Minute

// mailSender sends electronic mail.
type mailSender struct {
	server   string                // host:port
	security planfile.MailSecurity // protection of the connection
	tls      *tls.Config           // verifies the server
	user     string                // user name; empty: no login
	password string                // password of user
	from     *mail.Address         // address of the sender
	to       []*mail.Address       // addresses of the recipients
	log      *slog.Logger          // receives refused recipients
}

// newMailSender returns the sender of an Email, whose addresses are valid.
func newMailSender(name string, m planfile.Email, log *slog.Logger) (*mailSender, error) {
	s := &mailSender{server: string(m.Server), security: m.TLS, user: string(m.User), log: log}
	if s.security == "" {
		s.security = planfile.StartTLS
	}
	host, _, err := net.SplitHostPort(s.server)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err)
	}
	if s.tls, err = tlsConfig(host, string(m.CAFile)); err != nil {
		return nil, err
	}
	if s.user != "" {
		if s.password, err = readSecret(name, string(m.PasswordFile), "password"); err != nil {
			return nil, err
		}
	}
	if s.from, err = mail.ParseAddress(string(m.From)); err != nil {
		return nil, fault.Wrap(fault.Invalid, err)
	}
	for _, each := range m.To {
		to, err := mail.ParseAddress(string(each))
		if err != nil {
			return nil, fault.Wrap(fault.Invalid, err)
		}
		s.to = append(s.to, to)
	}
	return s, nil
}

// send implements sender. It succeeds if the server accepted the mail for one recipient at least.
func (s *mailSender) send(ctx context.Context, e Event, _ []byte) error {
	ctx, cancel := context.WithTimeout(ctx, mailTime)
	defer cancel()
	c, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := s.logIn(c); err != nil {
		return err
	}
	if err := c.Mail(s.from.Address); err != nil {
		return fmt.Errorf("the mail server refused the sender: %w", err)
	}
	var refused []error
	for _, to := range s.to {
		if err := c.Rcpt(to.Address); err != nil {
			refused = append(refused, fmt.Errorf("the mail server refused %s: %w", to.Address, err))
		}
	}
	if err := errors.Join(refused...); len(refused) == len(s.to) {
		return err
	} else if err != nil {
		s.log.Warn("recipients of a notification were refused", "err", err)
	}
	w, err := c.Data()
	if err != nil {
		return err
	}
	if _, err := w.Write(s.compose(e, time.Now())); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	_ = c.Quit() // the mail is accepted
	return nil
}

// connect opens a connection, and protects it.
func (s *mailSender) connect(ctx context.Context) (*smtp.Client, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", s.server)
	if err != nil {
		return nil, err
	}
	if at, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(at) // fails only on a closed connection
	}
	if s.security == planfile.FullTLS {
		conn = tls.Client(conn, s.tls)
	}
	c, err := smtp.NewClient(conn, s.tls.ServerName)
	if err != nil {
		conn.Close()
		return nil, err
	}
	if err := s.greet(c); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// greet sends the name of this machine and starts TLS.
func (s *mailSender) greet(c *smtp.Client) error {
	name, err := os.Hostname()
	if err != nil || strings.ContainsAny(name, "\r\n ") || name == "" {
		name = "localhost"
	}
	if err := c.Hello(name); err != nil {
		return err
	}
	if s.security != planfile.StartTLS {
		return nil
	}
	if ok, _ := c.Extension("STARTTLS"); !ok {
		return errors.New("the mail server offers no STARTTLS; nothing was sent")
	}
	return c.StartTLS(s.tls)
}

// logIn logs in if a user is configured, with PLAIN or LOGIN. Neither is used without TLS, except to
// this machine.
func (s *mailSender) logIn(c *smtp.Client) error {
	if s.user == "" {
		return nil
	}
	_, methods := c.Extension("AUTH")
	host := s.tls.ServerName
	var login smtp.Auth
	for _, method := range strings.Fields(methods) {
		switch {
		case method == "PLAIN":
			login = smtp.PlainAuth("", s.user, s.password, host)
		case method == "LOGIN" && login == nil:
			login = &loginAuth{s.user, s.password, host}
		}
	}
	if login == nil {
		return errors.New("the mail server offers no login with PLAIN or LOGIN")
	}
	if err := c.Auth(login); err != nil {
		return fmt.Errorf("log in to the mail server: %w", err)
	}
	return nil
}

// loginAuth is the method LOGIN, which some servers offer instead of PLAIN.
type loginAuth struct{ user, password, host string }

// Start implements smtp.Auth.
func (a *loginAuth) Start(server *smtp.ServerInfo) (string, []byte, error) {
	if !server.TLS && !planfile.IsLoopback(a.host) {
		return "", nil, errors.New("unencrypted connection")
	}
	return "LOGIN", nil, nil
}

// Next implements smtp.Auth. The server requests first the user name, then the password.
func (a *loginAuth) Next(request []byte, more bool) ([]byte, error) {
	switch {
	case !more:
		return nil, nil
	case strings.HasPrefix(strings.ToLower(string(request)), "user"):
		return []byte(a.user), nil
	case strings.HasPrefix(strings.ToLower(string(request)), "pass"):
		return []byte(a.password), nil
	}
	return nil, errors.New("the mail server sent an unknown request")
}

// compose returns the mail about an event, as RFC 5322 specifies it. Its Message-ID is the same for
// each attempt.
func (s *mailSender) compose(e Event, now time.Time) []byte {
	var to []string
	for _, each := range s.to {
		to = append(to, each.String())
	}
	_, domain, _ := strings.Cut(s.from.Address, "@")
	var b bytes.Buffer
	for _, line := range [][2]string{
		{"From", s.from.String()}, {"To", strings.Join(to, ",\r\n ")}, {"Subject", mime.QEncoding.Encode("utf-8", e.Subject)},
		{"Date", now.Format(time.RFC1123Z)}, {"Message-ID", "<" + e.ID + "@" + domain + ">"},
		{"Auto-Submitted", "auto-generated"}, {"X-Decamp-Event", string(e.Kind)},
		{"MIME-Version", "1.0"}, {"Content-Type", "text/plain; charset=utf-8"}, {"Content-Transfer-Encoding", "quoted-printable"},
	} {
		b.WriteString(line[0] + ": " + line[1] + "\r\n")
	}
	b.WriteString("\r\n")
	w := quotedprintable.NewWriter(&b)
	_, _ = w.Write([]byte(strings.ReplaceAll(e.Text, "\n", "\r\n"))) // into memory
	_ = w.Close()
	return b.Bytes()
}
