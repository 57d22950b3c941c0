// Package proxy connects through the HTTP proxy that HTTPS_PROXY, HTTP_PROXY and NO_PROXY select.
//
// Errors of a proxy name the proxy and the remedy. They never contain its user and password.
package proxy

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// fromEnvironment returns the proxy of a request; nil for a direct connection. Tests replace it, because
// it reads the environment only once.
var fromEnvironment = http.ProxyFromEnvironment

// choose returns the proxy of a request; nil for a direct connection. The error does not repeat the value
// of the variable, which may contain a password.
func choose(req *http.Request) (*url.URL, error) {
	u, err := fromEnvironment(req)
	if err != nil {
		return nil, fault.New(fault.Invalid, "HTTPS_PROXY or HTTP_PROXY is not the URL of a proxy").WithHint("set it to http://HOST:PORT, or add %s to NO_PROXY", req.URL.Hostname())
	}
	return u, nil
}

// choosePlace returns the proxy of HTTPS connections to host:port.
func choosePlace(addr string) (*url.URL, error) {
	return choose(&http.Request{URL: &url.URL{Scheme: "https", Host: addr}})
}

// Dial connects to host:port for TLS, directly or through a proxy. It supports proxies with HTTP and
// HTTPS.
func Dial(ctx context.Context, d *net.Dialer, addr string) (net.Conn, error) {
	u, err := choosePlace(addr)
	if err != nil {
		return nil, err
	}
	if u == nil {
		return d.DialContext(ctx, "tcp", addr)
	}
	if d.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d.Timeout)
		defer cancel()
	}
	conn, err := dialProxy(ctx, d, u)
	if err != nil {
		return nil, unreachable(u, addr, err)
	}
	if err := openTunnel(ctx, conn, u, addr); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// dialProxy connects to the proxy itself.
func dialProxy(ctx context.Context, d *net.Dialer, u *url.URL) (net.Conn, error) {
	switch u.Scheme {
	case "http":
		return d.DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "80")))
	case "https":
		secure := tls.Dialer{NetDialer: d, Config: &tls.Config{ServerName: u.Hostname(), MinVersion: tls.VersionTLS12}}
		return secure.DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443")))
	}
	return nil, fmt.Errorf("a proxy with %s is not supported", u.Scheme)
}

// maxAnswer is the maximum size of a proxy's answer, in bytes.
const maxAnswer = 64 << 10

// openTunnel requests a connection to addr from the proxy.
func openTunnel(ctx context.Context, conn net.Conn, u *url.URL, addr string) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	req := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: addr}, Host: addr, Header: http.Header{}}
	if u.User != nil {
		password, _ := u.User.Password()
		req.Header.Set("Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(u.User.Username()+":"+password)))
	}
	if err := req.Write(conn); err != nil {
		return unreachable(u, addr, contextOr(ctx, err))
	}
	r := bufio.NewReader(io.LimitReader(conn, maxAnswer))
	res, err := http.ReadResponse(r, req)
	switch {
	case err != nil:
		return unreachable(u, addr, contextOr(ctx, err))
	case res.StatusCode != http.StatusOK:
		return refused(u, addr, res.StatusCode)
	case r.Buffered() > 0: // in TLS the client sends first
		return unreachable(u, addr, errors.New("it sent data before the client"))
	case !stop():
		return unreachable(u, addr, ctx.Err())
	}
	return nil
}

// contextOr returns the error of a context that has ended, otherwise err.
func contextOr(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// nameOf returns the URL of a proxy without user and password.
func nameOf(u *url.URL) string { return u.Scheme + "://" + u.Host }

// unreachable is the error for a proxy that does not answer.
func unreachable(u *url.URL, addr string, err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	return fault.New(fault.Unreachable, "connect to %s through the proxy %s: %w", addr, nameOf(u), err).
		WithHint("check HTTPS_PROXY and the proxy; for a direct connection, add %s to NO_PROXY", hostOf(addr))
}

// refused is the error for a proxy that answers a request for a connection with another status than 200.
func refused(u *url.URL, addr string, status int) error {
	err := fault.New(fault.Unreachable, "connect to %s: the proxy %s answers %d %s", addr, nameOf(u), status, http.StatusText(status))
	switch {
	case status == http.StatusProxyAuthRequired:
		err.Kind = fault.Denied
		return err.WithHint("set user and password of the proxy: HTTPS_PROXY=%s://USER:PASSWORD@%s; for a direct connection, add %s to NO_PROXY", u.Scheme, u.Host, hostOf(addr))
	case status/100 == 4:
		err.Kind = fault.Denied
		return err.WithHint("permit connections to %s at the proxy; for a direct connection, add %s to NO_PROXY", addr, hostOf(addr))
	}
	return err.WithHint("check whether the proxy can connect to %s; for a direct connection, add %s to NO_PROXY", addr, hostOf(addr))
}

// hostOf returns the host of host:port.
func hostOf(addr string) string {
	if host, _, err := net.SplitHostPort(addr); err == nil {
		return host
	}
	return addr
}

// transport is an http.Transport that names the proxy in errors.
type transport struct{ base *http.Transport }

// Wrap sets the proxies of t from the environment, and returns a RoundTripper whose errors name the proxy.
func Wrap(t *http.Transport) http.RoundTripper {
	t.Proxy = choose
	t.OnProxyConnectResponse = func(_ context.Context, u *url.URL, req *http.Request, res *http.Response) error {
		if res.StatusCode == http.StatusOK {
			return nil
		}
		return refused(u, req.Host, res.StatusCode)
	}
	return &transport{t}
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	var passed atomic.Bool // the connection to the server itself has begun, or existed
	ctx := httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		TLSHandshakeStart: func() { passed.Store(true) },
		GotConn:           func(httptrace.GotConnInfo) { passed.Store(true) },
	})
	res, err := t.base.RoundTrip(req.WithContext(ctx))
	var known *fault.Error
	if err != nil && (passed.Load() || errors.As(err, &known)) || err == nil && (res.StatusCode != http.StatusProxyAuthRequired || req.URL.Scheme != "http") {
		return res, err
	}
	u, failed := choose(req)
	switch {
	case u == nil || failed != nil:
		return res, err
	case err != nil:
		return nil, unreachable(u, req.URL.Host, err)
	}
	res.Body.Close()
	return nil, refused(u, req.URL.Host, res.StatusCode) // of a request without TLS
}

// CloseIdleConnections implements the method that http.Client requires.
func (t *transport) CloseIdleConnections() { t.base.CloseIdleConnections() }
