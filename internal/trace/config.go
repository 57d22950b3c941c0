package trace

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// Environment variables of the OpenTelemetry specification. Those that begin with exporterEnv exist
// also with tracesEnv, which takes precedence.
const (
	exporterEnv = "OTEL_EXPORTER_OTLP_"        // variables of all signals
	tracesEnv   = "OTEL_EXPORTER_OTLP_TRACES_" // variables of traces
)

// defaultTimeout is the time limit of a request, as in the specification.
const defaultTimeout = 10 * time.Second

// config is the configuration from the environment.
type config struct {
	endpoint string            // URL of requests
	headers  map[string]string // additional headers, which may contain secrets
	timeout  time.Duration     // time limit of a request
	gzip     bool              // requests are compressed
	client   *http.Client      // sends requests
	resource []attribute       // attributes of this process
}

// New returns a tracer that is configured by the environment; nil if traces are off. It returns
// fault.Invalid for values that cannot be used. version is decamp's release.
func New(env func(string) string, version string, log *slog.Logger) (*Tracer, error) {
	c, err := readConfig(env, version)
	if c == nil || err != nil {
		return nil, err
	}
	return newTracer(newExporter(*c, version, log)), nil
}

// readConfig returns the configuration; nil if traces are off.
func readConfig(env func(string) string, version string) (*config, error) {
	of := func(name string) string { return cmp.Or(env(tracesEnv+name), env(exporterEnv+name)) }
	if strings.EqualFold(env("OTEL_SDK_DISABLED"), "true") || env("OTEL_TRACES_EXPORTER") == "none" || of("ENDPOINT") == "" {
		return nil, nil
	}
	c := &config{endpoint: env(tracesEnv + "ENDPOINT"), timeout: defaultTimeout}
	if c.endpoint == "" {
		c.endpoint = strings.TrimSuffix(env(exporterEnv+"ENDPOINT"), "/") + "/v1/traces"
	}
	if u, err := url.Parse(c.endpoint); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fault.New(fault.Invalid, "the endpoint for traces is not a URL").WithHint("set %sENDPOINT=https://HOST:4318", exporterEnv)
	}
	if p := of("PROTOCOL"); p != "" && p != "http/json" && p != "http/protobuf" {
		return nil, fault.New(fault.Invalid, "protocol %q for traces is not supported", p).WithHint("set %sPROTOCOL=http/json and the port of OTLP over HTTP, 4318", exporterEnv)
	}
	switch of("COMPRESSION") {
	case "", "none":
	case "gzip":
		c.gzip = true
	default:
		return nil, fault.New(fault.Invalid, "compression %q for traces is not supported", of("COMPRESSION")).WithHint("set %sCOMPRESSION=gzip, or unset it", exporterEnv)
	}
	if t := of("TIMEOUT"); t != "" {
		ms, err := strconv.Atoi(t)
		if err != nil || ms <= 0 {
			return nil, fault.New(fault.Invalid, "time limit %q for traces is not a number of milliseconds", t).WithHint("set %sTIMEOUT=10000, or unset it", exporterEnv)
		}
		c.timeout = time.Duration(ms) * time.Millisecond
	}
	var err error
	if c.headers, err = parsePairs(of("HEADERS")); err != nil {
		return nil, fault.New(fault.Invalid, "the headers for traces are not NAME=VALUE,NAME=VALUE").WithHint("correct %sHEADERS", exporterEnv)
	}
	if c.resource, err = resourceOf(env, version); err != nil {
		return nil, err
	}
	c.client, err = newClient(of("CERTIFICATE"))
	return c, err
}

// resourceOf returns the attributes of this process.
func resourceOf(env func(string) string, version string) ([]attribute, error) {
	pairs, err := parsePairs(env("OTEL_RESOURCE_ATTRIBUTES"))
	if err != nil {
		return nil, fault.New(fault.Invalid, "OTEL_RESOURCE_ATTRIBUTES is not NAME=VALUE,NAME=VALUE").WithHint("correct it, or unset it")
	}
	host, _ := os.Hostname() // an empty name is left out
	pairs["service.name"] = cmp.Or(env("OTEL_SERVICE_NAME"), pairs["service.name"], "decamp")
	pairs["service.version"] = version
	pairs["host.name"] = cmp.Or(pairs["host.name"], host)
	var all attributes
	for name, value := range pairs {
		all.setText(name, value)
	}
	all.setInt("process.pid", int64(os.Getpid()))
	return all.sorted(), nil
}

// parsePairs parses NAME=VALUE,NAME=VALUE, in which values are percent-encoded, as W3C Baggage does.
func parsePairs(text string) (map[string]string, error) {
	pairs := map[string]string{}
	for each := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(each) == "" {
			continue
		}
		name, value, found := strings.Cut(each, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if name = strings.TrimSpace(name); !found || name == "" || err != nil {
			return nil, fault.New(fault.Invalid, "not a pair")
		}
		pairs[name] = value
	}
	return pairs, nil
}

// newClient returns a client that verifies the collector with the CA in a file; with those of the
// system if the name is empty. It follows no redirect, which would get the headers.
func newClient(caFile string) (*http.Client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if caFile != "" {
		text, err := os.ReadFile(caFile)
		if err != nil {
			return nil, fault.New(fault.Invalid, "read the CA of the collector: %w", err).WithHint("correct %sCERTIFICATE", exporterEnv)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(text) {
			return nil, fault.New(fault.Invalid, "%s contains no certificate", caFile).WithHint("correct %sCERTIFICATE", exporterEnv)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, nil
}
