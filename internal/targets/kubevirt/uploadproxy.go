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
)

// The paths of the upload proxy. To the first it answers once it has all bytes, and works on; to the
// second, which all versions have, it answers when it is through with them.
const (
	asyncPath = "/v1beta1/upload-async"
	syncPath  = "/v1beta1/upload"
)

// proxyName is in the certificate that CDI makes for its proxy, whatever it is reached by.
const proxyName = "cdi-uploadproxy"

// A proxy is CDI's upload proxy, which passes images to the pods that write them.
type proxy struct {
	url  *url.URL
	http *http.Client
	path string // what images are sent to; empty until it is known
}

// newProxy returns the proxy at an address. Its certificate has to be of roots, and of the address or
// of the name that CDI gives it: a forwarded port is called otherwise. A kubeconfig that does not have
// certificates verified counts here too.
func newProxy(address string, cluster *tls.Config, roots *x509.CertPool) (*proxy, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, fault.New(fault.Invalid, "%q is no address of an upload proxy", address).WithHint("say uploadProxy=https://HOST:PORT")
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.ForceAttemptHTTP2 = false // its windows are small for whole disks
	t.ExpectContinueTimeout = 10 * time.Second
	t.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // verified below
	if !cluster.InsecureSkipVerify {
		t.TLSClientConfig.VerifyConnection = func(s tls.ConnectionState) error {
			return verify(s.PeerCertificates, roots, u.Hostname(), proxyName)
		}
	}
	return &proxy{url: u, http: &http.Client{Transport: t}}, nil
}

// verify reports whether a chain leads to roots, and is of one of the names.
func verify(chain []*x509.Certificate, roots *x509.CertPool, names ...string) (err error) {
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

func (p *proxy) close() { p.http.CloseIdleConnections() }

// proxyTimeout bounds an answer of the proxy that is not about an image.
const proxyTimeout = 30 * time.Second

// reach reports whether something answers there.
func (p *proxy) reach(ctx context.Context) error {
	code, err := p.ask(ctx, http.MethodGet, "/healthz", "")
	switch {
	case err != nil:
		return fault.New(fault.Unreachable, "upload proxy %s: %w", p.url, err).
			WithHint("if it is not reached from here: kubectl -n cdi port-forward service/cdi-uploadproxy 8443:443, and add uploadProxy=https://localhost:8443")
	case code >= 500:
		return fault.New(fault.Transient, "upload proxy %s answers %d", p.url, code).WithHint("kubectl -n cdi get pods")
	}
	return nil
}

func (p *proxy) ask(ctx context.Context, method, path, token string) (code int, err error) {
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

// choose finds out which path the proxy has: it is asked as virtctl asks it. One that is not ready is asked again.
func (p *proxy) choose(ctx context.Context, token string) error {
	if p.path != "" {
		return nil
	}
	code, err := p.ask(ctx, http.MethodHead, asyncPath, token)
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

// An answer is what the proxy says that is not yes.
type answer struct {
	code int
	text string
}

func (a *answer) Error() string {
	return strings.TrimSpace(fmt.Sprintf("the upload proxy answers %d %s: %s", a.code, http.StatusText(a.code), a.text))
}

// post sends an image whole. It asks before it sends: a proxy that is not ready gets none of it. A
// transfer that stands still for longer than stall is given up.
func (p *proxy) post(ctx context.Context, token string, body *stream, stall time.Duration) error {
	defer body.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := time.AfterFunc(stall, func() { cancel(fault.New(fault.Transient, "nothing was taken for %v", stall)) })
	defer watch.Stop()
	body.watch(ctx, func() { watch.Reset(stall) })
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
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 2000)) // what is missing of it is not needed
	if resp.StatusCode != http.StatusOK {
		return &answer{resp.StatusCode, strings.ToValidUTF8(string(text), "?")}
	}
	return nil
}
