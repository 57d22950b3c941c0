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

// Access is the parsed access file, in which an administrator names credentials and places for plans.
// Each machine has a separate file: the server checks a submitted plan against its file, and the worker
// that logs in checks it again against its own.
type Access struct {
	// always 1
	Version int `yaml:"version" required:"true" min:"1" max:"1" doc:"version of the file format: 1"`
	// by the names that plans use
	Credentials map[string]Credential `yaml:"credentials" doc:"credentials for sources and their hosts, by name"`
	// by the names that plans use
	Places map[string]NamedPlace `yaml:"places" doc:"destinations that require a login, by name"`

	path string // path of the file, for messages
}

// Credential is a secret, bound to the address and the user name that it may be sent to.
type Credential struct {
	// empty for a login by SSH
	URL URL `yaml:"url" doc:"URL of the source: esxi://USER@HOST[:PORT] or vcenter://USER@HOST[:PORT]"`
	// required with URL
	Fingerprint Fingerprint `yaml:"fingerprint" doc:"SHA-256 fingerprint of the source's certificate"`
	// zero value for a login to a source
	SSH SSHLogin `yaml:"ssh" doc:"instead of url: a login by SSH to hosts of a source"`
	// absolute path; empty: systemd credential
	PasswordFile Path   `yaml:"passwordFile" doc:"file with the password; default: the systemd credential of this name"`
	Roles        []Role `yaml:"roles" doc:"roles whose plans may use it; default: admin only"` // nil: admin
}

// SSHLogin is a user name and the hosts at which it may be used.
type SSHLogin struct {
	User Text `yaml:"user" doc:"user name; default: root"`
	Port int  `yaml:"port" min:"1" max:"65535" doc:"port of SSH; default: 22"` // 0: 22
	Key  Path `yaml:"key" doc:"file with a private key"`                       // absolute path; empty: password
	// at least one
	HostKeys map[string]Text `yaml:"hostKeys" doc:"SHA256:… of the host key, by the name of the host; decamp logs in to no other host"`
}

// NamedPlace is a destination with its address, its parameters and its secrets, without a staging
// folder: each plan names that with staging=.
type NamedPlace struct {
	// checked by invalidReason
	To    Text   `yaml:"to" required:"true" doc:"destination without a folder and without staging="`
	Roles []Role `yaml:"roles" doc:"roles whose plans may use it; default: admin only"` // nil: admin
}

// textForm lists the roles that an access file may name; Local is never in a file.
func (Role) textForm() form { return form{words: []string{string(Operate), string(Admin)}} }

// parseText accepts operate and admin.
func (r *Role) parseText(s string) error { return setWord(r, s, r.textForm()) }

// AccessFile is the name of the file in the state directory.
const AccessFile = "access.yaml"

// LoadAccess reads the access file at path. A missing file is not an error: it names nothing.
// LoadAccess returns fault.Denied if the file cannot be read, or if other users may write it, and
// fault.Invalid for the first mistake in its text.
func LoadAccess(path string) (*Access, error) {
	text, err := readTrusted(path, "access file", "--access")
	if errors.Is(err, os.ErrNotExist) {
		return &Access{path: path}, nil
	}
	if err != nil {
		return nil, err
	}
	a, found := ParseAccess(text)
	if len(found) > 0 {
		first := found[0]
		return nil, fault.New(fault.Invalid, "%s:%d: %s%s", path, first.Line, first.Text, moreMistakes(len(found)-1)).WithHint("%s", first.Remedy)
	}
	a.path = path
	return a, nil
}

// readTrusted reads a file of the administrator. It returns fault.Denied if the file cannot be read, or
// if other users may write it. For a missing file it returns os.ErrNotExist. what describes the file,
// and flag is the flag that names it.
func readTrusted(path, what, flag string) ([]byte, error) {
	f, err := os.Open(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, err
	case err != nil:
		return nil, fault.New(fault.Denied, "read the %s: %w", what, err).WithHint("make %s readable for the user that runs decamp", fault.Quote(path))
	}
	defer f.Close() // only read
	st, err := f.Stat()
	switch {
	case err != nil:
		return nil, fault.Wrap(fault.Invalid, err)
	case !st.Mode().IsRegular():
		return nil, fault.New(fault.Invalid, "the %s %s is not a regular file", what, path).WithHint("name a file with %s", flag)
	case st.Mode().Perm()&0o022 != 0:
		return nil, fault.New(fault.Denied, "other users may write the %s %s", what, path).WithHint("run: chmod go-w %s", fault.Quote(path))
	}
	text, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err)
	}
	return text, nil
}

// ParseAccess parses the text of an access file as strictly as the text of a plan. The Access must not
// be used if there are Findings.
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

// checkAccess reports invalid names, credentials and places.
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

// checkCredential reports a credential whose keys contradict each other, and relative paths: processes
// with different working directories read the file.
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
			r.addError(path+file.key, "write an absolute path", "%q is not an absolute path", shorten(string(file.path)))
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
		return fmt.Sprintf("%q is not a platform", shorten(kind))
	case kind == KubeVirt && folder != "":
		return "a place must not have a folder: the plan sets it with staging="
	}
	to, err := p.withStage("/stage")
	switch {
	case err != nil:
		return err.Error()
	case kind != KubeVirt && strings.Count(string(to), stageKey+"=") != 1:
		return "a place must not have a staging folder: the plan sets it"
	}
	parameters := to.parameters()
	if kind == KubeVirt && parameters.Get("kubeconfig") == "" {
		return "a place in a cluster requires kubeconfig=/FILE; a folder with manifests needs no place"
	}
	for name := range parameters {
		if parameterClasses[kind][name] == unclassified {
			return fmt.Sprintf("%s has no parameter %q", kind, shorten(name))
		}
	}
	return ""
}

// withStage returns the destination with the folder for the images. For kubevirt the folder is the
// address; all other kinds have it as a parameter.
func (p NamedPlace) withStage(stage string) (Destination, error) {
	if query, is := strings.CutPrefix(string(p.To), KubeVirt+":"); is {
		return ParseDestination(KubeVirt+":"+stage+query, LocalDefaults{})
	}
	return ParseDestination(string(Destination(p.To).withStaging(stage)), LocalDefaults{})
}

// isRoleAllowed reports whether plans with a role may use an entry with these roles. Admin and Local
// may use all entries.
func isRoleAllowed(role Role, roles []Role) bool {
	return role == Admin || role == Local || role == Operate && slices.Contains(roles, Operate)
}

// CredentialsFor returns the sorted names of the credentials that plans with a role may use.
func (a *Access) CredentialsFor(role Role) []string {
	return allowedNames(a.Credentials, role, func(c Credential) []Role { return c.Roles })
}

// PlacesFor returns the sorted names of the places that plans with a role may use.
func (a *Access) PlacesFor(role Role) []string {
	return allowedNames(a.Places, role, func(p NamedPlace) []Role { return p.Roles })
}

// allowedNames returns the sorted names of the entries that plans with a role may use.
func allowedNames[E any](entries map[string]E, role Role, roles func(E) []Role) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		if isRoleAllowed(role, roles(entries[name])) {
			names = append(names, name)
		}
	}
	return names
}

// Permit returns fault.Denied if a plan must not be executed with a role. It checks three things: each
// key of the plan is permitted for the role; its credentials and places are configured for the role;
// its source is the one to which its credential is bound. A submitted plan must name credentials. The
// caller checks the folders.
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

// Source returns the credential that the plan names for its source, after a check that it is bound to
// that source. It returns nil if the plan names a password file. For a Local plan it also returns nil
// if the plan names no credential, or one that is not configured: the caller then looks for the
// password elsewhere.
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

// SSH returns the credential that the plan names for SSH. It returns nil in the cases of Source, and
// for a plan that names none.
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

// findCredential returns the credential of that name. If it is not configured, the result is nil for a
// Local plan and fault.Denied for a submitted one. The result is a copy.
func (a *Access) findCredential(name string, role Role) (*Credential, error) {
	c, known := a.Credentials[name]
	switch {
	case !known && role == Local:
		return nil, nil
	case !known:
		return nil, fault.New(fault.Denied, "credential %q does not exist in %s", name, a.path).
			WithHint("an administrator adds it on the server and on each worker, with the url and the fingerprint that it is bound to")
	case !isRoleAllowed(role, c.Roles):
		return nil, fault.New(fault.Denied, "plans with the role %s may not use the credential %s", role, name).
			WithHint("an administrator adds roles: [%s] to it in %s, or submits the plan", role, a.path)
	}
	return &c, nil
}

// Expand returns the destination of a named place, with the staging folder of d. Other destinations are
// returned unchanged.
func (a *Access) Expand(d Destination, role Role) (Destination, error) {
	if d.Kind() != Place {
		return d, nil
	}
	name := d.Address()
	p, known := a.Places[name]
	switch {
	case !known:
		return "", fault.New(fault.Denied, "place %q does not exist in %s", name, a.path).
			WithHint("an administrator adds it on the server and on each worker: places: {%s: {to: …, roles: [operate]}}", name)
	case !isRoleAllowed(role, p.Roles):
		return "", fault.New(fault.Denied, "plans with the role %s may not use the place %s", role, name).
			WithHint("an administrator adds roles: [%s] to it in %s, or submits the plan", role, a.path)
	}
	return p.withStage(d.Folder())
}

// MayStartPlugin reports whether decamp may start the credential plugin that the kubeconfig of a
// destination names. A plugin is a command. The local user may name any kubeconfig. For a submitted
// plan of any role, the kubeconfig must belong to a place in the access file of this machine.
func (d Destination) MayStartPlugin(role Role) bool { return role == Local || d.Kind() == Place }

// isSameSource reports whether two URLs name the same account at the same address. Host names are
// compared without regard to case; a missing port is 443.
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

// isSameFingerprint compares two fingerprints without regard to case and colons.
func isSameFingerprint(a, b Fingerprint) bool {
	return strings.EqualFold(strings.ReplaceAll(string(a), ":", ""), strings.ReplaceAll(string(b), ":", ""))
}
