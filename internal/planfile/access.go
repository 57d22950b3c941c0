package planfile

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
)

// Access is the file in which an administrator names credentials and places for plans. Each machine has
// its own: the server checks a plan against it, and the worker that logs in does so again.
type Access struct {
	Version     int                   `yaml:"version" required:"true" min:"1" max:"1" doc:"of this format: 1"`
	Credentials map[string]Credential `yaml:"credentials" doc:"logins to sources and to their hosts, by name"`
	Places      map[string]NamedPlace `yaml:"places" doc:"destinations that are logged in to, by name"`

	path string // path of the file, for messages
}

// Credential is a secret, bound to the address and the identity that it may be sent to.
type Credential struct {
	URL          URL         `yaml:"url" doc:"the source: esxi://USER@HOST[:PORT] or vcenter://USER@HOST[:PORT]"`
	Fingerprint  Fingerprint `yaml:"fingerprint" doc:"SHA-256 of the certificate of the source"`
	SSH          SSHLogin    `yaml:"ssh" doc:"in place of url: a login by SSH to hosts of a source"`
	PasswordFile Path        `yaml:"passwordFile" doc:"the file with the password; without it the systemd credential of this name"`
	Roles        []Role      `yaml:"roles" doc:"roles whose plans may use it; without it admin alone"`
}

// SSHLogin is an account, and the hosts that it may be used at.
type SSHLogin struct {
	User     Text            `yaml:"user" doc:"the account; root if it is not set"`
	Port     int             `yaml:"port" min:"1" max:"65535" doc:"of SSH; 22 if it is not set"`
	Key      Path            `yaml:"key" doc:"a file with a private key"`
	HostKeys map[string]Text `yaml:"hostKeys" doc:"SHA256:… of the host key, by the name of the host; no other host is logged in to"`
}

// NamedPlace is a destination with its address, its parameters and its secrets, without a stage.
type NamedPlace struct {
	To    Text   `yaml:"to" required:"true" doc:"a destination without a folder and without stage="`
	Roles []Role `yaml:"roles" doc:"roles whose plans may use it; without it admin alone"`
}

func (Role) textForm() form { return form{words: []string{string(Operate), string(Admin)}} }

func (r *Role) parseText(s string) error { return setWord(r, s, r.textForm()) }

// AccessFile is the name of the file in the state directory.
const AccessFile = "access.yaml"

// LoadAccess reads the file. One that does not exist names nothing. One that other users may write is
// fault.Denied.
func LoadAccess(path string) (*Access, error) {
	f, err := os.Open(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return &Access{path: path}, nil
	case err != nil:
		return nil, fault.New(fault.Denied, "read the access file: %w", err).WithHint("let the user that runs decamp read %s", fault.Quote(path))
	}
	defer f.Close() // only read
	st, err := f.Stat()
	switch {
	case err != nil:
		return nil, fault.Wrap(fault.Invalid, err)
	case !st.Mode().IsRegular():
		return nil, fault.New(fault.Invalid, "the access file %s is not a regular file", path).WithHint("name a file with --access")
	case st.Mode().Perm()&0o022 != 0:
		return nil, fault.New(fault.Denied, "other users may write the access file %s", path).WithHint("run: chmod go-w %s", fault.Quote(path))
	}
	text, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err)
	}
	a, found := ParseAccess(text)
	if len(found) > 0 {
		first := found[0]
		return nil, fault.New(fault.Invalid, "%s:%d: %s%s", path, first.Line, first.Text, moreMistakes(len(found)-1)).WithHint("%s", first.Remedy)
	}
	a.path = path
	return a, nil
}

// ParseAccess reads the text as strictly as a plan's.
func ParseAccess(text []byte) (*Access, Findings) {
	d, root := decodeRoot(text)
	if root == nil {
		return nil, d.found
	}
	a := &Access{path: AccessFile}
	d.decodeValue(root, reflect.ValueOf(a).Elem(), "")
	if len(d.found) == 0 {
		r := &ruleChecker{file: &File{positions: d.positions}}
		r.checkAccess(a)
		d.found = r.found
	}
	d.found.Sort()
	return a, d.found
}

func (r *ruleChecker) checkAccess(a *Access) {
	for _, name := range slices.Sorted(maps.Keys(a.Credentials)) {
		r.checkCredential(name, a.Credentials[name])
	}
	for _, name := range slices.Sorted(maps.Keys(a.Places)) {
		path := "places." + name
		if !IsName(name) {
			r.addError(path, "use letters, digits, dots, dashes and underscores", "not a name")
		}
		if why := a.Places[name].invalidReason(); why != "" {
			r.addError(path+".to", "write proxmox:https://HOST:8006/NODE?token=/FILE, libvirt:qemu+ssh://USER@HOST/system, openstack:CLOUD or kubevirt:?kubeconfig=/FILE", "%s", why)
		}
	}
}

func (r *ruleChecker) checkCredential(name string, c Credential) {
	path := "credentials." + name
	withSSH := r.hasKey(path + ".ssh")
	switch {
	case !IsName(name):
		r.addError(path, "use letters, digits, dots, dashes and underscores", "not a name")
	case withSSH == (c.URL != ""):
		r.addError(path, "set url for a source, or ssh for a login to hosts; use two credentials for both", "exactly one of url and ssh is required")
	case c.URL != "" && c.Fingerprint == "":
		r.addError(path, "add fingerprint: SHA-256; on the host: openssl x509 -in /etc/vmware/ssl/rui.crt -noout -fingerprint -sha256", "a credential with url requires a fingerprint")
	case withSSH && c.Fingerprint != "":
		r.addError(path+".fingerprint", "use ssh.hostKeys", "a credential with ssh has no certificate")
	case withSSH && len(c.SSH.HostKeys) == 0:
		r.addError(path+".ssh", "add hostKeys: {HOST: SHA256:…}; on the host: ssh-keygen -lf /etc/ssh/ssh_host_rsa_key.pub", "a credential with ssh requires hostKeys")
	}
	for _, file := range []struct {
		key  string
		path Path
	}{{".passwordFile", c.PasswordFile}, {".ssh.key", c.SSH.Key}} {
		if file.path != "" && !filepath.IsAbs(string(file.path)) {
			r.addError(path+file.key, "write the path from the root", "%q is not an absolute path", shorten(string(file.path)))
		}
	}
	for _, host := range slices.Sorted(maps.Keys(c.SSH.HostKeys)) {
		if !strings.HasPrefix(string(c.SSH.HostKeys[host]), "SHA256:") {
			r.addError(path+".ssh.hostKeys."+host, "write SHA256:… as ssh-keygen -lf shows it", "not the fingerprint of a host key")
		}
	}
}

// invalidReason returns why To cannot be the destination of a place; empty if it can.
func (p NamedPlace) invalidReason() string {
	kind, address, _ := strings.Cut(string(p.To), ":")
	folder, _, _ := strings.Cut(address, "?")
	switch {
	case kind != Libvirt && kind != Proxmox && kind != OpenStack && kind != KubeVirt:
		return fmt.Sprintf("%q is not a kind of destination that is logged in to", shorten(kind))
	case kind == KubeVirt && folder != "":
		return "a place has no folder: the plan names it with stage="
	}
	to, err := p.withStage("/stage")
	switch {
	case err != nil:
		return err.Error()
	case kind != KubeVirt && strings.Count(string(to), stageKey+"=") != 1:
		return "a place has no stage: the plan names it"
	}
	parameters := to.parameters()
	if kind == KubeVirt && parameters.Get("kubeconfig") == "" {
		return "a place in a cluster requires kubeconfig=/FILE; manifests beside the images need no place"
	}
	for name := range parameters {
		if parameterClasses[kind][name] == unclassified {
			return fmt.Sprintf("%s has no parameter %q", kind, shorten(name))
		}
	}
	return ""
}

// withStage returns the destination with a folder for the images.
func (p NamedPlace) withStage(stage string) (Destination, error) {
	if query, is := strings.CutPrefix(string(p.To), KubeVirt+":"); is {
		return ParseDestination(KubeVirt+":"+stage+query, Here{})
	}
	return ParseDestination(string(Destination(p.To).withStage(stage)), Here{})
}

// isRoleAllowed reports whether plans with a role may use what these roles may use.
func isRoleAllowed(role Role, roles []Role) bool {
	return role == Admin || role == Local || role == Operate && slices.Contains(roles, Operate)
}

// Permit is an error unless a plan may be carried out with a role: it sets no key above its role, names
// credentials and places that are configured for it, and names the source that its credential is bound to.
// A plan that is not Local must name its credentials. Folders are for the caller to check.
func (a *Access) Permit(f *File, role Role) error {
	if err := f.checkRole(role); err != nil {
		return err
	}
	if _, err := a.Source(f, role); err != nil {
		return err
	}
	if _, err := a.SSH(f, role); err != nil {
		return err
	}
	for _, d := range f.Destinations() {
		if _, err := a.Expand(d, role); err != nil {
			return err
		}
	}
	return nil
}

// Source returns the credential that the plan names for its source, once it is bound to that source. It is
// nil if the plan names a file; and, for a Local plan, if it names nothing or a name that is not configured.
func (a *Access) Source(f *File, role Role) (*Credential, error) {
	s := &f.Source
	switch {
	case s.Credentials.File != "":
		return nil, nil
	case s.Credentials.Name == "" && role == Local:
		return nil, nil
	case s.Credentials.Name == "":
		return nil, fault.New(fault.Denied, "plan %s names no credentials: the password file of the server is not used for submitted plans", f.Name).
			WithHint("add source: {credentials: {name: NAME}}; an administrator adds NAME, bound to %s, to %s", s.URL, a.path)
	}
	c, err := a.findCredential(string(s.Credentials.Name), role)
	switch {
	case c == nil || err != nil:
		return nil, err
	case c.URL == "":
		return nil, fault.New(fault.Invalid, "credential %s is for SSH, and the plan uses it for its source", s.Credentials.Name).
			WithHint("name it in source: {ssh: {credentials: {name: %s}}}", s.Credentials.Name)
	case !isSameSource(c.URL, s.URL):
		return nil, fault.New(fault.Denied, "credential %s is bound to %s, and the source of plan %s is %s", s.Credentials.Name, c.URL, f.Name, s.URL).
			WithHint("name the credential of that source; an administrator adds it to %s", a.path)
	case s.Fingerprint != "" && !isSameFingerprint(s.Fingerprint, c.Fingerprint):
		return nil, fault.New(fault.Conflict, "credential %s is bound to the certificate %s, and plan %s names %s", s.Credentials.Name, c.Fingerprint, f.Name, s.Fingerprint).
			WithHint("remove the fingerprint from the plan; if the certificate of the source changed, an administrator corrects %s", a.path)
	}
	return c, nil
}

// SSH returns the credential that the plan names for SSH; nil as for Source, and for a plan that names none.
func (a *Access) SSH(f *File, role Role) (*Credential, error) {
	s := &f.Source.SSH
	if s.Credentials.Name == "" {
		return nil, nil
	}
	c, err := a.findCredential(string(s.Credentials.Name), role)
	switch {
	case c == nil || err != nil:
		return nil, err
	case len(c.SSH.HostKeys) == 0:
		return nil, fault.New(fault.Invalid, "credential %s is bound to a source, and the plan uses it for SSH", s.Credentials.Name).
			WithHint("an administrator adds a credential with ssh: {hostKeys: …} to %s", a.path)
	case s.User != "" || s.Key != "" || len(s.HostKeys) > 0:
		return nil, fault.New(fault.Conflict, "plan %s names the credential %s for SSH, which has user, key and host keys, and sets some of them itself", f.Name, s.Credentials.Name).
			WithHint("remove user, key and hostKeys from source.ssh")
	}
	return c, nil
}

// findCredential returns a named one; for Local plans nil if it is not configured.
func (a *Access) findCredential(name string, role Role) (*Credential, error) {
	c, known := a.Credentials[name]
	switch {
	case !known && role == Local:
		return nil, nil
	case !known:
		return nil, fault.New(fault.Denied, "there is no credential %q in %s", name, a.path).
			WithHint("an administrator adds it on the server and on each worker, with the url and the fingerprint that it is bound to")
	case !isRoleAllowed(role, c.Roles):
		return nil, fault.New(fault.Denied, "plans with the role %s may not use the credential %s", role, name).
			WithHint("an administrator adds roles: [%s] to it in %s, or submits the plan", role, a.path)
	}
	return &c, nil
}

// Expand returns the destination that a named place stands for; other destinations it returns unchanged.
func (a *Access) Expand(d Destination, role Role) (Destination, error) {
	if d.Kind() != Place {
		return d, nil
	}
	name := d.Address()
	p, known := a.Places[name]
	switch {
	case !known:
		return "", fault.New(fault.Denied, "there is no place %q in %s", name, a.path).
			WithHint("an administrator adds it on the server and on each worker: places: {%s: {to: …, roles: [operate]}}", name)
	case !isRoleAllowed(role, p.Roles):
		return "", fault.New(fault.Denied, "plans with the role %s may not use the place %s", role, name).
			WithHint("an administrator adds roles: [%s] to it in %s, or submits the plan", role, a.path)
	}
	return p.withStage(d.Folder())
}

// MayStartPlugin reports whether decamp may start the credential plugin that the kubeconfig of a destination
// names, for a plan with a role. A plugin is a command. The local user may name any kubeconfig; for a submitted
// plan, whatever its role, the kubeconfig must be that of a place in the access file of this machine.
func (d Destination) MayStartPlugin(role Role) bool { return role == Local || d.Kind() == Place }

// isSameSource reports whether two URLs are of the same account at the same address.
func isSameSource(a, b URL) bool {
	u, err := esx.ParseURL(string(a))
	v, other := esx.ParseURL(string(b))
	if err != nil || other != nil {
		return false
	}
	port := func(p string) string {
		if p == "" {
			return "443"
		}
		return p
	}
	return u.Scheme == v.Scheme && u.User.Username() == v.User.Username() &&
		strings.EqualFold(net.JoinHostPort(u.Hostname(), port(u.Port())), net.JoinHostPort(v.Hostname(), port(v.Port())))
}

func isSameFingerprint(a, b Fingerprint) bool {
	return strings.EqualFold(strings.ReplaceAll(string(a), ":", ""), strings.ReplaceAll(string(b), ":", ""))
}
