// Package client is a server.Control that sends requests to a decamp server, for commands with
// --server.
//
// Errors have the kind and the remedy of the server. An unreachable server is fault.Unreachable; a
// server with an unexpected certificate receives no data.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/proxy"
	"github.com/decamp/decamp/internal/server"
)

// Config contains the address of the server and the credentials.
type Config struct {
	URL         string // https://host:port
	Token       string // secret of an API token; without it the client certificate identifies the user
	Fingerprint string // SHA-256 of the server's certificate, AB:CD:…; without it a CA must have signed the certificate
	CA          string // PEM file with the CA of the server's certificate; without it the CAs of the system
	Cert, Key   string // PEM files of the client's own certificate
}

// Client sends requests to a server. Its methods may be called concurrently.
type Client struct {
	base  *url.URL     // address of the server, without a slash at the end
	token string       // secret for the Authorization header; "" sends none
	http  *http.Client // connections; redirects are not followed
}

// Times of one request. A server on the other side of a slow link answers within seconds.
const (
	dialTime   = 10 * time.Second // limit of opening a connection, and of the TLS handshake
	answerTime = 60 * time.Second // limit of a request and its response
)

// maxAnswer is the limit of a response, in bytes. A page of 1,000 VMs has less than 2 MiB.
const maxAnswer = 64 << 20

// New returns a client. It sends no request. A configuration that would send the token in clear over a
// network is fault.Invalid.
func New(c Config) (*Client, error) {
	base, err := url.Parse(strings.TrimSuffix(c.URL, "/"))
	if err != nil || base.Host == "" || base.Scheme != "https" && base.Scheme != "http" {
		return nil, fault.New(fault.Invalid, "%q is no address of a server", c.URL).WithHint("it looks like https://host:8470")
	}
	if err := checkScheme(base, c); err != nil {
		return nil, err
	}
	conf, err := tlsConfig(c)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		TLSClientConfig: conf, ForceAttemptHTTP2: true,
		DialContext:         (&net.Dialer{Timeout: dialTime}).DialContext,
		TLSHandshakeTimeout: dialTime, ResponseHeaderTimeout: answerTime, MaxIdleConnsPerHost: 2,
	}
	return &Client{base: base, token: strings.TrimSpace(c.Token), http: &http.Client{Transport: proxy.Wrap(transport), CheckRedirect: noRedirect}}, nil
}

// noRedirect makes redirects errors, so that the token is not sent to another server.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// checkScheme returns fault.Invalid if the token would be sent in clear over a network.
func checkScheme(base *url.URL, c Config) error {
	ip := net.ParseIP(base.Hostname())
	if base.Scheme == "https" || c.Token == "" || base.Hostname() == "localhost" || ip != nil && ip.IsLoopback() {
		return nil
	}
	return fault.New(fault.Invalid, "%s would send the token in clear", base).WithHint("use https://%s", base.Host)
}

// Close closes idle connections.
func (c *Client) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

// doJSON sends a request with body as JSON, and decodes the response into out. body and out may be nil.
func (c *Client) doJSON(ctx context.Context, method, path string, query url.Values, body, out any) error {
	content := []byte(nil)
	if body != nil {
		var err error
		if content, err = json.Marshal(body); err != nil {
			return err
		}
	}
	return c.doRaw(ctx, method, path, query, "application/json", content, out)
}

// doRaw sends a request with a body of the media type kind, and decodes the response into out, which
// may be nil.
func (c *Client) doRaw(ctx context.Context, method, path string, query url.Values, kind string, body []byte, out any) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	resp, err := c.sendRequest(ctx, method, path, query, kind, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer := io.LimitReader(resp.Body, maxAnswer)
	if out == nil {
		_, err = io.Copy(io.Discard, answer)
		return c.connectionFault(ctx, err)
	}
	if err := json.NewDecoder(answer).Decode(out); err != nil {
		return fault.New(fault.Transient, "answer of %s: %w", c.base.Host, err).WithHint("is it a decamp server of this release?")
	}
	return nil
}

// sendRequest sends a request, and returns a response with a status of success. The caller closes its
// body.
func (c *Client) sendRequest(ctx context.Context, method, path string, query url.Values, kind string, body []byte) (*http.Response, error) {
	u := *c.base
	u.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, method, u.JoinPath(path).String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if len(body) > 0 {
		req.Header.Set("Content-Type", kind)
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.connectionFault(ctx, err)
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, problemError(resp)
}

// connectionFault returns fault.Unreachable for a broken connection. It returns faults, and ctx's
// cancellation, unchanged.
func (c *Client) connectionFault(ctx context.Context, err error) error {
	var known *fault.Error
	switch {
	case err == nil || errors.As(err, &known):
		return err
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	}
	return fault.New(fault.Unreachable, "server %s: %w", c.base.Host, err).WithHint("is decamp serve running there?")
}

// Metrics returns the metrics of the server, as text.
func (c *Client) Metrics(ctx context.Context) (string, error) {
	resp, err := c.sendRequest(ctx, http.MethodGet, "/metrics", nil, "", nil)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, metricsBytes))
	return string(text), err
}

// metricsBytes is the limit of the metrics, in bytes.
const metricsBytes = 8 << 20

// problemBytes is the limit of an error response, in bytes.
const problemBytes = 1 << 20

// problemError returns the error of a response. Findings in a plan file become a *server.PlanError.
func problemError(resp *http.Response) error {
	var p server.Problem
	text, _ := io.ReadAll(io.LimitReader(resp.Body, problemBytes))
	if json.Unmarshal(text, &p) != nil || p.Detail == "" {
		return fault.New(fault.Transient, "the server answers %s", resp.Status).WithHint("is it a decamp server?")
	}
	err := fault.New(kindOf(p.Kind), "%s", p.Text())
	if p.Remedy != "" {
		err = err.WithHint("%s", p.Remedy)
	}
	if len(p.Findings) > 0 {
		return &server.PlanError{Findings: p.Findings, Err: err}
	}
	return err
}

// kindOf returns the kind of that name. A kind of a later release is Internal.
func kindOf(name string) fault.Kind {
	for k := fault.Internal; k <= fault.Canceled; k++ {
		if k.String() == name {
			return k
		}
	}
	return fault.Internal
}
