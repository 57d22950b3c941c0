package kubevirt

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/fault"
	httpproxy "github.com/decamp/decamp/internal/proxy"
)

// Paths of the upload proxy.
const (
	asyncPath = "/v1beta1/upload-async" // the proxy answers when it has received all bytes; missing in old versions
	syncPath  = "/v1beta1/upload"       // the proxy answers when the image is written and synced
)

// proxyName is in the certificate that CDI issues for its proxy, in addition to the service's name.
const proxyName = "cdi-uploadproxy"

// proxy is a client of CDI's upload proxy, which passes images to the pods that write them.
type proxy struct {
	url  *url.URL     // base URL
	http *http.Client // client with its own connections
	path string       // path for uploads; empty until choosePath has succeeded
}

// newProxy returns the proxy at an address. Its certificate must be signed by one of roots, and be for
// the address or
// for proxyName, as with a forwarded port. If the kubeconfig disables the verification of certificates,
// the proxy's
// is not verified, either.
func newProxy(address string, cluster *tls.Config, roots *x509.CertPool) (*proxy, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, fault.New(fault.Invalid, "%q is not the URL of an upload proxy", address).WithHint("use uploadProxy=https://HOST:PORT")
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.ForceAttemptHTTP2 = false // its flow-control windows slow large uploads down
	t.ExpectContinueTimeout = 10 * time.Second
	t.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // verified below
	if !cluster.InsecureSkipVerify {
		t.TLSClientConfig.VerifyConnection = func(s tls.ConnectionState) error {
			return verifyChain(s.PeerCertificates, roots, u.Hostname(), proxyName)
		}
	}
	return &proxy{url: u, http: &http.Client{Transport: httpproxy.Wrap(t)}}, nil
}

// verifyChain returns nil if the chain is signed by one of roots and valid for one of the names.
func verifyChain(chain []*x509.Certificate, roots *x509.CertPool, names ...string) (err error) {
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	for _, name := range names {
		var wrong error
		if _, wrong = chain[0].Verify(x509.VerifyOptions{DNSName: name, Roots: roots, Intermediates: between}); wrong == nil {
			return nil
		}
		err = errors.Join(err, wrong)
	}
	return err
}

// close closes idle connections.
func (p *proxy) close() { p.http.CloseIdleConnections() }

// proxyTimeout limits requests without an image.
const proxyTimeout = 30 * time.Second

// checkHealth returns fault.Unreachable if the proxy does not answer.
func (p *proxy) checkHealth(ctx context.Context) error {
	code, err := p.request(ctx, http.MethodGet, "/healthz", "")
	switch {
	case errors.As(err, new(*fault.Error)): // of an HTTP proxy
		return fmt.Errorf("upload proxy %s: %w", p.url, err)
	case err != nil:
		return fault.New(fault.Unreachable, "upload proxy %s: %w", p.url, err).
			WithHint("if it is not reachable from this host: kubectl -n cdi port-forward service/cdi-uploadproxy 8443:443, and add uploadProxy=https://localhost:8443")
	case code >= 500:
		return fault.New(fault.Transient, "upload proxy %s answers %d", p.url, code).WithHint("kubectl -n cdi get pods")
	}
	return nil
}

// request sends a request without a body and returns the status code. token may be empty.
func (p *proxy) request(ctx context.Context, method, path, token string) (code int, err error) {
	ctx, cancel := context.WithTimeout(ctx, proxyTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, p.url.JoinPath(path).String(), nil)
	if err != nil {
		return 0, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := p.http.Do(req)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// choosePath sets p.path to the best path that the proxy has. It sends the same request as virtctl. A
// proxy that is not
// ready gives an *answer, and the caller tries again.
func (p *proxy) choosePath(ctx context.Context, token string) error {
	if p.path != "" {
		return nil
	}
	code, err := p.request(ctx, http.MethodHead, asyncPath, token)
	switch {
	case err != nil:
		return err
	case code == http.StatusOK:
		p.path = asyncPath
	case code == http.StatusNotFound, code == http.StatusMethodNotAllowed:
		p.path = syncPath
	default:
		return &answer{code: code}
	}
	return nil
}

// answer is the error for a status other than 200.
type answer struct {
	code int    // HTTP status code
	text string // first bytes of the body
}

// Error returns the status with the body's text.
func (a *answer) Error() string {
	return strings.TrimSpace(fmt.Sprintf("the upload proxy answers %d %s: %s", a.code, http.StatusText(a.code), a.text))
}

// postImage sends an image in one request and closes body. It waits for "100 Continue", so that a proxy
// that is not
// ready receives no data. It aborts a transfer without progress after stall.
func (p *proxy) postImage(ctx context.Context, token string, body *stream, stall time.Duration) error {
	defer body.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := time.AfterFunc(stall, func() { cancel(fault.New(fault.Transient, "no data was accepted for %v", stall)) })
	defer watch.Stop()
	body.setContext(ctx, func() { watch.Reset(stall) })
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url.JoinPath(p.path).String(), body)
	if err != nil {
		return err
	}
	req.ContentLength = body.size()
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/octet-stream")
	req.Header.Set("Expect", "100-continue")
	resp, err := p.http.Do(req)
	if err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 2000)) // a partial text is sufficient
	if resp.StatusCode != http.StatusOK {
		return &answer{resp.StatusCode, strings.ToValidUTF8(string(text), "?")}
	}
	return nil
}
