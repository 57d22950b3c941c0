// Package proxytest is an HTTP proxy for tests. It opens tunnels (CONNECT), and forwards plain requests.
package proxytest

import (
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"sync"
	"testing"
)

// Proxy is a proxy that listens on a loopback address.
type Proxy struct {
	*httptest.Server

	// Hosts are the addresses to connect to, by the host:port that clients request. A host that is not
	// listed is answered with 502.
	Hosts map[string]string
	// User is user:password, which the proxy requires if it is not empty.
	User string

	mu   sync.Mutex // guards seen
	seen []string   // requested host:port, in order
}

// Start starts a proxy that is closed at the end of the test.
func Start(t *testing.T, hosts map[string]string) *Proxy {
	t.Helper()
	p := &Proxy{Hosts: hosts}
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	return p
}

// Seen returns the requested host:port, in order.
func (p *Proxy) Seen() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.seen...)
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.seen = append(p.seen, r.Host)
	p.mu.Unlock()
	if p.User != "" && r.Header.Get("Proxy-Authorization") != "Basic "+base64.StdEncoding.EncodeToString([]byte(p.User)) {
		w.WriteHeader(http.StatusProxyAuthRequired)
		return
	}
	addr := p.Hosts[r.Host]
	if r.Method != http.MethodConnect {
		(&httputil.ReverseProxy{Rewrite: func(out *httputil.ProxyRequest) { out.Out.URL.Host = addr }}).ServeHTTP(w, r)
		return
	}
	far, err := net.Dial("tcp", addr)
	if addr == "" || err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer far.Close()
	near, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer near.Close()
	if _, err := io.WriteString(near, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	go func() {
		defer far.Close()
		_, _ = io.Copy(far, near)
	}()
	_, _ = io.Copy(near, far)
}
