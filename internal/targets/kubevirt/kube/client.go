// Package kube is a client for the API server of a Kubernetes cluster. It creates, reads, lists, changes and
// deletes objects, and queries permissions.
//
// Answers have a maximum size, and requests a timeout. The kind of an error follows from the API server's
// status: AlreadyExists and other conflicts are fault.Conflict, a rejected object is fault.Invalid, and
// temporary problems are fault.Transient.
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
	"github.com/decamp/decamp/internal/proxy"
	"github.com/decamp/decamp/internal/targets/recall"
)

// Client sends requests of one user to one cluster. It is safe for concurrent use.
type Client struct {
	config *Config      // fixed after New
	http   *http.Client // client with its own connections
}

// New returns a client for a kubeconfig. It sends no request.
func New(c *Config) *Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.TLSClientConfig = c.TLS.Clone()
	return &Client{config: c, http: &http.Client{Transport: &recall.Transport{Next: proxy.Wrap(t)}}}
}

// Host returns the host and port of the API server.
func (c *Client) Host() string { return c.config.Server.Host }

// Config returns the argument of New.
func (c *Client) Config() *Config { return c.config }

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Kind is a kind of objects, identified by its path in the API.
type Kind struct {
	Group, Version string // an empty Group is the core group
	Plural         string // plural name in lower case, as in paths
	Cluster        bool   // objects of this kind are not in namespaces
}

// urlPath returns the path of the object with a name, or of all objects of the kind if name is empty.
func (k Kind) urlPath(namespace, name string) string {
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

// Read reads an object into out. If it does not exist, the error is fault.NotFound.
func (c *Client) Read(ctx context.Context, k Kind, namespace, name string, out any) error {
	return c.do(ctx, http.MethodGet, k.urlPath(namespace, name), nil, nil, out)
}

// List reads the objects that match a label selector into out.
func (c *Client) List(ctx context.Context, k Kind, namespace, selector string, out any) error {
	return c.do(ctx, http.MethodGet, k.urlPath(namespace, ""), url.Values{"labelSelector": {selector}}, nil, out)
}

// Create creates an object and reads the result into out, which may be nil. Unknown fields and other
// rejected objects
// are fault.Invalid. An existing name is fault.Conflict.
func (c *Client) Create(ctx context.Context, k Kind, namespace string, in, out any) error {
	return c.do(ctx, http.MethodPost, k.urlPath(namespace, ""), url.Values{"fieldValidation": {"Strict"}, "fieldManager": {"decamp"}}, in, out)
}

// Try is a dry run of Create.
func (c *Client) Try(ctx context.Context, k Kind, namespace string, in any) error {
	q := url.Values{"fieldValidation": {"Strict"}, "fieldManager": {"decamp"}, "dryRun": {"All"}}
	return c.do(ctx, http.MethodPost, k.urlPath(namespace, ""), q, in, nil)
}

// Merge changes fields of an object if it still has the resource version. Otherwise the error is
// fault.Conflict. Resource
// versions are unique, so a replaced object is never changed.
func (c *Client) Merge(ctx context.Context, k Kind, namespace, name, version string, fields map[string]any) error {
	in := maps.Clone(fields)
	in["metadata"] = map[string]string{"resourceVersion": version}
	return c.do(ctx, http.MethodPatch, k.urlPath(namespace, name), url.Values{"fieldValidation": {"Strict"}, "fieldManager": {"decamp"}}, in, nil)
}

// Only identifies the version of an object that a deletion is meant for (Preconditions).
type Only struct {
	UID             string `json:"uid,omitempty"`             // distinguishes objects of the same name
	ResourceVersion string `json:"resourceVersion,omitempty"` // empty to delete any version
}

// Delete deletes an object if it matches only. Otherwise the error is fault.Conflict. Dependent objects
// are deleted
// first.
func (c *Client) Delete(ctx context.Context, k Kind, namespace, name string, only Only) error {
	options := map[string]any{
		"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground", "preconditions": only,
	}
	return c.do(ctx, http.MethodDelete, k.urlPath(namespace, name), nil, options, nil)
}

// Serves reports whether the cluster has a version of an API group.
func (c *Client) Serves(ctx context.Context, group, version string) (bool, error) {
	err := c.do(ctx, http.MethodGet, "/apis/"+group+"/"+version, nil, nil, nil)
	if fault.Is(err, fault.NotFound) {
		return false, nil
	}
	return err == nil, err
}

// May reports whether the user has the permission for a verb on objects of a kind.
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
	err := c.do(ctx, http.MethodPost, reviews.urlPath("", ""), nil, review, &review)
	return review.Status.Allowed, err
}

const (
	callTimeout = time.Minute // limit for one request
	maxAnswer   = 16 << 20    // maximum length of an answer in bytes
)

// do sends a request and decodes the answer into out. If the API server rejects the credential of a
// plugin, it repeats
// the request once with a new credential. Such a request had no effect.
func (c *Client) do(ctx context.Context, method, path string, query url.Values, in, out any) error {
	login := c.config.login
	if login == nil {
		return c.sendOnce(ctx, &credential{token: c.config.Token}, method, path, query, in, out)
	}
	for first := true; ; first = false {
		proof, err := login.currentCredential(ctx)
		if err != nil {
			return err
		}
		if err = c.sendOnce(ctx, proof, method, path, query, in, out); !errors.Is(err, fault.ErrLogin) {
			return err
		}
		login.dropCredential(proof)
		c.http.CloseIdleConnections() // their handshakes may have used the rejected certificate
		if !first {
			return err
		}
	}
}

// sendOnce sends one request with the given credential. in and out may be nil.
func (c *Client) sendOnce(ctx context.Context, proof *credential, method, path string, query url.Values, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	req, err := c.newRequest(ctx, method, path, query, in)
	if err != nil {
		return err
	}
	if proof.token != "" {
		req.Header.Set("Authorization", "Bearer "+string(proof.token))
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return c.unreachableError(ctx, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return c.unreachableError(ctx, err)
	case len(text) > maxAnswer:
		return fault.New(fault.Corrupt, "%s %s: the answer has more than %d bytes", method, path, maxAnswer)
	case resp.StatusCode/100 != 2:
		return statusError(resp, text)
	case out == nil:
		return nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fault.New(fault.Corrupt, "%s %s: %w", method, path, err).WithHint("check that there is an API server at %s", c.config.Server)
	}
	return nil
}

// newRequest returns a request with in as its JSON body.
func (c *Client) newRequest(ctx context.Context, method, path string, query url.Values, in any) (*http.Request, error) {
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

// unreachableError returns fault.Unreachable for a request without an answer. If ctx was canceled, it
// returns err.
func (c *Client) unreachableError(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), context.Canceled) {
		return err
	}
	var known *fault.Error
	if errors.As(err, &known) { // of an HTTP proxy
		return fmt.Errorf("API server %s: %w", c.Host(), known)
	}
	return fault.New(fault.Unreachable, "API server %s: %w", c.Host(), err).WithHint("test it from this host: kubectl cluster-info")
}

// statusError converts an answer with an error status. Its body is a Status object, or the text of a
// proxy.
func statusError(resp *http.Response, text []byte) error {
	var status struct {
		Message string `json:"message"`
		Reason  string `json:"reason"`
	}
	if json.Unmarshal(text, &status) != nil || status.Message == "" {
		status.Message = fmt.Sprintf("%s %s: %s", resp.Request.Method, resp.Request.URL.Path, resp.Status)
	}
	e := fault.New(kindOf(resp.StatusCode), "%s", truncateText(status.Message))
	switch e.Kind {
	case fault.Denied:
		if strings.Contains(status.Message, "exceeded quota") { // Kubernetes uses the status 403 for this
			return fault.New(fault.Full, "%w", e).WithHint("free resources or raise the quota: kubectl describe resourcequota")
		}
		if resp.StatusCode == http.StatusUnauthorized {
			return e.WithHint("the token or certificate is invalid or expired; test it: kubectl auth whoami; " + makeToken).OfLogin()
		}
		return e.WithHint("list the permissions of the account: kubectl auth can-i --list")
	case fault.Transient:
		return e.WithHint("check the API server: kubectl get --raw /readyz?verbose")
	case fault.Invalid:
		return e.WithHint("the cluster's versions of KubeVirt and CDI do not accept this object")
	}
	return e
}

// kindOf returns the kind of an HTTP status code.
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

// truncateText limits text from the network to 2000 bytes of valid UTF-8.
func truncateText(text string) string {
	text = strings.ToValidUTF8(strings.TrimSpace(text), "?")
	if len(text) > 2000 {
		return strings.ToValidUTF8(text[:2000], "") + " …"
	}
	return text
}
