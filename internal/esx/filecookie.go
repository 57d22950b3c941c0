package esx

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// cookieLifetime is the age at which a cookie that is valid for /folder only is
// renewed. ESXi ends such a session after 30 minutes without API calls. virt-v2v renews
// it at the same age.
const cookieLifetime = 25 * time.Minute

// folderCookies contains the state of the cookie for /folder. It is safe for concurrent
// use.
type folderCookies struct {
	renewal chan struct{} // contains one token; the holder may renew the cookie

	mu      sync.Mutex // protects the fields below
	lastUse time.Time  // time of the last successful API call; each call extends the session
	checked string     // session cookie that /folder accepted; empty if none
	basic   string     // cookie from Basic authentication; empty if /folder accepts the session cookie
	born    time.Time  // time at which basic was received
}

// newFolder returns a state without a cookie.
func newFolder() *folderCookies {
	f := &folderCookies{renewal: make(chan struct{}, 1)}
	f.renewal <- struct{}{}
	return f
}

// recordUse records that the API session was used at t. mu must not be held.
func (f *folderCookies) recordUse(t time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lastUse = t
}

// currentCookie returns the cookie to use now, or "" if the caller must verify or renew
// it first. pass is the session cookie. mu must not be held.
func (f *folderCookies) currentCookie(pass string, now time.Time) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.basic != "" && now.Sub(f.born) < cookieLifetime:
		return f.basic
	// The session cookie is valid while API calls keep the session alive.
	case f.basic == "" && f.checked == pass && now.Sub(f.lastUse) < touchEvery:
		return pass
	}
	return ""
}

// Cookie returns the value of the Cookie header for /folder. stale is the cookie that
// /folder refused with 401, or "". The result is the API session's cookie or, if the
// server refuses that, a cookie from Basic authentication, which is requested once in
// 25 minutes. Concurrent callers share one renewal.
func (s *fileReader) Cookie(ctx context.Context, stale string) (string, error) {
	if c := s.folder.currentCookie(s.pass.get(), s.cfg.Now()); c != "" && c != stale {
		return c, nil
	}
	select {
	case <-s.folder.renewal:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	defer func() { s.folder.renewal <- struct{}{} }()
	if c := s.folder.currentCookie(s.pass.get(), s.cfg.Now()); c != "" && c != stale {
		return c, nil
	}
	// Another caller may have renewed the cookie while this one waited; that was
	// checked above.
	c, err := s.freshCookie(ctx, stale)
	if err != nil {
		return "", fmt.Errorf("open /folder on %s: %w", s.end.addr, classify(err))
	}
	return c, nil
}

// freshCookie renews or touches the session, and verifies that /folder accepts its
// cookie. The caller must hold the renewal token.
func (s *fileReader) freshCookie(ctx context.Context, stale string) (string, error) {
	if s.pass.get() == stale {
		if err := s.renewSession(ctx, stale); err != nil {
			return "", err
		}
		// The session cookie was not refused. A call ensures that its session still
		// exists.
	} else if err := s.touchSession(ctx); err != nil {
		return "", err
	}
	pass := s.pass.get()
	status, _, err := s.headFolder(ctx, func(r *http.Request) { r.Header.Set("Cookie", pass) })
	switch {
	case err != nil:
		return "", err
	case status == http.StatusUnauthorized:
		return s.basicCookie(ctx)
	}
	s.folder.mu.Lock()
	defer s.folder.mu.Unlock()
	s.folder.checked, s.folder.basic = pass, ""
	return pass, nil
}

// basicCookie authenticates once with user and password, and returns the cookie of the
// response. A server that returns no cookie is fault.Denied.
func (s *fileReader) basicCookie(ctx context.Context) (string, error) {
	secret, err := s.readSecret(ctx)
	if err != nil {
		return "", err
	}
	status, header, err := s.headFolder(ctx, func(r *http.Request) { r.SetBasicAuth(s.end.user, string(secret)) })
	if err != nil {
		return "", err
	}
	if status == http.StatusUnauthorized {
		return "", s.loginError(&statusError{status})
	}
	cookie := sessionCookie(header)
	if cookie == "" {
		return "", fault.New(fault.Denied, "it neither accepts the session's cookie nor returns another (HTTP %d)", status).
			WithHint("check that user %s may browse datastores (Datastore.Browse, Datastore.FileManagement)", s.end.user)
	}
	s.folder.mu.Lock()
	defer s.folder.mu.Unlock()
	s.folder.basic, s.folder.born = cookie, s.cfg.Now()
	return cookie, nil
}

// headFolder sends a HEAD request for /folder and returns status and headers. auth adds
// the credentials. Only status 401 means that they were refused: the user may lack
// privileges for the list.
func (s *fileReader) headFolder(ctx context.Context, auth func(*http.Request)) (int, http.Header, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, "https://"+s.end.addr+"/folder", nil)
	if err != nil {
		return 0, nil, err
	}
	auth(req)
	res, err := s.web.Do(req)
	if err != nil {
		return 0, nil, err
	}
	res.Body.Close()
	return res.StatusCode, res.Header, nil
}
