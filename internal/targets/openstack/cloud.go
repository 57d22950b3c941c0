package openstack

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/tokens"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/proxy"
	"github.com/decamp/decamp/internal/targets/recall"
)

const (
	// maxAnswer is the maximum length of an answer in bytes.
	maxAnswer = 32 << 20

	// tries is the maximum number of attempts of a request that can be repeated.
	tries = 40
	pause = 3 * time.Second // pause is the time between two attempts.

	// longestPause limits the wait that a service requests by Retry-After.
	longestPause = 2 * time.Minute
)

// cloud is a connection to an OpenStack cloud with one login. It is safe for concurrent use. The first
// request logs in;
// the session is kept as long as the cloud. Expired tokens are renewed if the credentials allow it.
type cloud struct {
	name  string                                     // name for messages
	named bool                                       // name is an entry of clouds.yaml
	as    credentials                                // credentials for the login
	http  http.Client                                // client for all services
	wait  func(context.Context, time.Duration) error // sleeps; replaced by tests

	mu sync.Mutex // guards in; held during the login
	in *session   // nil before the first login
}

// session is the result of a login.
type session struct {
	image, volume, network, compute *gophercloud.ServiceClient // clients with the token

	project string   // ID of the project; empty if the token does not contain it
	roles   []string // names of the token's roles
}

// newCloud reads the credentials. It sends no request.
func newCloud(name string, o Options) (*cloud, error) {
	as, err := readCredentials(name, o)
	if err != nil {
		return nil, err
	}
	if name == "" {
		name = o.Getenv("OS_CLOUD")
	}
	named := name != ""
	if u, err := url.Parse(as.auth.IdentityEndpoint); !named && err == nil {
		name = u.Host
	}
	transport := &http.Transport{
		TLSClientConfig:     as.tls,
		DialContext:         (&net.Dialer{Timeout: 15 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout: 15 * time.Second, MaxIdleConnsPerHost: 4, IdleConnTimeout: time.Minute,
		// Glance answers an upload when its store has the image, which may take a while for a large one.
		ResponseHeaderTimeout: 30 * time.Minute,
	}
	return &cloud{name: fault.Line(name), named: named, as: as, wait: o.Wait, http: http.Client{
		Transport:     &recall.Transport{Next: &limitedTransport{next: proxy.Wrap(transport)}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// limitedTransport limits the length of answers to maxAnswer. A longer answer is cut, so that it is
// malformed JSON.
type limitedTransport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b *limitedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := b.next.RoundTrip(r)
	if err == nil {
		res.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(res.Body, maxAnswer), res.Body}
	}
	return res, err
}

// session returns the session. The first call logs in, and repeats the login while Keystone does not
// answer.
func (c *cloud) session(ctx context.Context) (*session, error) {
	return c.openSession(ctx, c.retryCall)
}

// sessionNow is session with one attempt to log in, for checks.
func (c *cloud) sessionNow(ctx context.Context) (*session, error) {
	return c.openSession(ctx, c.callOnce)
}

// openSession logs in if there is no session. call is retryCall or callOnce.
func (c *cloud) openSession(ctx context.Context, call func(context.Context, string, func(context.Context) error) error) (*session, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.in != nil {
		return c.in, nil
	}
	err := call(ctx, "log in", func(ctx context.Context) (err error) {
		c.in, err = c.authenticate(ctx)
		return err
	})
	return c.in, err
}

// authenticate logs in and finds the services in the catalog.
func (c *cloud) authenticate(ctx context.Context) (*session, error) {
	provider, err := openstack.NewClient(c.as.auth.IdentityEndpoint)
	if err != nil {
		return nil, err
	}
	provider.HTTPClient = c.http
	provider.UserAgent.Prepend("decamp")
	provider.UseTokenLock()
	if err := openstack.Authenticate(ctx, provider, c.as.auth); err != nil {
		return nil, err
	}
	s := &session{}
	for _, each := range []struct {
		of   **gophercloud.ServiceClient
		open func(*gophercloud.ProviderClient, gophercloud.EndpointOpts) (*gophercloud.ServiceClient, error)
	}{
		{&s.image, openstack.NewImageV2}, {&s.volume, openstack.NewBlockStorageV3},
		{&s.network, openstack.NewNetworkV2}, {&s.compute, openstack.NewComputeV2},
	} {
		if *each.of, err = each.open(provider, c.as.endpoint); err != nil {
			return nil, err
		}
	}
	s.compute.Microversion = "2.37" // Newton, 2016: the first version that creates servers without a card
	return s, s.readToken(provider.GetAuthResult())
}

// readToken sets the project and the roles from the answer to the login.
func (s *session) readToken(result gophercloud.AuthResult) error {
	said, ok := result.(interface {
		ExtractProject() (*tokens.Project, error)
		ExtractRoles() ([]tokens.Role, error)
	})
	if !ok {
		return nil
	}
	project, err := said.ExtractProject()
	if err != nil {
		return err
	}
	roles, err := said.ExtractRoles()
	if err != nil {
		return err
	}
	if project != nil {
		s.project = project.ID
	}
	for _, r := range roles {
		s.roles = append(s.roles, r.Name)
	}
	return nil
}

// readsOnly reports whether all roles of the token are known to be read-only.
func (s *session) readsOnly() bool {
	return len(s.roles) > 0 && !slices.ContainsFunc(s.roles, func(role string) bool { return role != "reader" })
}

// withoutReauth returns a client with the same token that does not log in again by itself. gophercloud
// would continue
// a rejected upload in the middle of its body.
func (c *cloud) withoutReauth(s *gophercloud.ServiceClient) *gophercloud.ServiceClient {
	provider := &gophercloud.ProviderClient{HTTPClient: c.http, UserAgent: s.UserAgent}
	provider.UseTokenLock()
	provider.CopyTokenFrom(s.ProviderClient)
	bare := *s
	bare.ProviderClient = provider
	return &bare
}

// retryCall calls do until it succeeds, fails permanently, or has failed `tries` times. what describes
// the call for messages.
// do must be safe to repeat.
func (c *cloud) retryCall(ctx context.Context, what string, do func(context.Context) error) error {
	for try := 1; ; try++ {
		err := do(ctx)
		if err == nil {
			return nil
		}
		after, told := c.convertError(ctx, what, err)
		if try == tries || !isTemporary(told) {
			return told
		}
		if err := c.wait(ctx, max(pause, after)); err != nil {
			return err
		}
	}
}

// callOnce calls do once. After a temporary error it waits as long as the service requests, so that the
// caller can verify
// the result and try again.
func (c *cloud) callOnce(ctx context.Context, what string, do func(context.Context) error) error {
	err := do(ctx)
	if err == nil {
		return nil
	}
	after, told := c.convertError(ctx, what, err)
	if isTemporary(told) && after > 0 {
		if err := c.wait(ctx, after); err != nil {
			return err
		}
	}
	return told
}
