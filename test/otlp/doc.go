// Package otlp tests that OpenTelemetry's collector accepts the traces of decamp. It is a separate module, so that decamp
// does not depend on the collector for its tests.
package otlp
