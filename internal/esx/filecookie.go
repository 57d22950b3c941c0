package esx

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// cookieLifetime is how long a cookie that only /folder knows is used. It lives 30 minutes
// without use of the API; virt-v2v renews it at the same age.
const cookieLifetime = 25 * time.Minute

// folder is what is known about the cookie for /folder.
type folderCookies struct {
	renewal chan struct{} // holds one token; taken while a cookie is looked after

	mu      sync.Mutex
	lastUse time.Time // of the API session
	checked string    // the pass that /folder was seen to accept
	basic   string    // cookie that /folder gave for Basic, where it refuses the pass
	born    time.Time // of basic
}

func newFolder() *folderCookies {
	f := &folderCookies{renewal: make(chan struct{}, 1)}
	f.renewal <- struct{}{}
	return f
}

// recordUse notes that the API session was in use at t.
func (f *folderCookies) recordUse(t time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lastUse = t
}

// currentCookie returns the cookie to use now, or "" if it must be looked after first.
func (f *folderCookies) currentCookie(pass string, now time.Time) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.basic != "" && now.Sub(f.born) < cookieLifetime:
		return f.basic
	case f.basic == "" && f.checked == pass && now.Sub(f.lastUse) < touchEvery:
		return pass
	}
	return ""
}

// Cookie returns the Cookie header's value for /folder. stale is the one that was just
// refused with 401, or "". It is the API session's own cookie; where a server refuses
// that one, it is what the server gives for Basic authentication, asked for once in 25
// minutes. Callers at the same time share what renewal it takes.
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
	c, err := s.freshCookie(ctx, stale)
	if err != nil {
		return "", fmt.Errorf("open /folder on %s: %w", s.end.addr, classify(err))
	}
	return c, nil
}

func (s *fileReader) freshCookie(ctx context.Context, stale string) (string, error) {
	if s.pass.get() == stale {
		if err := s.renewSession(ctx, stale); err != nil {
			return "", err
		}
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

// basicCookie authenticates once and takes the cookie it is given.
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
		return "", fault.New(fault.Denied, "it takes neither the session's cookie nor gives one of its own (HTTP %d)", status).
			WithHint("check that user %s may browse datastores (Datastore.Browse, Datastore.FileManagement)", s.end.user)
	}
	s.folder.mu.Lock()
	defer s.folder.mu.Unlock()
	s.folder.basic, s.folder.born = cookie, s.cfg.Now()
	return cookie, nil
}

// headFolder asks for nothing but a status. Only 401 tells about the cookie.
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
