// Package otlp tests that OpenTelemetry's collector accepts the traces of decamp. It is a separate module: the collector
// has many dependencies, which decamp does not.
package otlp
