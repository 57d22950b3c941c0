package kube

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/decamp/decamp/internal/fault"
)

// Config contains the address of a cluster and the credentials of a user.
type Config struct {
	Server    *url.URL    // base URL of the API server
	Namespace string      // namespace of the context; empty if it has none
	Token     Secret      // bearer token; empty for a certificate or a plugin
	TLS       *tls.Config // trusted CAs and the client's certificate

	login *pluginLogin // credential plugin; nil if it does not exist
}

// Secret is a string that fmt and log packages do not print.
type Secret string

// String returns a placeholder.
func (s Secret) String() string { return "***" }

// GoString returns a placeholder.
func (s Secret) GoString() string { return "***" }

// file is the part of a kubeconfig that decamp reads.
type file struct {
	Current  string  `yaml:"current-context"` // name of the default context
	Contexts []entry `yaml:"contexts"`        // pairs of a cluster and a user
	Clusters []entry `yaml:"clusters"`        // API servers
	Users    []entry `yaml:"users"`           // credentials
}

// entry is an element of one of the lists. Only the field for the list is set.
type entry struct {
	Name string `yaml:"name"` // name that other entries refer to
	// set in file.Contexts
	Context struct {
		Cluster   string `yaml:"cluster"`
		User      string `yaml:"user"`
		Namespace string `yaml:"namespace"`
	} `yaml:"context"`
	Cluster cluster `yaml:"cluster"` // set in file.Clusters
	User    user    `yaml:"user"`    // set in file.Users
}

// cluster is the address of an API server and the CA that signs its certificate.
type cluster struct {
	Server     string `yaml:"server"`                     // URL with the scheme https
	CAFile     string `yaml:"certificate-authority"`      // path, relative to the kubeconfig
	CA         string `yaml:"certificate-authority-data"` // PEM in base64; takes precedence over CAFile
	ServerName string `yaml:"tls-server-name"`            // name in the certificate, if it differs from the URL's host
	Insecure   bool   `yaml:"insecure-skip-tls-verify"`   // do not verify the certificate
	// configuration for credential plugins, by name
	Extensions []struct {
		Name      string `yaml:"name"`
		Extension any    `yaml:"extension"`
	} `yaml:"extensions"`
}

// user contains the credentials of a user.
type user struct {
	Token     string `yaml:"token"`                   // bearer token
	TokenFile string `yaml:"tokenFile"`               // takes precedence over Token, as in client-go
	CertFile  string `yaml:"client-certificate"`      // path, relative to the kubeconfig
	Cert      string `yaml:"client-certificate-data"` // PEM in base64; takes precedence over CertFile
	KeyFile   string `yaml:"client-key"`              // path, relative to the kubeconfig
	Key       string `yaml:"client-key-data"`         // PEM in base64; takes precedence over KeyFile

	Exec *plugin `yaml:"exec"` // ignored if there is a token or a certificate, as in client-go
}

// The remedies for a kubeconfig that cannot be used.
const (
	// remedy for missing files and malformed entries
	flatten = "create a complete kubeconfig: kubectl config view --minify --flatten"
	// remedy for missing or unsupported credentials
	makeToken = "create a token, and a user with it: kubectl config set-credentials decamp --token=\"$(kubectl create token decamp --duration=24h)\""
	// remedy for a missing entry
	listContexts = "list the contexts: kubectl config get-contexts; then use context=NAME"
)

// Load reads a context of a kubeconfig; the current context if context is empty. A path may begin with
// ~/ for the home
// directory. Load runs no credential plugin; the first request does.
func Load(path, context string, policy PluginPolicy) (*Config, error) {
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil, fault.New(fault.NotFound, "find %s: %w", path, err).WithHint("set the absolute path of the kubeconfig: kubeconfig=/FILE")
		}
		path = filepath.Join(home, rest)
	}
	text, mode, err := readFile(path)
	if err != nil {
		return nil, err
	}
	c, err := parseConfig(text, filepath.Dir(path), context)
	if err == nil && c.login != nil {
		err = c.login.plugin.checkPolicy(policy, mode)
	}
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	return c, nil
}

// parseConfig parses a kubeconfig. Relative paths in it refer to dir. name is the context, or empty.
func parseConfig(text []byte, dir, name string) (*Config, error) {
	var f file
	if err := yaml.Unmarshal(text, &f); err != nil {
		return nil, fault.New(fault.Invalid, "%w", err).WithHint(flatten)
	}
	chosen, err := findEntry(f.Contexts, "context", cmp.Or(name, f.Current))
	if err != nil {
		return nil, err
	}
	at, err := findEntry(f.Clusters, "cluster", chosen.Context.Cluster)
	if err != nil {
		return nil, err
	}
	as, err := findEntry(f.Users, "user", chosen.Context.User)
	if err != nil {
		return nil, err
	}
	c := &Config{Namespace: chosen.Context.Namespace}
	if err := at.Cluster.applyTo(c, dir); err != nil {
		return nil, fmt.Errorf("cluster %q: %w", at.Name, err)
	}
	if err := as.User.applyTo(c, dir); err != nil {
		return nil, fmt.Errorf("user %q: %w", as.Name, err)
	}
	if c.login != nil {
		if c.login.cluster, err = at.Cluster.toInfo(dir); err != nil {
			return nil, fmt.Errorf("cluster %q: %w", at.Name, err)
		}
	}
	return c, nil
}

// findEntry returns the entry with a name. The message contains what, the kind of the entry.
func findEntry(list []entry, what, name string) (*entry, error) {
	at := slices.IndexFunc(list, func(e entry) bool { return e.Name == name })
	if at < 0 {
		return nil, fault.New(fault.NotFound, "it has no %s %q", what, name).WithHint(listContexts)
	}
	return &list[at], nil
}

// applyTo sets the address of the API server and the trusted CAs.
func (c cluster) applyTo(to *Config, dir string) (err error) {
	to.Server, err = url.Parse(c.Server)
	if err != nil || to.Server.Scheme != "https" || to.Server.Host == "" {
		return fault.New(fault.Invalid, "%q is not the URL of an API server", c.Server).WithHint("it must be https://HOST:PORT; " + flatten)
	}
	ca, err := readData(c.CA, c.CAFile, dir)
	if err != nil {
		return err
	}
	to.TLS = &tls.Config{ServerName: c.ServerName, InsecureSkipVerify: c.Insecure} //nolint:gosec // the user's kubeconfig decides
	if len(ca) > 0 {
		to.TLS.RootCAs = x509.NewCertPool()
		if !to.TLS.RootCAs.AppendCertsFromPEM(ca) {
			return fault.New(fault.Invalid, "the certificate authority is not a PEM certificate").WithHint(flatten)
		}
	}
	return nil
}

// toInfo returns the description of the cluster for a credential plugin.
func (c cluster) toInfo(dir string) (*clusterInfo, error) {
	ca, err := readData(c.CA, c.CAFile, dir)
	i := &clusterInfo{Server: c.Server, ServerName: c.ServerName, Insecure: c.Insecure, CA: ca}
	for _, e := range c.Extensions {
		if e.Name == execExtension {
			i.Config = e.Extension
		}
	}
	return i, err
}

// applyTo sets the credentials: a token, a certificate, or a plugin. It must follow cluster.applyTo,
// which sets to.TLS.
func (u user) applyTo(to *Config, dir string) error {
	token := []byte(u.Token)
	var err error
	if u.TokenFile != "" { // takes precedence, as in client-go
		if token, err = readData("", u.TokenFile, dir); err != nil {
			return err
		}
	}
	if to.Token, err = parseToken(string(token)); err != nil {
		return err
	}
	cert, err := readData(u.Cert, u.CertFile, dir)
	if err != nil {
		return err
	}
	key, err := readData(u.Key, u.KeyFile, dir)
	switch {
	case err != nil:
		return err
	case len(cert) == 0 && to.Token == "" && u.Exec != nil:
		if err := u.Exec.validate(); err != nil {
			return err
		}
		to.login = &pluginLogin{plugin: *u.Exec, dir: dir, timeout: pluginTimeout, now: time.Now, lock: make(chan struct{}, 1)}
		to.TLS.GetClientCertificate = to.login.clientCertificate
		return nil
	case len(cert) == 0 && to.Token == "":
		return fault.New(fault.Unsupported, "it has neither a token nor a certificate").WithHint(makeToken)
	case len(cert) == 0:
		return nil
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return fault.New(fault.Invalid, "its certificate and key: %w", err).WithHint(flatten)
	}
	to.TLS.Certificates = []tls.Certificate{pair}
	return nil
}

// parseToken returns a token without surrounding white space. Other characters than printable ASCII are
// fault.Invalid.
func parseToken(text string) (Secret, error) {
	token := strings.TrimSpace(text)
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fault.New(fault.Invalid, "the token contains characters that are not valid in a token").WithHint(makeToken)
	}
	return Secret(token), nil
}

// readData returns data decoded from base64, or the content of the file at path. Both may be empty.
func readData(data, path, dir string) ([]byte, error) {
	if data != "" {
		text, err := base64.StdEncoding.DecodeString(data)
		if err != nil {
			return nil, fault.New(fault.Invalid, "%w", err).WithHint(flatten)
		}
		return text, nil
	}
	if path == "" {
		return nil, nil
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	text, _, err := readFile(path)
	return text, err
}

// maxFile is the maximum size of a kubeconfig, and of each file that it refers to, in bytes.
const maxFile = 1 << 20

// readFile returns the content and the mode of a regular file. It does not open other files, because a
// read from a pipe
// can block forever.
func readFile(path string) ([]byte, fs.FileMode, error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() { // a read from a pipe can block forever
		return nil, 0, fault.New(fault.Invalid, "%s is not a regular file", path).WithHint(flatten)
	}
	f, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, 0, fault.New(fault.NotFound, "%w", err).WithHint("set an existing file: kubeconfig=%s", "~/.kube/config")
	case errors.Is(err, fs.ErrPermission):
		return nil, 0, fault.New(fault.Denied, "%w", err).WithHint("run as a user who may read it")
	case err != nil: // such as a name that cannot be one
		return nil, 0, fault.New(fault.Invalid, "%w", err).WithHint(flatten)
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, 0, fault.Wrap(fault.Invalid, err)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		return nil, 0, fault.New(fault.Invalid, "%s has more than %d bytes", path, maxFile).WithHint(flatten)
	}
	return text, info.Mode(), err
}
