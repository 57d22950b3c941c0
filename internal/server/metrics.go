package server

import (
	"bytes"
	"compress/gzip"
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"strings"

	"github.com/decamp/decamp/internal/exposition"
	"github.com/decamp/decamp/internal/fleetdb"
)

// metricsHandler serves the metrics.
type metricsHandler struct {
	gate    *gate             // authorizes requests
	metrics *metrics          // counters of this process
	fleet   *fleetdb.Database // plans, VMs, workers, limits and counters
	cache   *fleetCache       // progress and scheduler state
	hub     *hub              // number of event clients
	log     *slog.Logger      // receives outages of the database
}

// ServeHTTP returns the metrics in the text format, which every Prometheus accepts. While the database does
// not respond, they are those of this process.
func (h *metricsHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, err := h.gate.permitRequest(r, View, "read the metrics", r.URL.Path); err != nil {
		problemOf(err).writeTo(w)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), scrapeTime)
	defer cancel()
	families, err := h.readFamilies(ctx)
	if err != nil {
		h.log.Warn("metrics of the fleet not read", "err", err)
	}
	up := newGauge("decamp_database_up", "Whether the fleet database responds. If it is 0, all metrics of the fleet are missing.")
	up.Add(boolValue(err == nil))
	clients := newGauge("decamp_event_clients", "Clients that follow the events.")
	clients.Add(float64(h.hub.clientCount()))
	families = append(append(families, up, clients), h.metrics.counterFamilies()...)
	families = append(families, exposition.Runtime()...)
	text := exposition.Text(append(families, exposition.Process()...))
	w.Header().Set("Content-Type", exposition.ContentType)
	if acceptsGzip(r.Header) {
		w.Header().Set("Content-Encoding", "gzip")
		text = gzipText(text)
	}
	_, _ = w.Write(text) // the client is gone if it fails
}

// acceptsGzip reports whether a client accepts a compressed response (RFC 9110, section 12.5.3).
func acceptsGzip(h http.Header) bool {
	for coding := range strings.SplitSeq(strings.Join(h.Values("Accept-Encoding"), ","), ",") {
		name, q, weighted := strings.Cut(coding, ";")
		if name = strings.TrimSpace(name); name != "gzip" && name != "*" {
			continue
		}
		weight, err := strconv.ParseFloat(strings.TrimPrefix(strings.TrimSpace(q), "q="), 64)
		return !weighted || err == nil && weight > 0
	}
	return false
}

// gzipText compresses text in memory.
func gzipText(text []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(text) // into memory
	_ = z.Close()
	return b.Bytes()
}
