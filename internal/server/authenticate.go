package server

import (
	"crypto/x509"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// authenticator identifies the users of requests. It is safe for concurrent use.
type authenticator struct {
	tokens   *Tokens   // API tokens
	sessions *sessions // sessions of browsers
	throttle *throttle // counts wrong tokens by address
}

// identifyUser returns the user of a request, by a bearer token, a client certificate or a session. A
// request without any of them has role Nobody and no error.
func (a *authenticator) identifyUser(r *http.Request) (User, error) {
	from := peerAddress(r)
	if secret, ok := bearerToken(r); ok {
		return a.byToken(secret, from)
	}
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		return byCertificate(r.TLS.VerifiedChains[0][0], from)
	}
	if said, value, ok := a.sessions.readSession(r); ok {
		if token, ok := a.tokens.tokenNamed(said.Token, said.Mark); ok {
			return User{Name: token.Name, Role: token.Role, From: from, Session: value}, nil
		}
	}
	return User{From: from}, nil
}

// maxSecret is the limit of a token, in bytes; tokens of decamp have 50.
const maxSecret = 256

// byToken returns the owner of a token. from is the address of the client.
func (a *authenticator) byToken(secret, from string) (User, error) {
	token, err := a.checkSecret(secret, from)
	return User{Name: token.Name, Role: token.Role, From: from}, err
}

// checkSecret returns the token of a secret, or fault.Denied. A valid token is accepted at all times:
// wrong tokens from the same address do not lock it out. Only failures are throttled.
func (a *authenticator) checkSecret(secret, from string) (Token, error) {
	token, ok := Token{}, false
	if len(secret) <= maxSecret { // longer ones are not hashed
		token, ok = a.tokens.Check(secret)
	}
	if !ok {
		if wait := a.throttle.waitTime(from); wait > 0 {
			return Token{}, &tooManyError{wait, fault.New(fault.Denied, "too many wrong tokens from %s", from).WithHint("use a valid token, or wait %s before you try another one", wait.Round(time.Second))}
		}
		a.throttle.countGuess(from)
		return Token{}, fault.New(fault.Denied, "the token is unknown or has expired").WithHint("an administrator of the server creates one: decamp token add NAME --role ROLE")
	}
	return token, nil
}

// byCertificate returns the user of a certificate that our CA signed: the highest role in its
// organizational units, and its common name.
func byCertificate(c *x509.Certificate, from string) (User, error) {
	who := User{Name: c.Subject.CommonName, From: from}
	for _, unit := range c.Subject.OrganizationalUnit {
		if role, err := RoleOf(unit); err == nil && role.May(who.Role) {
			who.Role = role
		}
	}
	if who.Role == Nobody || who.Name == "" {
		return User{From: from}, fault.New(fault.Denied, "the certificate of %q names no role", c.Subject.CommonName).
			WithHint("it needs a common name, and the organizational unit (OU) view, operate or admin")
	}
	return who, nil
}

// bearerToken returns the token in the Authorization header (RFC 6750). It returns false if the header
// has another scheme.
func bearerToken(r *http.Request) (string, bool) {
	scheme, secret, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.TrimSpace(secret), ok && strings.EqualFold(scheme, "Bearer")
}

// peerAddress returns the IP address of the client. Headers of proxies are ignored, because any client
// can add them.
func peerAddress(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
