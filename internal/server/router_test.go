package server

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/decamp/decamp/internal/fleetdb"
)

func TestPanicIsAProblemResponse(t *testing.T) {
	s, err := New(Config{Database: &fleetdb.Database{}, State: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	h := s.router.guardHandler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("secret") }))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/v1/plans", nil))
	if w.Code != http.StatusInternalServerError || w.Header().Get("Content-Type") != problemType {
		t.Errorf("got status %d, body %s; want a problem with status 500", w.Code, w.Body)
	}
}
