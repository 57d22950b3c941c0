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
	"github.com/decamp/decamp/internal/targets/recall"
)

const (
	// maxAnswer is the longest answer that is read, in bytes.
	maxAnswer = 32 << 20

	// tries is how often a question is asked while nobody answers, and pause how long to wait between two.
	tries = 40
	pause = 3 * time.Second

	// longestPause is the longest that a service may ask us to wait.
	longestPause = 2 * time.Minute
)

// A cloud is one login.
type cloud struct {
	name  string // as people know it
	named bool   // in clouds.yaml
	as    credentials
	http  http.Client
	wait  func(context.Context, time.Duration) error

	mu sync.Mutex // of what follows, also while it logs in
	in *session
}

// A session is what a login gives: the services, each with the token.
type session struct {
	image, volume, network, compute *gophercloud.ServiceClient

	project string
	roles   []string
}

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
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: as.tls,
		DialContext:         (&net.Dialer{Timeout: 15 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout: 15 * time.Second, MaxIdleConnsPerHost: 4, IdleConnTimeout: time.Minute,
		// Glance answers an upload when its store has the image, which may take a while for a large one.
		ResponseHeaderTimeout: 30 * time.Minute,
	}
	return &cloud{name: fault.Line(name), named: named, as: as, wait: o.Wait, http: http.Client{
		Transport:     &recall.Transport{Next: &bounded{next: transport}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// bounded ends answers that are longer than anybody's.
type bounded struct{ next http.RoundTripper }

func (b *bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := b.next.RoundTrip(r)
	if err == nil {
		res.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(res.Body, maxAnswer), res.Body}
	}
	return res, err
}

// session logs in, once.
func (c *cloud) session(ctx context.Context) (*session, error) { return c.enter(ctx, c.ask) }

// knock is session for who does not wait until somebody answers.
func (c *cloud) knock(ctx context.Context) (*session, error) { return c.enter(ctx, c.once) }

func (c *cloud) enter(ctx context.Context, ask func(context.Context, string, func(context.Context) error) error) (*session, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.in != nil {
		return c.in, nil
	}
	err := ask(ctx, "log in", func(ctx context.Context) (err error) {
		c.in, err = c.login(ctx)
		return err
	})
	return c.in, err
}

func (c *cloud) login(ctx context.Context) (*session, error) {
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
	s.compute.Microversion = "2.37" // of Newton, 2016: the first that makes servers without a card
	return s, s.read(provider.GetAuthResult())
}

// read keeps what the token says of itself.
func (s *session) read(result gophercloud.AuthResult) error {
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

// readsOnly reports whether all roles of the token are known to change nothing.
func (s *session) readsOnly() bool {
	return len(s.roles) > 0 && !slices.ContainsFunc(s.roles, func(role string) bool { return role != "reader" })
}

// without is a client for one try: it has the token, and does not log in again by itself. An upload that is
// refused has to begin anew, and gophercloud would go on with the body where it was.
func (c *cloud) without(s *gophercloud.ServiceClient) *gophercloud.ServiceClient {
	provider := &gophercloud.ProviderClient{HTTPClient: c.http, UserAgent: s.UserAgent}
	provider.UseTokenLock()
	provider.CopyTokenFrom(s.ProviderClient)
	bare := *s
	bare.ProviderClient = provider
	return &bare
}

// ask asks for what may be asked twice, again while that may help.
func (c *cloud) ask(ctx context.Context, what string, do func(context.Context) error) error {
	for try := 1; ; try++ {
		err := do(ctx)
		if err == nil {
			return nil
		}
		after, told := c.refusal(ctx, what, err)
		if try == tries || !passes(told) {
			return told
		}
		if err := c.wait(ctx, max(pause, after)); err != nil {
			return err
		}
	}
}

// once asks for what may have to be looked at before it is asked again.
func (c *cloud) once(ctx context.Context, what string, do func(context.Context) error) error {
	err := do(ctx)
	if err == nil {
		return nil
	}
	after, told := c.refusal(ctx, what, err)
	if passes(told) && after > 0 {
		if err := c.wait(ctx, after); err != nil {
			return err
		}
	}
	return told
}
