package server

import (
	"context"
	"fmt"
	"net/http"

	"github.com/decamp/decamp/internal/fault"
)

// serveHealth reports that the process serves. It does not query the database: an unreachable database
// is no reason to restart the process.
func serveHealth(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }

// serveReady reports whether the server can handle requests. The body of an error does not contain the
// address of the database.
func (s *Server) serveReady(w http.ResponseWriter, r *http.Request) {
	if err := s.checkReady(r.Context()); err != nil {
		problemOf(err).writeTo(w)
		return
	}
	fmt.Fprintln(w, "ready")
}

// checkReady returns an error if the server stops, or if the database does not respond within
// readyTime.
func (s *Server) checkReady(ctx context.Context) error {
	if s.draining.Load() {
		return fault.New(fault.Transient, "the server stops")
	}
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	if _, err := s.config.Database.Now(ctx); err != nil {
		s.log.Warn("not ready", "err", err)
		return errAway
	}
	return nil
}
