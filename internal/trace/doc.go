// Package trace exports traces of migrations to an OpenTelemetry collector: OTLP over HTTP, encoded as
// JSON. It is off unless the standard environment variables name an endpoint.
//
//	journal.Event -> Tracer.HandleEvent -> span -> exporter -> POST /v1/traces
//
// Spans are derived from the events of runs. An exporter has a bounded queue and drops spans if it is
// full: a collector that is away or slow never delays a migration.
//
// The official SDK with its exporter adds 5 MB to the program, which is more than it may have.
package trace
