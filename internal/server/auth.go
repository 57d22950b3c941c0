package server

import (
	"context"
	"crypto/x509"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/roster"
)

// auth knows who asks.
type auth struct {
	tokens   *Tokens
	sessions *sessions
	throttle *throttle
}

// tooMany is for an address that guessed too often.
type tooMany struct {
	after time.Duration
	error
}

func (t *tooMany) Unwrap() error { return t.error }

// who says who asks: by a bearer token, a client's certificate or a session. Nobody, without
// an error, is who shows nothing.
func (a *auth) who(r *http.Request) (Who, error) {
	from := address(r)
	if secret, ok := bearer(r); ok {
		return a.byToken(secret, from)
	}
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		return byCertificate(r.TLS.VerifiedChains[0][0], from)
	}
	if said, value, ok := a.sessions.read(r); ok {
		if token, ok := a.tokens.named(said.Token, said.Mark); ok {
			return Who{Name: token.Name, Role: token.Role, From: from, Session: value}, nil
		}
	}
	return Who{From: from}, nil
}

// longestSecret bounds what is looked at as a token, in bytes; ours have 50.
const longestSecret = 256

func (a *auth) byToken(secret, from string) (Who, error) {
	token, err := a.login(secret, from)
	return Who{Name: token.Name, Role: token.Role, From: from}, err
}

// login checks a secret. A valid token is accepted at all times: wrong tokens from the same address
// do not lock it out. Only failures are throttled.
func (a *auth) login(secret, from string) (Token, error) {
	token, ok := Token{}, false
	if len(secret) <= longestSecret { // longer ones are not hashed
		token, ok = a.tokens.Check(secret)
	}
	if !ok {
		if wait := a.throttle.wait(from); wait > 0 {
			return Token{}, &tooMany{wait, fault.New(fault.Denied, "too many wrong tokens from %s", from).WithHint("use a valid token, or wait %s before you try another one", wait.Round(time.Second))}
		}
		a.throttle.failed(from)
		return Token{}, fault.New(fault.Denied, "that token is not known, or has expired").WithHint("whoever runs the server makes one with decamp token add NAME --role ROLE")
	}
	return token, nil
}

// byCertificate takes the role from the organizational units of a certificate that our CA
// signed, and the name from its common name.
func byCertificate(c *x509.Certificate, from string) (Who, error) {
	who := Who{Name: c.Subject.CommonName, From: from}
	for _, unit := range c.Subject.OrganizationalUnit {
		if role, err := RoleOf(unit); err == nil && role.May(who.Role) {
			who.Role = role
		}
	}
	if who.Role == Nobody || who.Name == "" {
		return Who{From: from}, fault.New(fault.Denied, "the certificate of %q names no role", c.Subject.CommonName).
			WithHint("it needs a common name, and the organizational unit (OU) view, operate or admin")
	}
	return who, nil
}

func bearer(r *http.Request) (string, bool) {
	scheme, secret, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.TrimSpace(secret), ok && strings.EqualFold(scheme, "Bearer")
}

// address is the peer's. What proxies add to a request is not believed: anybody can add it.
func address(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// permit says who asks if they may, and notes it if they may not. what and on are for the
// audit trail: "cutover", "wave-1/vm-42".
func (s *Server) permit(r *http.Request, need Role, what, on string) (Who, error) {
	who, err := s.auth.who(r)
	switch {
	case need == Nobody:
		return who, nil
	case err == nil && who.Role == Nobody:
		err = errNobody
	case err == nil && who.Session != "" && !reads(r) && strings.HasPrefix(r.URL.Path, "/v1/"):
		err = fault.New(fault.Denied, "a browser's session only reads here").WithHint("use a token: Authorization: Bearer …")
	case err == nil && !who.Role.May(need):
		err = who.refuse(need, what)
	}
	if err != nil {
		s.noteRefusal(r.Context(), who, what, on, err)
	}
	return who, err
}

var errNobody = fault.New(fault.Denied, "who are you?").WithHint("send a token: Authorization: Bearer …, or a client certificate")

func reads(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

// noteRefusal writes a refusal down; those of strangers as long as they are few, or anybody
// could fill the database.
func (s *Server) noteRefusal(ctx context.Context, who Who, what, on string, err error) {
	s.metrics.refused.Inc()
	if who.Role == Nobody && !s.strangers.spend(who.From) {
		return
	}
	if noted := s.note(ctx, who, what, on, err); noted != nil {
		s.log.Error("refusal not noted", "who", who.Name, "from", who.From, "what", what, "on", on, "err", noted)
	}
}

// noteTime is how long a line for the audit trail may take: also one of a request that its
// client gave up.
const noteTime = 10 * time.Second

func (s *Server) note(ctx context.Context, who Who, what, on string, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTime)
	defer cancel()
	e := roster.Entry{Who: who.Name, Role: string(who.Role), From: who.From, What: what, On: short(on)}
	if err != nil {
		e.Err = short(err.Error())
	}
	return s.local.Note(ctx, e)
}

// longestNote bounds what a line of the audit trail quotes, in bytes.
const longestNote = 500

// short makes a text of strangers fit for a line: not long, and nothing that a database or a
// terminal takes amiss.
func short(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '.'
		}
		return r
	}, s[:min(len(s), longestNote)])
	return s
}

// change makes a change that is noted before, and again with its error if it fails. What
// cannot be noted is not done.
func (s *Server) change(ctx context.Context, what, on string, do func() error) error {
	who := whoIn(ctx)
	if err := s.note(ctx, who, what, on, nil); err != nil {
		return err
	}
	err := do()
	if err != nil {
		if noted := s.note(ctx, who, what, on, err); noted != nil {
			s.log.Error("failure not noted", "who", who.Name, "what", what, "on", on, "err", noted)
		}
		return err
	}
	s.log.Info("changed by an operator", "who", who.Name, "what", what, "on", on)
	return nil
}

func (t *tooMany) seconds() string { return strconv.Itoa(int(t.after.Seconds()) + 1) }
