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
	AllowPlugins                      // only if the local user or an administrator of this host has named the kubeconfig
)

// plugin is the field exec of a user: a command that prints an ExecCredential.
//
// Source: https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
type plugin struct {
	APIVersion string   `yaml:"apiVersion"` // version of ExecCredential that the plugin supports
	Command    string   `yaml:"command"`    // name in PATH, or a path relative to the kubeconfig
	Args       []string `yaml:"args"`       // arguments of the command
	// added to the plugin's environment
	Env []struct {
		Name  string `yaml:"name"`
		Value string `yaml:"value"`
	} `yaml:"env"`
	InstallHint        string `yaml:"installHint"`        // remedy if the command is missing
	InteractiveMode    string `yaml:"interactiveMode"`    // "Never", "IfAvailable" or "Always"
	ProvideClusterInfo bool   `yaml:"provideClusterInfo"` // the plugin requires clusterInfo
}

// Versions of ExecCredential. They have the same fields.
const (
	execV1      = "client.authentication.k8s.io/v1"
	execV1beta1 = "client.authentication.k8s.io/v1beta1"
)

// execCredential is the input of a plugin, in KUBERNETES_EXEC_INFO, and its output.
type execCredential struct {
	APIVersion string `json:"apiVersion"` // execV1 or execV1beta1
	Kind       string `json:"kind"`       // "ExecCredential"
	// input of the plugin
	Spec struct {
		Cluster     *clusterInfo `json:"cluster,omitempty"`
		Interactive bool         `json:"interactive"`
	} `json:"spec"`
	// output of the plugin; nil in its input
	Status *struct {
		ExpirationTimestamp   time.Time `json:"expirationTimestamp"`
		Token                 string    `json:"token"`
		ClientCertificateData string    `json:"clientCertificateData"` // PEM
		ClientKeyData         string    `json:"clientKeyData"`         // PEM
	} `json:"status,omitempty"`
}

// clusterInfo is the cluster that a plugin logs in to, for plugins with provideClusterInfo.
type clusterInfo struct {
	Server     string `json:"server"`                               // URL of the API server
	ServerName string `json:"tls-server-name,omitempty"`            // name in the server's certificate
	Insecure   bool   `json:"insecure-skip-tls-verify,omitempty"`   // do not verify the certificate
	CA         []byte `json:"certificate-authority-data,omitempty"` // PEM; encoding/json encodes it in base64
	Config     any    `json:"config,omitempty"`                     // the extension of the cluster with the name execExtension
}

// execExtension is the name of the cluster's extension that plugins receive.
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
	pluginTimeout = time.Minute      // limit for one run of a plugin
	pluginDrain   = 5 * time.Second  // time to read the output of a plugin's children after its end
	expiryMargin  = 10 * time.Second // time before its expiry when a credential is renewed
	maxStderr     = 4 << 10          // bytes of a plugin's standard error that are kept
)

// credential proves to the API server which user sends a request: by a token, a certificate or both.
type credential struct {
	token   Secret           // bearer token; may be empty
	pair    *tls.Certificate // client certificate; may be nil
	expires time.Time        // zero if it is not known
}

// pluginLogin runs a plugin when a credential is required, and keeps the credential until it expires.
// It is
// safe for concurrent use: the plugin runs once at a time.
type pluginLogin struct {
	plugin  plugin           // the command
	dir     string           // folder of the kubeconfig
	cluster *clusterInfo     // description for the plugin
	timeout time.Duration    // limit for one run
	now     func() time.Time // replaced by tests

	lock    chan struct{}              // semaphore of capacity 1; required to run the plugin and to store current
	current atomic.Pointer[credential] // last credential; nil if it does not exist
}

// validate returns an error for a plugin that decamp cannot run. It does not run the plugin.
func (p plugin) validate() error {
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

// checkPolicy returns fault.Denied if the policy does not allow plugins, or if other users can write
// the kubeconfig. mode
// is the kubeconfig's.
func (p plugin) checkPolicy(policy PluginPolicy, mode fs.FileMode) error {
	command := fault.Line(p.Command)
	switch {
	case policy != AllowPlugins:
		return fault.New(fault.Denied, "the credential plugin %s is not started for a submitted plan: only a kubeconfig in the access file may name one", command).
			WithHint("an administrator adds the kubeconfig to the places in access.yaml, and the plan uses to: [place:NAME?staging=/FOLDER]; or " + makeToken)
	case mode.Perm()&0o022 != 0:
		return fault.New(fault.Denied, "the credential plugin %s is not started: other users may write the kubeconfig that names it", command).
			WithHint("run: chmod go-w KUBECONFIG")
	}
	return nil
}

// currentCredential returns the last credential. It runs the plugin if there is none or if it is about
// to expire.
func (l *pluginLogin) currentCredential(ctx context.Context) (*credential, error) {
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
	got, err := l.runPlugin(ctx)
	if err != nil {
		return nil, fmt.Errorf("credential plugin %s: %w", fault.Line(l.plugin.Command), err)
	}
	l.current.Store(got)
	return got, nil
}

// dropCredential forgets a credential that the API server rejected, unless it was replaced already.
func (l *pluginLogin) dropCredential(refused *credential) { l.current.CompareAndSwap(refused, nil) }

// clientCertificate implements tls.Config.GetClientCertificate. It returns an empty certificate if the
// plugin printed none.
func (l *pluginLogin) clientCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	if c := l.current.Load(); c != nil && c.pair != nil {
		return c.pair, nil
	}
	return &tls.Certificate{}, nil
}

// runPlugin runs the plugin in a session without a terminal, so that it cannot prompt. After the
// timeout, it kills the
// plugin and its child processes.
func (l *pluginLogin) runPlugin(ctx context.Context) (*credential, error) {
	command := l.plugin.Command
	if strings.ContainsRune(command, filepath.Separator) && !filepath.IsAbs(command) {
		command = filepath.Join(l.dir, command)
	}
	path, err := exec.LookPath(command)
	if err != nil {
		return nil, fault.New(fault.Unsupported, "%w", err).WithHint("%s", cmp.Or(fault.Line(l.plugin.InstallHint), "install it, or write its absolute path to exec.command of the kubeconfig")).OfLogin()
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
	said, complaint := &boundedBuffer{limit: maxFile}, &headBuffer{}
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
		return nil, fault.New(fault.Corrupt, "it printed more than %d bytes", said.limit).WithHint(makeToken)
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case limited.Err() != nil:
		return nil, fault.New(fault.Unreachable, "it did not end within %v%s", l.timeout, complaint).WithHint("run it in a shell, and find out why it waits; it must not prompt")
	case err != nil && !errors.Is(err, exec.ErrWaitDelay): // ErrWaitDelay: the plugin succeeded, and a child process still runs
		return nil, fault.New(fault.Denied, "%w%s", err, complaint).WithHint("log in with the tool that it belongs to, and test it: kubectl auth whoami").OfLogin()
	}
	return l.parseOutput(said.text.Bytes())
}

// parseOutput parses the ExecCredential that a plugin printed.
func (l *pluginLogin) parseOutput(text []byte) (*credential, error) {
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

// boundedBuffer is a buffer whose Write fails after limit bytes.
type boundedBuffer struct {
	limit int          // maximum length in bytes
	text  bytes.Buffer // the written bytes
	over  bool         // a write has failed
}

// Write implements io.Writer.
func (b *boundedBuffer) Write(p []byte) (int, error) {
	if b.over = b.over || b.text.Len()+len(p) > b.limit; b.over {
		return 0, errors.New("too many bytes")
	}
	return b.text.Write(p)
}

// headBuffer is a writer that keeps the first maxStderr bytes.
type headBuffer struct{ text []byte }

// Write implements io.Writer. It never fails.
func (b *headBuffer) Write(p []byte) (int, error) {
	b.text = append(b.text, p[:min(len(p), maxStderr-len(b.text))]...)
	return len(p), nil
}

// String returns ": " and the text as one line, or "" if there is no text.
func (b *headBuffer) String() string {
	if line := fault.Line(string(b.text)); line != "" {
		return ": " + line
	}
	return ""
}
