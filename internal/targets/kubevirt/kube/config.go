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

// Config is how a cluster is reached, and as whom.
type Config struct {
	Server    *url.URL
	Namespace string // of the context; empty if it names none
	Token     Secret // empty if a certificate or a plugin proves who the user is
	TLS       *tls.Config

	login *pluginLogin // nil without a credential plugin
}

// Secret is a text that is not to be seen in logs.
type Secret string

// String hides it.
func (s Secret) String() string { return "***" }

// GoString hides it.
func (s Secret) GoString() string { return "***" }

// file is the part of a kubeconfig that is understood.
type file struct {
	Current  string  `yaml:"current-context"`
	Contexts []entry `yaml:"contexts"`
	Clusters []entry `yaml:"clusters"`
	Users    []entry `yaml:"users"`
}

// entry is a name, and what it stands for under the key of its list.
type entry struct {
	Name    string `yaml:"name"`
	Context struct {
		Cluster   string `yaml:"cluster"`
		User      string `yaml:"user"`
		Namespace string `yaml:"namespace"`
	} `yaml:"context"`
	Cluster cluster `yaml:"cluster"`
	User    user    `yaml:"user"`
}

type cluster struct {
	Server     string `yaml:"server"`
	CAFile     string `yaml:"certificate-authority"`
	CA         string `yaml:"certificate-authority-data"`
	ServerName string `yaml:"tls-server-name"`
	Insecure   bool   `yaml:"insecure-skip-tls-verify"`
	Extensions []struct {
		Name      string `yaml:"name"`
		Extension any    `yaml:"extension"`
	} `yaml:"extensions"`
}

type user struct {
	Token     string `yaml:"token"`
	TokenFile string `yaml:"tokenFile"`
	CertFile  string `yaml:"client-certificate"`
	Cert      string `yaml:"client-certificate-data"`
	KeyFile   string `yaml:"client-key"`
	Key       string `yaml:"client-key-data"`

	Exec *plugin `yaml:"exec"` // not used beside a token or a certificate
}

// The remedies for a kubeconfig that cannot be used.
const (
	flatten   = "kubectl config view --minify --flatten writes one that is whole"
	makeToken = "have Kubernetes make a token, and a user of it: kubectl config set-credentials decamp --token=\"$(kubectl create token decamp --duration=24h)\""
	listThem  = "kubectl config get-contexts lists what there is; say context=NAME"
)

// Load reads a kubeconfig and takes one of its contexts; its current one if context is empty. A path
// that begins with ~/ is in the home directory. Load starts no credential plugin: the first request does.
func Load(path, context string, policy PluginPolicy) (*Config, error) {
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil, fault.New(fault.NotFound, "find %s: %w", path, err).WithHint("name the kubeconfig by its whole path")
		}
		path = filepath.Join(home, rest)
	}
	text, mode, err := readFile(path)
	if err != nil {
		return nil, err
	}
	c, err := parse(text, filepath.Dir(path), context)
	if err == nil && c.login != nil {
		err = c.login.plugin.permit(policy, mode)
	}
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	return c, nil
}

// parse understands a kubeconfig whose files are relative to dir.
func parse(text []byte, dir, name string) (*Config, error) {
	var f file
	if err := yaml.Unmarshal(text, &f); err != nil {
		return nil, fault.New(fault.Invalid, "%w", err).WithHint(flatten)
	}
	chosen, err := find(f.Contexts, "context", cmp.Or(name, f.Current))
	if err != nil {
		return nil, err
	}
	at, err := find(f.Clusters, "cluster", chosen.Context.Cluster)
	if err != nil {
		return nil, err
	}
	as, err := find(f.Users, "user", chosen.Context.User)
	if err != nil {
		return nil, err
	}
	c := &Config{Namespace: chosen.Context.Namespace}
	if err := at.Cluster.reach(c, dir); err != nil {
		return nil, fmt.Errorf("cluster %q: %w", at.Name, err)
	}
	if err := as.User.present(c, dir); err != nil {
		return nil, fmt.Errorf("user %q: %w", as.Name, err)
	}
	if c.login != nil {
		if c.login.cluster, err = at.Cluster.info(dir); err != nil {
			return nil, fmt.Errorf("cluster %q: %w", at.Name, err)
		}
	}
	return c, nil
}

func find(list []entry, what, name string) (*entry, error) {
	at := slices.IndexFunc(list, func(e entry) bool { return e.Name == name })
	if at < 0 {
		return nil, fault.New(fault.NotFound, "there is no %s %q", what, name).WithHint(listThem)
	}
	return &list[at], nil
}

// reach says where the API server is, and whose certificates are trusted.
func (c cluster) reach(to *Config, dir string) (err error) {
	to.Server, err = url.Parse(c.Server)
	if err != nil || to.Server.Scheme != "https" || to.Server.Host == "" {
		return fault.New(fault.Invalid, "%q is no address of an API server", c.Server).WithHint("it has to be https://HOST:PORT; " + flatten)
	}
	ca, err := content(c.CA, c.CAFile, dir)
	if err != nil {
		return err
	}
	to.TLS = &tls.Config{ServerName: c.ServerName, InsecureSkipVerify: c.Insecure} //nolint:gosec // as the user's own file says
	if len(ca) > 0 {
		to.TLS.RootCAs = x509.NewCertPool()
		if !to.TLS.RootCAs.AppendCertsFromPEM(ca) {
			return fault.New(fault.Invalid, "the certificate authority is no certificate in PEM").WithHint(flatten)
		}
	}
	return nil
}

// info describes the cluster to a plugin.
func (c cluster) info(dir string) (*clusterInfo, error) {
	ca, err := content(c.CA, c.CAFile, dir)
	i := &clusterInfo{Server: c.Server, ServerName: c.ServerName, Insecure: c.Insecure, CA: ca}
	for _, e := range c.Extensions {
		if e.Name == execExtension {
			i.Config = e.Extension
		}
	}
	return i, err
}

// present says who it is: by token, by certificate, or by a plugin.
func (u user) present(to *Config, dir string) error {
	token := []byte(u.Token)
	var err error
	if u.TokenFile != "" { // it counts more, as client-go has it
		if token, err = content("", u.TokenFile, dir); err != nil {
			return err
		}
	}
	if to.Token, err = parseToken(string(token)); err != nil {
		return err
	}
	cert, err := content(u.Cert, u.CertFile, dir)
	if err != nil {
		return err
	}
	key, err := content(u.Key, u.KeyFile, dir)
	switch {
	case err != nil:
		return err
	case len(cert) == 0 && to.Token == "" && u.Exec != nil:
		if err := u.Exec.check(); err != nil {
			return err
		}
		to.login = &pluginLogin{plugin: *u.Exec, dir: dir, timeout: pluginTimeout, now: time.Now, lock: make(chan struct{}, 1)}
		to.TLS.GetClientCertificate = to.login.certificate
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

// parseToken returns a token without the blanks around it.
func parseToken(text string) (Secret, error) {
	token := strings.TrimSpace(text)
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fault.New(fault.Invalid, "the token has signs that no token has").WithHint(makeToken)
	}
	return Secret(token), nil
}

// content is what stands in the kubeconfig itself, in base64, or else in a file.
func content(data, path, dir string) ([]byte, error) {
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

// maxFile bounds a kubeconfig, and each file it names, in bytes.
const maxFile = 1 << 20

// readFile returns the content of a file, and its mode.
func readFile(path string) ([]byte, fs.FileMode, error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() { // a pipe might never end, nor ever begin
		return nil, 0, fault.New(fault.Invalid, "%s is no file", path).WithHint(flatten)
	}
	f, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, 0, fault.New(fault.NotFound, "%w", err).WithHint("name a file that is there: kubeconfig=%s", "~/.kube/config")
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
