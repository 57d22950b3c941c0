package kube

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/decamp/decamp/internal/childenv"
	"github.com/decamp/decamp/internal/fault"
)

// PluginPolicy decides whether a kubeconfig may start the credential plugin that it names. A plugin is any
// command, and runs as the user of decamp.
type PluginPolicy int

const (
	RefusePlugins PluginPolicy = iota // a kubeconfig with a plugin is fault.Denied
	AllowPlugins                      // for a kubeconfig that the local user or an administrator of this machine named
)

// plugin is the field exec of a user: a command that prints an ExecCredential.
//
// Source: https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
type plugin struct {
	APIVersion string   `yaml:"apiVersion"`
	Command    string   `yaml:"command"` // a name is searched in PATH; a relative path begins at the kubeconfig
	Args       []string `yaml:"args"`
	Env        []struct {
		Name  string `yaml:"name"`
		Value string `yaml:"value"`
	} `yaml:"env"`
	InstallHint        string `yaml:"installHint"`
	InteractiveMode    string `yaml:"interactiveMode"`
	ProvideClusterInfo bool   `yaml:"provideClusterInfo"`
}

// Versions of ExecCredential. They have the same fields.
const (
	execV1      = "client.authentication.k8s.io/v1"
	execV1beta1 = "client.authentication.k8s.io/v1beta1"
)

// execCredential is what a plugin reads from KUBERNETES_EXEC_INFO, and what it prints.
type execCredential struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Spec       struct {
		Cluster     *clusterInfo `json:"cluster,omitempty"`
		Interactive bool         `json:"interactive"`
	} `json:"spec"`
	Status *struct {
		ExpirationTimestamp   time.Time `json:"expirationTimestamp"`
		Token                 string    `json:"token"`
		ClientCertificateData string    `json:"clientCertificateData"` // PEM
		ClientKeyData         string    `json:"clientKeyData"`         // PEM
	} `json:"status,omitempty"`
}

// clusterInfo is the cluster that a plugin logs in to, for plugins with provideClusterInfo.
type clusterInfo struct {
	Server     string `json:"server"`
	ServerName string `json:"tls-server-name,omitempty"`
	Insecure   bool   `json:"insecure-skip-tls-verify,omitempty"`
	CA         []byte `json:"certificate-authority-data,omitempty"`
	Config     any    `json:"config,omitempty"` // the extension of the cluster with the name execExtension
}

const execExtension = "client.authentication.k8s.io/exec"

// pluginVariables are the variables that plugins get beside the common ones: proxies, certificates, and where
// the tools of clouds keep their configuration. Secrets are not among them: a kubeconfig sets those in env.
var pluginVariables = []string{
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR",
	"XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR",
	"AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE",
	"AZURE_CONFIG_DIR", "CLOUDSDK_CONFIG", "CLOUDSDK_ACTIVE_CONFIG_NAME", "GOOGLE_APPLICATION_CREDENTIALS",
}

const (
	pluginTimeout = time.Minute      // one run of a plugin
	pluginDrain   = 5 * time.Second  // that the output of a plugin's own children is read after its end
	expiryMargin  = 10 * time.Second // before its expiry a credential is renewed
	maxComplaint  = 4 << 10          // bytes of a plugin's standard error that are kept
)

// credential proves to the API server which user sends a request: by a token, a certificate or both.
type credential struct {
	token   Secret
	pair    *tls.Certificate // nil for a token alone
	expires time.Time        // zero if it is not known
}

// pluginLogin runs a plugin when a credential is required, and keeps the credential until it expires. It is
// safe for concurrent use: the plugin runs once at a time.
type pluginLogin struct {
	plugin  plugin
	dir     string // folder of the kubeconfig
	cluster *clusterInfo
	timeout time.Duration
	now     func() time.Time // replaced by tests

	lock    chan struct{} // of capacity 1; who has sent to it may run the plugin and store current
	current atomic.Pointer[credential]
}

// check refuses a plugin that cannot be run, without running it.
func (p plugin) check() error {
	switch {
	case p.Command == "":
		return fault.New(fault.Invalid, "its credential plugin (exec) has no command").WithHint(flatten)
	case p.APIVersion != execV1 && p.APIVersion != execV1beta1:
		return fault.New(fault.Unsupported, "its credential plugin has the apiVersion %q", p.APIVersion).
			WithHint("update the plugin: %s and %s are supported", execV1, execV1beta1)
	case p.InteractiveMode == "Always":
		return fault.New(fault.Unsupported, "its credential plugin %s requires a terminal (interactiveMode: Always)", fault.Line(p.Command)).WithHint(makeToken)
	case p.InteractiveMode == "" && p.APIVersion == execV1:
		return fault.New(fault.Invalid, "its credential plugin %s has no interactiveMode, which %s requires", fault.Line(p.Command), execV1).
			WithHint("add interactiveMode: IfAvailable to exec")
	case p.InteractiveMode != "" && p.InteractiveMode != "Never" && p.InteractiveMode != "IfAvailable":
		return fault.New(fault.Invalid, "the interactiveMode of its credential plugin is %q", p.InteractiveMode).WithHint("it is Never or IfAvailable")
	}
	return nil
}

// permit refuses the plugin of a kubeconfig that may not start one, or that other users may write.
func (p plugin) permit(policy PluginPolicy, mode fs.FileMode) error {
	command := fault.Line(p.Command)
	switch {
	case policy != AllowPlugins:
		return fault.New(fault.Denied, "the credential plugin %s is not started for a submitted plan: only a kubeconfig in the access file may name one", command).
			WithHint("an administrator adds the kubeconfig to the places in access.yaml, and the plan uses to: [place:NAME?stage=/FOLDER]; or " + makeToken)
	case mode.Perm()&0o022 != 0:
		return fault.New(fault.Denied, "the credential plugin %s is not started: other users may write the kubeconfig that names it", command).
			WithHint("run: chmod go-w KUBECONFIG")
	}
	return nil
}

// credential returns the credential that the plugin printed last, or runs the plugin if there is none or if it
// is about to expire.
func (l *pluginLogin) credential(ctx context.Context) (*credential, error) {
	select {
	case l.lock <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-l.lock }()
	had := l.current.Load()
	if had != nil && (had.expires.IsZero() || l.now().Before(had.expires.Add(-expiryMargin))) {
		return had, nil
	}
	got, err := l.run(ctx)
	if err != nil {
		return nil, fmt.Errorf("credential plugin %s: %w", fault.Line(l.plugin.Command), err)
	}
	l.current.Store(got)
	return got, nil
}

// reject forgets a credential that the API server refused.
func (l *pluginLogin) reject(refused *credential) { l.current.CompareAndSwap(refused, nil) }

// certificate returns the certificate for TLS handshakes; an empty one if the plugin printed none.
func (l *pluginLogin) certificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	if c := l.current.Load(); c != nil && c.pair != nil {
		return c.pair, nil
	}
	return &tls.Certificate{}, nil
}

// run runs the plugin in a session without a terminal, so that it cannot prompt. The plugin and the processes
// that it started are killed when their time is over.
func (l *pluginLogin) run(ctx context.Context) (*credential, error) {
	command := l.plugin.Command
	if strings.ContainsRune(command, filepath.Separator) && !filepath.IsAbs(command) {
		command = filepath.Join(l.dir, command)
	}
	path, err := exec.LookPath(command)
	if err != nil {
		return nil, fault.New(fault.Unsupported, "%w", err).WithHint("%s", cmp.Or(fault.Line(l.plugin.InstallHint), "install it, or write its whole path to exec.command of the kubeconfig")).OfLogin()
	}
	info := execCredential{APIVersion: l.plugin.APIVersion, Kind: "ExecCredential"}
	if l.plugin.ProvideClusterInfo {
		info.Spec.Cluster = l.cluster
	}
	text, err := json.Marshal(info)
	if err != nil {
		return nil, fault.New(fault.Invalid, "the extension %s of the cluster: %w", execExtension, err).WithHint(flatten)
	}
	limited, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	said, complaint := &boundedBuffer{most: maxFile}, &headBuffer{}
	cmd := exec.CommandContext(limited, path, l.plugin.Args...)
	cmd.Env = append(childenv.Of(os.Environ(), pluginVariables...), "KUBERNETES_EXEC_INFO="+string(text))
	for _, v := range l.plugin.Env {
		cmd.Env = append(cmd.Env, v.Name+"="+v.Value)
	}
	cmd.Stdout, cmd.Stderr = said, complaint
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = pluginDrain
	err = cmd.Run()
	switch {
	case said.over:
		return nil, fault.New(fault.Corrupt, "it printed more than %d bytes", said.most).WithHint(makeToken)
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case limited.Err() != nil:
		return nil, fault.New(fault.Unreachable, "it did not end within %v%s", l.timeout, complaint).WithHint("start it by hand, and see what it waits for; it may not prompt")
	case err != nil && !errors.Is(err, exec.ErrWaitDelay): // it ended well, and left something running
		return nil, fault.New(fault.Denied, "%w%s", err, complaint).WithHint("log in with the tool that it belongs to, and test it: kubectl auth whoami").OfLogin()
	}
	return l.parse(said.text.Bytes())
}

// parse reads the ExecCredential that a plugin printed.
func (l *pluginLogin) parse(text []byte) (*credential, error) {
	var printed execCredential
	if err := json.Unmarshal(text, &printed); err != nil {
		return nil, fault.New(fault.Corrupt, "its output is not an ExecCredential: %w", err).WithHint("update the plugin, or " + makeToken)
	}
	if printed.Kind != "ExecCredential" || printed.APIVersion != l.plugin.APIVersion {
		return nil, fault.New(fault.Corrupt, "it printed %q of %q, and the kubeconfig requires ExecCredential of %q", fault.Line(printed.Kind), fault.Line(printed.APIVersion), l.plugin.APIVersion).
			WithHint("write the apiVersion that the plugin prints to exec.apiVersion of the kubeconfig")
	}
	s := printed.Status
	if s == nil || s.Token == "" && s.ClientCertificateData == "" && s.ClientKeyData == "" {
		return nil, fault.New(fault.Denied, "it printed neither a token nor a certificate").WithHint("log in with the tool that it belongs to").OfLogin()
	}
	token, err := parseToken(s.Token)
	if err != nil {
		return nil, err
	}
	c := &credential{token: token, expires: s.ExpirationTimestamp}
	if s.ClientCertificateData != "" || s.ClientKeyData != "" {
		pair, err := tls.X509KeyPair([]byte(s.ClientCertificateData), []byte(s.ClientKeyData))
		if err != nil {
			return nil, fault.New(fault.Corrupt, "its certificate and key: %w", err).WithHint("update the plugin, or " + makeToken)
		}
		c.pair = &pair
	}
	return c, nil
}

// boundedBuffer keeps what is written to it, and fails after most bytes.
type boundedBuffer struct {
	most int
	text bytes.Buffer
	over bool // more was written
}

func (b *boundedBuffer) Write(p []byte) (int, error) {
	if b.over = b.over || b.text.Len()+len(p) > b.most; b.over {
		return 0, errors.New("too many bytes")
	}
	return b.text.Write(p)
}

// headBuffer keeps the first maxComplaint bytes that are written to it.
type headBuffer struct{ text []byte }

func (b *headBuffer) Write(p []byte) (int, error) {
	b.text = append(b.text, p[:min(len(p), maxComplaint-len(b.text))]...)
	return len(p), nil
}

// String returns the text as the end of an error; empty if there is none.
func (b *headBuffer) String() string {
	if line := fault.Line(string(b.text)); line != "" {
		return ": " + line
	}
	return ""
}
