package esx

import (
	"context"
	"reflect"
	"time"

	"github.com/vmware/govmomi/session"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/soap"
)

// touchEvery is the interval between calls on an idle session. ESXi ends a session
// after 30 minutes without calls, so two of them may fail.
const touchEvery = 10 * time.Minute

// RoundTrip sends one API call; govmomi calls it. If the session has ended, it logs in
// and repeats the call once.
func (s *connection) RoundTrip(ctx context.Context, req, res soap.HasFault) error {
	seen := s.pass.get()
	err := s.soap.RoundTrip(ctx, req, res)
	if isSessionEnded(err) {
		s.cfg.Log.Debug("session ended", "host", s.end.addr)
		if err := s.renewSession(ctx, seen); err != nil {
			return err
		}
		reflect.ValueOf(res).Elem().SetZero() // the fault would outlive the second answer
		err = s.soap.RoundTrip(ctx, req, res)
	}
	if err == nil {
		s.folder.recordUse(s.cfg.Now())
	}
	return err
}

// startKeepAlive starts the goroutine that touches the session until Close.
func (s *connection) startKeepAlive() {
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.done.Go(func() { s.keepAlive(ctx) })
}

// keepAlive touches the session every 10 minutes until ctx ends. Failures are logged:
// the next call logs in again.
func (s *connection) keepAlive(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.cfg.After(touchEvery):
		}
		if err := s.touchSession(ctx); err != nil && ctx.Err() == nil {
			s.cfg.Log.Warn("keep session alive", "host", s.end.addr, "err", err)
		}
	}
}

// touchSession calls the server to keep the session alive. It logs in again if the
// server no longer knows the session.
func (s *connection) touchSession(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	seen := s.pass.get()
	// The plain client does not renew the session. For an ended session, user is nil.
	plain := &vim25.Client{Client: s.soap, ServiceContent: s.vim.ServiceContent, RoundTripper: s.soap}
	user, err := session.NewManager(plain).UserSession(ctx)
	if err != nil && !isSessionEnded(err) {
		return err
	}
	if user == nil {
		return s.renewSession(ctx, seen)
	}
	s.folder.recordUse(s.cfg.Now())
	return nil
}
