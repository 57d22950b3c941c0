package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/lab/loopback"
	"github.com/decamp/decamp/internal/proxy/proxytest"
)

// proxiedServer is an HTTPS server that is reachable as example.com through a proxy.
type proxiedServer struct {
	proxy *proxytest.Proxy
	roots *x509.CertPool
}

// newProxiedServer starts an HTTPS server and a proxy to it, and selects the proxy for all connections.
func newProxiedServer(t *testing.T, login string) *proxiedServer {
	t.Helper()
	web := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "far") }))
	t.Cleanup(web.Close)
	p := &proxiedServer{proxytest.Start(t, map[string]string{"example.com:443": web.Listener.Addr().String()}), x509.NewCertPool()}
	p.roots.AddCert(web.Certificate())
	selectProxy(t, p.proxy.URL, login)
	return p
}

// selectProxy makes all connections use a proxy until the end of the test.
func selectProxy(t *testing.T, address, login string) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	if user, password, is := strings.Cut(login, ":"); is {
		u.User = url.UserPassword(user, password)
	}
	before := fromEnvironment
	fromEnvironment = http.ProxyURL(u)
	t.Cleanup(func() { fromEnvironment = before })
}

// byDial requests a page of example.com with Dial.
func (p *proxiedServer) byDial(ctx context.Context) (string, error) {
	conn, err := Dial(ctx, &net.Dialer{Timeout: time.Minute}, "example.com:443")
	if err != nil {
		return "", err
	}
	secure := tls.Client(conn, &tls.Config{ServerName: "example.com", RootCAs: p.roots})
	defer secure.Close()
	if _, err := io.WriteString(secure, "GET / HTTP/1.0\r\n\r\n"); err != nil {
		return "", err
	}
	text, err := io.ReadAll(secure)
	return string(text), err
}

// byClient requests a page of example.com with Wrap.
func (p *proxiedServer) byClient(ctx context.Context) (string, error) {
	web := http.Client{Transport: Wrap(&http.Transport{TLSClientConfig: &tls.Config{RootCAs: p.roots}})}
	defer web.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://example.com/", nil)
	if err != nil {
		return "", err
	}
	res, err := web.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return string(text), err
}

// forEachWay calls f for both ways to use a proxy.
func (p *proxiedServer) forEachWay(t *testing.T, f func(t *testing.T, get func(context.Context) (string, error))) {
	t.Helper()
	t.Run("dial", func(t *testing.T) { f(t, p.byDial) })
	t.Run("client", func(t *testing.T) { f(t, p.byClient) })
}

func TestTheProxyOpensTheConnection(t *testing.T) {
	p := newProxiedServer(t, "ada:sesame")
	p.proxy.User = "ada:sesame"
	p.forEachWay(t, func(t *testing.T, get func(context.Context) (string, error)) {
		text, err := get(t.Context())
		if err != nil || !strings.HasSuffix(text, "far") {
			t.Errorf("%q, %v", text, err)
		}
	})
	if seen := p.proxy.Seen(); len(seen) != 2 || seen[0] != "example.com:443" {
		t.Errorf("the proxy received %q", seen)
	}
}

// Dial fails if the headers of a proxy do not end, so that its memory use is bounded.
func TestProxyResponseIsBounded(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	sent := make(chan int, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		n, _ := io.WriteString(conn, "HTTP/1.1 200 OK\r\n")
		for err == nil && n < 64<<20 {
			var more int
			more, err = io.WriteString(conn, "X: "+strings.Repeat("x", 4000)+"\r\n")
			n += more
		}
		sent <- n
	}()
	selectProxy(t, "http://"+l.Addr().String(), "")
	_, err = Dial(t.Context(), &net.Dialer{Timeout: time.Minute}, "example.com:443")
	if !fault.Is(err, fault.Unreachable) {
		t.Errorf("connected: %v", err)
	}
	if n := <-sent; n >= 64<<20 {
		t.Errorf("the proxy could send %d bytes", n)
	}
}

func TestErrorsNameTheProxyAndTheRemedy(t *testing.T) {
	for _, tt := range []struct {
		name    string
		change  func(t *testing.T, p *proxiedServer)
		kind    fault.Kind
		message string
		remedy  string
	}{
		{"wrong login", func(_ *testing.T, p *proxiedServer) { p.proxy.User = "ada:other" }, fault.Denied, "407 Proxy Authentication Required", "HTTPS_PROXY=http://USER:PASSWORD@"},
		{"unknown host", func(_ *testing.T, p *proxiedServer) { p.proxy.Hosts = nil }, fault.Unreachable, "502 Bad Gateway", "whether the proxy can connect to example.com:443"},
		{"down", func(t *testing.T, _ *proxiedServer) { selectProxy(t, "http://"+loopback.Reserve(t), "ada:sesame") }, fault.Unreachable, "connection refused", "check HTTPS_PROXY"},
		{"forbidden host", func(t *testing.T, p *proxiedServer) {
			p.proxy.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
		}, fault.Denied, "403 Forbidden", "permit connections to example.com:443"},
		{"no proxy", func(t *testing.T, p *proxiedServer) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					_, _ = io.WriteString(c, "SSH-2.0-x\r\n")
					c.Close()
				}
			}()
			selectProxy(t, "http://"+l.Addr().String(), "ada:sesame")
		}, fault.Unreachable, "through the proxy", "NO_PROXY"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newProxiedServer(t, "ada:sesame")
			tt.change(t, p)
			p.forEachWay(t, func(t *testing.T, get func(context.Context) (string, error)) {
				_, err := get(t.Context())
				if !fault.Is(err, tt.kind) || !strings.Contains(err.Error(), tt.message) || !strings.Contains(err.Error(), "proxy http://127.0.0.1:") {
					t.Errorf("got %v", err)
				}
				if hint := fault.HintOf(err); !strings.Contains(hint, tt.remedy) || !strings.Contains(hint, "add example.com to NO_PROXY") {
					t.Errorf("remedy %q", hint)
				}
				if all := err.Error() + fault.HintOf(err); strings.Contains(all, "sesame") || strings.Contains(all, "ada") {
					t.Errorf("the login of the proxy is in %s", all)
				}
			})
		})
	}
}

func TestACanceledRequestIsCanceled(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	selectProxy(t, "http://"+l.Addr().String(), "")
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		if c, err := l.Accept(); err == nil {
			t.Cleanup(func() { c.Close() })
		}
		cancel()
	}()
	if _, err := (&proxiedServer{}).byDial(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := Dial(t.Context(), &net.Dialer{Timeout: time.Millisecond}, "example.com:443"); !fault.Is(err, fault.Unreachable) {
		t.Error(err)
	}
}

func TestInvalidProxyVariableIsNotPrinted(t *testing.T) {
	before := fromEnvironment
	defer func() { fromEnvironment = before }()
	fromEnvironment = func(*http.Request) (*url.URL, error) {
		return nil, errors.New(`invalid proxy address "http://ada:sesame@h h"`)
	}
	p := &proxiedServer{}
	p.forEachWay(t, func(t *testing.T, get func(context.Context) (string, error)) {
		_, err := get(t.Context())
		if !fault.Is(err, fault.Invalid) || strings.Contains(err.Error(), "sesame") || !strings.Contains(fault.HintOf(err), "NO_PROXY") {
			t.Errorf("%v (%s)", err, fault.HintOf(err))
		}
	})
	selectProxy(t, "socks5://127.0.0.1:1", "")
	if _, err := p.byDial(t.Context()); err == nil || !strings.Contains(err.Error(), "a proxy with socks5 is not supported") {
		t.Error(err)
	}
}

// A request without TLS is forwarded by the proxy.
func TestPlainRequests(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "far") }))
	defer web.Close()
	p := proxytest.Start(t, map[string]string{"example.com": web.Listener.Addr().String()})
	selectProxy(t, p.URL, "ada:sesame")
	client := http.Client{Transport: Wrap(&http.Transport{})}
	defer client.CloseIdleConnections()
	res, err := client.Get("http://example.com/")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(res.Body)
	if res.Body.Close(); err != nil || string(text) != "far" {
		t.Errorf("%q, %v", text, err)
	}
	p.User = "ada:other"
	if _, err := client.Get("http://example.com/"); !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), "407") {
		t.Error(err)
	}
}
