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
	"github.com/decamp/decamp/internal/targets/recall"
)

const (
	// maxAnswer is the longest answer that is read, in bytes. Ten thousand guests are 4 MiB.
	maxAnswer = 32 << 20

	// patience is how long a question is asked again while nobody answers: pveproxy restarts when
	// its packages are updated.
	patience = 2 * time.Minute
	pause    = 2 * time.Second
)

// A client speaks to the API of one host.
type client struct {
	host  string
	http  *http.Client
	token Token
	wait  func(context.Context, time.Duration) error
	now   func() time.Time
	skew  atomic.Int64 // how far the node's clock was ahead when it last answered, in nanoseconds
}

func newClient(host string, o Options) (*client, error) {
	if err := o.Token.check("the token that was given"); err != nil {
		return nil, err
	}
	config, err := trust(host, o.Fingerprint)
	if err != nil {
		return nil, err
	}
	return &client{
		host: host, token: o.Token, wait: o.Wait, now: o.Now,
		http: &http.Client{
			Transport: &recall.Transport{Next: &http.Transport{
				Proxy:           http.ProxyFromEnvironment,
				TLSClientConfig: config,
				DialContext:     (&net.Dialer{Timeout: 15 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
				// pveproxy gives its own calls 30 s, and more to those it passes on.
				TLSHandshakeTimeout: 15 * time.Second, ResponseHeaderTimeout: 5 * time.Minute, MaxIdleConnsPerHost: 2,
			}},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// get asks into data, again while nobody answers.
func (c *client) get(ctx context.Context, path string, query url.Values, data any) error {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return c.again(ctx, func() error { return c.call(ctx, http.MethodGet, path, nil, data) })
}

// again repeats what may be done twice, while nobody answers.
func (c *client) again(ctx context.Context, do func() error) error {
	for left := patience; ; left -= pause {
		err := do()
		if left <= 0 || !passes(err) {
			return err
		}
		if waitErr := c.wait(ctx, pause); waitErr != nil {
			return waitErr
		}
	}
}

// passes reports whether err may be gone when the same is asked again.
func passes(err error) bool {
	return fault.Is(err, fault.Transient) || fault.Is(err, fault.Unreachable)
}

// change asks for something to be done, once. data is what is answered, often a UPID.
func (c *client) change(ctx context.Context, method, path string, params []Param, data any) error {
	form := url.Values{}
	for _, p := range params {
		form.Set(p.Key, p.Value)
	}
	if method == http.MethodDelete { // whose body pveproxy does not read
		if len(form) > 0 {
			path += "?" + form.Encode()
		}
		return c.call(ctx, method, path, nil, data)
	}
	return c.call(ctx, method, path, form, data)
}

func (c *client) call(ctx context.Context, method, path string, form url.Values, data any) error {
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	req, err := http.NewRequestWithContext(ctx, method, "https://"+c.host+"/api2/json"+path, body)
	if err != nil {
		return fault.New(fault.Internal, "ask Proxmox for %s: %w", path, err)
	}
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	return c.send(req, data)
}

// send carries a request out and reads the answer into data, if there is one.
func (c *client) send(req *http.Request, data any) error {
	what := req.Method + " " + strings.TrimPrefix(req.URL.Path, "/api2/json")
	req.Header.Set("Authorization", "PVEAPIToken="+string(c.token))
	res, err := c.http.Do(req)
	if err != nil {
		return c.lost(req.Context(), what, err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	if err != nil {
		return c.lost(req.Context(), what, err)
	}
	if at, err := http.ParseTime(res.Header.Get("Date")); err == nil {
		c.skew.Store(int64(at.Sub(c.now())))
	}
	if res.StatusCode != http.StatusOK {
		return c.refusal(what, res, text)
	}
	if err := decode(text, data); err != nil {
		return fault.New(fault.Corrupt, "Proxmox %s: %s: %w", c.host, what, err)
	}
	return nil
}

// decode reads an answer: {"data": …}.
func decode(text []byte, data any) error {
	if len(text) > maxAnswer {
		return fmt.Errorf("the answer is longer than %d MiB", maxAnswer>>20)
	}
	var answer struct {
		Data json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return fmt.Errorf("the answer is no JSON: %w", err)
	}
	if data == nil || len(answer.Data) == 0 || bytes.Equal(answer.Data, []byte("null")) {
		return nil
	}
	return json.Unmarshal(answer.Data, data)
}

// lost is the error of a request that got no answer.
func (c *client) lost(ctx context.Context, what string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var own *fault.Error
	if errors.As(err, &own) { // of trust
		return own
	}
	var u *url.Error
	if errors.As(err, &u) { // it would repeat the address
		err = u.Err
	}
	e := fault.New(fault.Unreachable, "Proxmox %s: %s: %w", c.host, what, err)
	if isCertificate(err) {
		e.Kind = fault.Denied
		return e.WithHint("pin the node's certificate with fingerprint=; on the node: pvenode cert info shows it")
	}
	return e.WithHint("see that pveproxy runs there (systemctl status pveproxy) and that port 8006 is not behind a firewall")
}

// lacking returns the privileges that the token does not hold on a path.
func (c *client) lacking(ctx context.Context, path string, privileges []string) ([]string, error) {
	var held map[string]map[string]int
	if err := c.get(ctx, "/access/permissions", url.Values{"path": {path}}, &held); err != nil {
		return nil, err
	}
	var missing []string
	for _, privilege := range privileges {
		if _, ok := held[path][privilege]; !ok { // the value says whether it goes on below
			missing = append(missing, privilege)
		}
	}
	return missing, nil
}

// patiently tries again what may pass, until patience is over since a try that brought something.
func (c *client) patiently(ctx context.Context, try func() (more bool, err error)) error {
	for left := patience; ; left -= pause {
		more, err := try()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if more {
			left = patience
		}
		if left <= 0 || !passes(err) {
			return err
		}
		if err := c.wait(ctx, pause); err != nil {
			return err
		}
	}
}

// apart warns of clocks that are; nil if they agree.
func (c *client) apart() *inventory.Warning {
	skew := time.Duration(c.skew.Load()).Abs()
	if skew <= maxSkew {
		return nil
	}
	return &inventory.Warning{
		Code: "clock", Text: "the clocks of this machine and of the node are " + skew.Round(time.Second).String() + " apart",
		Remedy: "look at both: timedatectl",
	}
}
