package proxmox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/proxy"
	"github.com/decamp/decamp/internal/targets/recall"
)

const (
	// maxAnswer is the maximum length of an answer in bytes. A list of ten thousand guests has 4 MiB.
	maxAnswer = 32 << 20

	// retryPeriod is how long requests are repeated while the server does not answer. pveproxy restarts
	// when its packages
	// are updated.
	retryPeriod = 2 * time.Minute
	pause       = 2 * time.Second // pause is the time between two attempts.
)

// client sends requests to the API of one host. It is safe for concurrent use.
type client struct {
	host  string                                     // host and port
	http  *http.Client                               // client with its own connections
	token Token                                      // sent with each request
	wait  func(context.Context, time.Duration) error // sleeps; replaced by tests
	now   func() time.Time                           // time.Now; replaced by tests
	skew  atomic.Int64                               // difference between the node's clock and the local clock at the last answer, in nanoseconds
}

// newClient validates the token. It sends no request.
func newClient(host string, o Options) (*client, error) {
	if o.Token == "" {
		return nil, fault.New(fault.Invalid, "the Proxmox address has no parameter token=").
			WithHint("add token=FILE: the file contains USER@REALM!NAME=SECRET of a token; create one: pveum user token add root@pam decamp --privsep 0")
	}
	if err := o.Token.validate("the token"); err != nil {
		return nil, err
	}
	config, err := tlsConfig(host, o.Fingerprint)
	if err != nil {
		return nil, err
	}
	return &client{
		host: host, token: o.Token, wait: o.Wait, now: o.Now,
		http: &http.Client{
			Transport: &recall.Transport{Next: proxy.Wrap(&http.Transport{
				TLSClientConfig: config,
				DialContext:     (&net.Dialer{Timeout: 15 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
				// pveproxy gives its own calls 30 s, and more to those it passes on.
				TLSHandshakeTimeout: 15 * time.Second, ResponseHeaderTimeout: 5 * time.Minute, MaxIdleConnsPerHost: 2,
			})},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// get reads an object into data. It repeats the request while the server does not answer.
func (c *client) get(ctx context.Context, path string, query url.Values, data any) error {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return c.retryTemporary(ctx, func() error { return c.call(ctx, http.MethodGet, path, nil, data) })
}

// retryTemporary repeats do after temporary errors, for retryPeriod. do must be safe to repeat.
func (c *client) retryTemporary(ctx context.Context, do func() error) error {
	for left := retryPeriod; ; left -= pause {
		err := do()
		if left <= 0 || !isTemporary(err) {
			return err
		}
		if waitErr := c.wait(ctx, pause); waitErr != nil {
			return waitErr
		}
	}
}

// isTemporary reports whether the same request may succeed later.
func isTemporary(err error) bool {
	return fault.Is(err, fault.Transient) || fault.Is(err, fault.Unreachable)
}

// sendParams sends a request with parameters once and decodes the answer, often a UPID, into data.
func (c *client) sendParams(ctx context.Context, method, path string, params []Param, data any) error {
	form := url.Values{}
	for _, p := range params {
		form.Set(p.Key, p.Value)
	}
	if method == http.MethodDelete { // pveproxy ignores the body of DELETE
		if len(form) > 0 {
			path += "?" + form.Encode()
		}
		return c.call(ctx, method, path, nil, data)
	}
	return c.call(ctx, method, path, form, data)
}

// call sends one request with an optional form and decodes the answer into data.
func (c *client) call(ctx context.Context, method, path string, form url.Values, data any) error {
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	req, err := http.NewRequestWithContext(ctx, method, "https://"+c.host+"/api2/json"+path, body)
	if err != nil {
		return fault.New(fault.Internal, "create a request for %s: %w", path, err)
	}
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	return c.send(req, data)
}

// send sends a request with the token and decodes the answer into data, which may be nil. It records
// the difference of
// the clocks. An answer that is too long or malformed is fault.Corrupt.
func (c *client) send(req *http.Request, data any) error {
	what := req.Method + " " + strings.TrimPrefix(req.URL.Path, "/api2/json")
	req.Header.Set("Authorization", "PVEAPIToken="+string(c.token))
	res, err := c.http.Do(req)
	if err != nil {
		return c.networkError(req.Context(), what, err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	if err != nil {
		return c.networkError(req.Context(), what, err)
	}
	if at, err := http.ParseTime(res.Header.Get("Date")); err == nil {
		c.skew.Store(int64(at.Sub(c.now())))
	}
	if res.StatusCode != http.StatusOK {
		return c.statusError(what, res, text)
	}
	if err := decodeAnswer(text, data); err != nil {
		return fault.New(fault.Corrupt, "Proxmox %s: %s: %w", c.host, what, err)
	}
	return nil
}

// decodeAnswer decodes an answer, whose content is in the field "data".
func decodeAnswer(text []byte, data any) error {
	if len(text) > maxAnswer {
		return fmt.Errorf("the answer is longer than %d MiB", maxAnswer>>20)
	}
	var answer struct {
		Data json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return fmt.Errorf("the answer is not JSON: %w", err)
	}
	if data == nil || len(answer.Data) == 0 || bytes.Equal(answer.Data, []byte("null")) {
		return nil
	}
	return json.Unmarshal(answer.Data, data)
}

// networkError returns the error for a request without an answer: ctx.Err() if ctx has ended,
// fault.Denied for an
// untrusted certificate, else fault.Unreachable.
func (c *client) networkError(ctx context.Context, what string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var own *fault.Error
	if errors.As(err, &own) { // checkPin has returned it
		return own
	}
	var u *url.Error
	if errors.As(err, &u) { // url.Error repeats the address
		err = u.Err
	}
	e := fault.New(fault.Unreachable, "Proxmox %s: %s: %w", c.host, what, err)
	if isCertificate(err) {
		e.Kind = fault.Denied
		return e.WithHint("set fingerprint= to the fingerprint of the node's certificate; on the node: pvenode cert info")
	}
	return e.WithHint("check that pveproxy runs there (systemctl status pveproxy) and that no firewall blocks port 8006")
}

// missingPrivileges returns the privileges that the token lacks on a path.
func (c *client) missingPrivileges(ctx context.Context, path string, privileges []string) ([]string, error) {
	var held map[string]map[string]int
	if err := c.get(ctx, "/access/permissions", url.Values{"path": {path}}, &held); err != nil {
		return nil, err
	}
	var missing []string
	for _, privilege := range privileges {
		if _, ok := held[path][privilege]; !ok { // the value is the propagate flag
			missing = append(missing, privilege)
		}
	}
	return missing, nil
}

// retryWhileProgress repeats try after temporary errors, until retryPeriod has passed since the last
// try with progress.
func (c *client) retryWhileProgress(ctx context.Context, try func() (more bool, err error)) error {
	for left := retryPeriod; ; left -= pause {
		more, err := try()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if more {
			left = retryPeriod
		}
		if left <= 0 || !isTemporary(err) {
			return err
		}
		if err := c.wait(ctx, pause); err != nil {
			return err
		}
	}
}

// clockWarning returns a warning if the clocks differ by more than maxSkew, else nil.
func (c *client) clockWarning() *inventory.Warning {
	skew := time.Duration(c.skew.Load()).Abs()
	if skew <= maxSkew {
		return nil
	}
	return &inventory.Warning{
		Code: "clock", Text: "the clocks of this host and of the node differ by " + skew.Round(time.Second).String(),
		Remedy: "check both: timedatectl",
	}
}
