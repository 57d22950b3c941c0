// Package kube speaks to the API server of a Kubernetes cluster, as far as decamp needs it: objects are
// made, read, listed, changed and deleted, and who may do what is asked.
//
// An answer is bounded in size, and each request in time. Errors have the kind of what the API
// server said: AlreadyExists and other conflicts are fault.Conflict, what admission refuses is
// fault.Invalid, and what may pass is fault.Transient.
package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/targets/recall"
)

// Client is one user of one cluster. Its methods may be called concurrently.
type Client struct {
	config *Config
	http   *http.Client
}

// New returns the client of what a kubeconfig says. It sends nothing.
func New(c *Config) *Client {
	t := http.DefaultTransport.(*http.Transport).Clone() // with the proxy of the environment
	t.TLSClientConfig = c.TLS.Clone()
	return &Client{config: c, http: &http.Client{Transport: &recall.Transport{Next: t}}}
}

// Host is the API server's, as it was given.
func (c *Client) Host() string { return c.config.Server.Host }

// Config is what the client was made of.
func (c *Client) Config() *Config { return c.config }

// Close gives its connections back.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// A Kind is a kind of objects by its place in the API.
type Kind struct {
	Group, Version string
	Plural         string
	Cluster        bool // not in namespaces
}

// path is where objects of the kind are, or the one of that name.
func (k Kind) path(namespace, name string) string {
	parts := []string{"apis", k.Group, k.Version}
	if k.Group == "" {
		parts = []string{"api", k.Version}
	}
	if !k.Cluster {
		parts = append(parts, "namespaces", namespace)
	}
	parts = append(parts, k.Plural)
	if name != "" {
		parts = append(parts, name)
	}
	return "/" + strings.Join(parts, "/")
}

// Read reads an object into out. One that is not there is fault.NotFound.
func (c *Client) Read(ctx context.Context, k Kind, namespace, name string, out any) error {
	return c.call(ctx, http.MethodGet, k.path(namespace, name), nil, nil, out)
}

// List reads the objects that have a label, as a list.
func (c *Client) List(ctx context.Context, k Kind, namespace, selector string, out any) error {
	return c.call(ctx, http.MethodGet, k.path(namespace, ""), url.Values{"labelSelector": {selector}}, nil, out)
}

// Create makes an object, and reads what it became into out. Fields that the cluster does not know are
// fault.Invalid, as is what it refuses otherwise; a name that is taken is fault.Conflict.
func (c *Client) Create(ctx context.Context, k Kind, namespace string, in, out any) error {
	return c.call(ctx, http.MethodPost, k.path(namespace, ""), url.Values{"fieldValidation": {"Strict"}, "fieldManager": {"decamp"}}, in, out)
}

// Try is Create without making anything.
func (c *Client) Try(ctx context.Context, k Kind, namespace string, in any) error {
	q := url.Values{"fieldValidation": {"Strict"}, "fieldManager": {"decamp"}, "dryRun": {"All"}}
	return c.call(ctx, http.MethodPost, k.path(namespace, ""), q, in, nil)
}

// Merge changes fields of an object if it has the resource version that it was seen with; otherwise it is
// fault.Conflict. No two objects have one version, so it is not another of the same name.
func (c *Client) Merge(ctx context.Context, k Kind, namespace, name, version string, fields map[string]any) error {
	in := maps.Clone(fields)
	in["metadata"] = map[string]string{"resourceVersion": version}
	return c.call(ctx, http.MethodPatch, k.path(namespace, name), url.Values{"fieldValidation": {"Strict"}, "fieldManager": {"decamp"}}, in, nil)
}

// Only says which object is meant, as it was seen: what was put in its place since, or changed, is another.
type Only struct {
	UID             string `json:"uid,omitempty"`
	ResourceVersion string `json:"resourceVersion,omitempty"` // empty: changed or not
}

// Delete deletes the object of that name if it is still the one that is meant; otherwise it is
// fault.Conflict. What depends on it is deleted before it is gone.
func (c *Client) Delete(ctx context.Context, k Kind, namespace, name string, only Only) error {
	options := map[string]any{
		"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground", "preconditions": only,
	}
	return c.call(ctx, http.MethodDelete, k.path(namespace, name), nil, options, nil)
}

// Serves reports whether the cluster has a version of an API group.
func (c *Client) Serves(ctx context.Context, group, version string) (bool, error) {
	err := c.call(ctx, http.MethodGet, "/apis/"+group+"/"+version, nil, nil, nil)
	if fault.Is(err, fault.NotFound) {
		return false, nil
	}
	return err == nil, err
}

// May reports whether the user may do verb to objects of the kind.
func (c *Client) May(ctx context.Context, verb string, k Kind, namespace string) (bool, error) {
	type attributes struct {
		Namespace string `json:"namespace"`
		Verb      string `json:"verb"`
		Group     string `json:"group"`
		Resource  string `json:"resource"`
	}
	var review struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Spec       struct {
			Attributes attributes `json:"resourceAttributes"`
		} `json:"spec"`
		Status struct {
			Allowed bool `json:"allowed"`
		} `json:"status"`
	}
	review.APIVersion, review.Kind = "authorization.k8s.io/v1", "SelfSubjectAccessReview"
	review.Spec.Attributes = attributes{namespace, verb, k.Group, k.Plural}
	reviews := Kind{Group: "authorization.k8s.io", Version: "v1", Plural: "selfsubjectaccessreviews", Cluster: true}
	err := c.call(ctx, http.MethodPost, reviews.path("", ""), nil, review, &review)
	return review.Status.Allowed, err
}

const (
	callTimeout = time.Minute // one request to the API server
	maxAnswer   = 16 << 20    // bytes of its answer
)

// call sends one request. It repeats a request only after the API server refused the credential of a plugin,
// once and with a new one: such a request had no effect.
func (c *Client) call(ctx context.Context, method, path string, query url.Values, in, out any) error {
	login := c.config.login
	if login == nil {
		return c.send(ctx, &credential{token: c.config.Token}, method, path, query, in, out)
	}
	for first := true; ; first = false {
		proof, err := login.credential(ctx)
		if err != nil {
			return err
		}
		if err = c.send(ctx, proof, method, path, query, in, out); !errors.Is(err, fault.ErrLogin) {
			return err
		}
		login.reject(proof)
		c.http.CloseIdleConnections() // they may have been made with the certificate that was refused
		if !first {
			return err
		}
	}
}

func (c *Client) send(ctx context.Context, proof *credential, method, path string, query url.Values, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	req, err := c.request(ctx, method, path, query, in)
	if err != nil {
		return err
	}
	if proof.token != "" {
		req.Header.Set("Authorization", "Bearer "+string(proof.token))
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return c.unreachable(ctx, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return c.unreachable(ctx, err)
	case len(text) > maxAnswer:
		return fault.New(fault.Corrupt, "%s %s: the answer has more than %d bytes", method, path, maxAnswer)
	case resp.StatusCode/100 != 2:
		return refusal(resp, text)
	case out == nil:
		return nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fault.New(fault.Corrupt, "%s %s: %w", method, path, err).WithHint("is there an API server at %s?", c.config.Server)
	}
	return nil
}

func (c *Client) request(ctx context.Context, method, path string, query url.Values, in any) (*http.Request, error) {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(text)
	}
	u := c.config.Server.JoinPath(path)
	u.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "decamp")
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json") // RFC 7386
	}
	return req, nil
}

// unreachable is the fault of a request that got no answer. That somebody asked to stop is no fault of the cluster's.
func (c *Client) unreachable(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), context.Canceled) {
		return err
	}
	return fault.New(fault.Unreachable, "API server %s: %w", c.Host(), err).WithHint("try it from here: kubectl cluster-info")
}

// refusal is what the API server says of a request that it does not fulfil. Its text is a Status, or
// that of a proxy on the way.
func refusal(resp *http.Response, text []byte) error {
	var status struct {
		Message string `json:"message"`
		Reason  string `json:"reason"`
	}
	if json.Unmarshal(text, &status) != nil || status.Message == "" {
		status.Message = fmt.Sprintf("%s %s: %s", resp.Request.Method, resp.Request.URL.Path, resp.Status)
	}
	e := fault.New(kindOf(resp.StatusCode), "%s", clip(status.Message))
	switch e.Kind {
	case fault.Denied:
		if strings.Contains(status.Message, "exceeded quota") { // which Kubernetes calls forbidden
			return fault.New(fault.Full, "%w", e).WithHint("kubectl describe resourcequota says how much there is")
		}
		if resp.StatusCode == http.StatusUnauthorized {
			return e.WithHint("the token or certificate is wrong or too old: kubectl auth whoami; " + makeToken).OfLogin()
		}
		return e.WithHint("kubectl auth can-i --list says what the account may do")
	case fault.Transient:
		return e.WithHint("see how the API server is: kubectl get --raw /readyz?verbose")
	case fault.Invalid:
		return e.WithHint("this is not accepted by the versions of KubeVirt and CDI that the cluster runs")
	}
	return e
}

func kindOf(code int) fault.Kind {
	switch {
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return fault.Denied
	case code == http.StatusNotFound:
		return fault.NotFound
	case code == http.StatusConflict:
		return fault.Conflict
	case code == http.StatusTooManyRequests, code >= 500:
		return fault.Transient
	}
	return fault.Invalid
}

// clip keeps what strangers say to a length that can be read.
func clip(text string) string {
	text = strings.ToValidUTF8(strings.TrimSpace(text), "?")
	if len(text) > 2000 {
		return strings.ToValidUTF8(text[:2000], "") + " …"
	}
	return text
}
