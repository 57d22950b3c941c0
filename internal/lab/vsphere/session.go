package vsphere

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"
	"reflect"
	"sync"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

const (
	sessionCookie = "vmware_soap_session" // cookie with a session ID
	ticketCookie  = "vmware_cgi_ticket"   // cookie with a one-time ticket
)

var (
	// wrong user or password, or a locked account
	errLogin    = errors.New("wrong user or password, or the account is locked")
	errSessions = errors.New("too many sessions") // the limit of sessions is reached
)

// An authState contains the sessions, the lock of the account and the one-time tickets of an endpoint.
type authState struct {
	cfg *Config // configuration with defaults

	mu       sync.Mutex           // guards the fields below
	sessions map[string]time.Time // time of the last SOAP call by session ID
	tickets  map[string]ticket    // unused tickets by ID
	failures int                  // consecutive failed logins
	locked   time.Time            // end of the account's lock
	expired  bool                 // whether the right password is rejected
}

// A ticket permits one request. Only method, path and query must match (HttpServiceRequestSpec, for the
// CGI service of ESXi).
type ticket struct {
	method string     // HTTP method
	path   string     // decoded path
	query  url.Values // parameters
}

// newAuthState returns a state without sessions.
func newAuthState(cfg *Config) *authState {
	return &authState{cfg: cfg, sessions: map[string]time.Time{}, tickets: map[string]ticket{}}
}

// checkPassword checks a login. Five failures in a row lock the account for 900 s, also for the right
// password (Security.AccountLockFailures, AccountUnlockTime).
func (d *authState) checkPassword(user, pass string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if subtle.ConstantTimeCompare([]byte(user), []byte(d.cfg.User)) != 1 {
		return false
	}
	now := d.cfg.now()
	if now.Before(d.locked) { // even the right password fails
		return false
	}
	if !d.expired && subtle.ConstantTimeCompare([]byte(pass), []byte(d.cfg.Password)) == 1 {
		d.failures = 0 // a success resets the count
		return true
	}
	if d.failures++; d.failures >= d.cfg.Sessions.LockAfter {
		d.failures, d.locked = 0, now.Add(time.Duration(d.cfg.Sessions.LockFor))
	}
	return false
}

// refuseLogins sets whether the right password is rejected.
func (d *authState) refuseLogins(expired bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.expired = expired
}

// addSession registers a session that the simulator opened.
func (d *authState) addSession(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sessions[id] = d.cfg.now()
}

// isFull reports whether another session would exceed the limit.
func (d *authState) isFull() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.expireSessions()
	return len(d.sessions) >= d.cfg.Sessions.Max
}

// isSession reports whether id is a session. The check does not count as use: data transfer on /folder
// does not extend a session.
func (d *authState) isSession(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.expireSessions()
	_, ok := d.sessions[id]
	return ok
}

// touchSession records a SOAP call of a session. It returns false if the session does not exist.
func (d *authState) touchSession(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.expireSessions()
	_, ok := d.sessions[id]
	if ok {
		d.sessions[id] = d.cfg.now()
	}
	return ok
}

// removeSession ends a session.
func (d *authState) removeSession(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.sessions, id)
}

// killAll ends all sessions.
func (d *authState) killAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.sessions)
}

// expireSessions ends idle sessions. mu must be held.
func (d *authState) expireSessions() {
	now := d.cfg.now()
	for id, used := range d.sessions {
		if now.Sub(used) >= time.Duration(d.cfg.Sessions.Idle) {
			delete(d.sessions, id)
		}
	}
}

// issueTicket registers a ticket and returns its ID.
func (d *authState) issueTicket(t ticket) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	id := newID()
	d.tickets[id] = t
	return id
}

// redeemTicket reports whether the ticket is for this request. The ticket is used up in any case.
func (d *authState) redeemTicket(id string, r *http.Request) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	t, ok := d.tickets[id]
	delete(d.tickets, id)
	return ok && t.method == r.Method && t.path == r.URL.Path && reflect.DeepEqual(t.query, r.URL.Query())
}

// newID returns 20 random bytes in hex.
func newID() string {
	var b [20]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	return hex.EncodeToString(b[:])
}

// authenticate checks the cookie, ticket or Basic login of a /folder request, and sets the session
// cookie after a Basic login.
func (e *endpoint) authenticate(w http.ResponseWriter, r *http.Request) error {
	if c, err := r.Cookie(sessionCookie); err == nil && e.auth.isSession(c.Value) {
		return nil
	}
	if c, err := r.Cookie(ticketCookie); err == nil && e.auth.redeemTicket(c.Value, r) {
		return nil
	}
	user, pass, ok := r.BasicAuth()
	if !ok || !e.auth.checkPassword(user, pass) {
		return errLogin
	}
	if e.auth.isFull() {
		return errSessions
	}
	return e.startSession(w)
}

// startSession opens a session and sets its cookie.
func (e *endpoint) startSession(w http.ResponseWriter) error {
	id, err := e.openSession()
	if err != nil {
		return err
	}
	e.auth.addSession(id)
	http.SetCookie(w, newCookie(id))
	return nil
}

// newCookie returns the session cookie in the form of real hosts, with quotes around the value.
func newCookie(id string) *http.Cookie {
	return &http.Cookie{Name: sessionCookie, Value: id, Quoted: true, Path: "/", HttpOnly: true, Secure: true}
}

// A sessionManager is the simulator's, with tickets that endpoints accept.
type sessionManager struct {
	*simulator.SessionManager
	lab *Lab // emulator with the endpoints
}

// AcquireGenericServiceTicket issues a one-time ticket for a URL and a method. Every endpoint with
// /folder accepts it, as all hosts of a vCenter accept its tickets.
func (s *sessionManager) AcquireGenericServiceTicket(ctx *simulator.Context, req *types.AcquireGenericServiceTicket) soap.HasFault {
	body := &methods.AcquireGenericServiceTicketBody{}
	spec, ok := req.Spec.(*types.SessionManagerHttpServiceRequestSpec)
	if !ok {
		body.Fault_ = simulator.Fault("", &types.InvalidArgument{InvalidProperty: "spec"})
		return body
	}
	t, err := parseTicketURL(spec.Method, spec.Url)
	if err != nil {
		body.Fault_ = simulator.Fault(err.Error(), &types.InvalidArgument{InvalidProperty: "spec.url"})
		return body
	}
	id := s.lab.listeners.issueTicket(t)
	body.Res = &types.AcquireGenericServiceTicketResponse{Returnval: types.SessionManagerGenericServiceTicket{
		Id: id, HostName: s.lab.main.addr,
	}}
	return body
}
