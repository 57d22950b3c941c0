package assemble

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/preflight"
	"github.com/decamp/decamp/internal/systemd"
)

// AccessEnv is the environment variable with the path of the access file.
const AccessEnv = "DECAMP_ACCESS"

// AccessPath returns the path of the access file. stated is true if the flag or the environment names
// it: the file must then exist. Otherwise it is the systemd credential access.yaml, or the file in the state
// directory, which may be missing.
func (a *Assembler) AccessPath() (path string, stated bool, err error) {
	if path := cmp.Or(a.AccessFile, a.Env(AccessEnv)); path != "" {
		return path, true, nil
	}
	if path := systemd.Credential(a.Env, planfile.AccessFile); path != "" {
		return path, true, nil
	}
	state, err := a.StateDir()
	return filepath.Join(state, planfile.AccessFile), false, err
}

// Access reads the access file. Each call reads it again, so a change requires no restart. A missing
// file names nothing, unless the user stated its path.
func (a *Assembler) Access() (*planfile.Access, error) {
	path, stated, err := a.AccessPath()
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(path); stated && errors.Is(err, os.ErrNotExist) {
		return nil, fault.New(fault.NotFound, "the access file: %w", err).WithHint("set an existing file with --access or $%s", AccessEnv)
	}
	return planfile.LoadAccess(path)
}

// expandPlace returns the destination of a named place: see planfile.Access.Expand. It does not read
// the access file for other destinations.
func (a *Assembler) expandPlace(d planfile.Destination, role planfile.Role) (planfile.Destination, error) {
	if d.Kind() != planfile.Place {
		return d, nil
	}
	access, err := a.Access()
	if err != nil {
		return "", err
	}
	return access.Expand(d, role)
}

// PlanLogin sets the login to the source of a plan that is executed with a role. folder is the folder
// of the plan. A Local plan uses the password file and the fingerprint that l has already, from flags.
// A submitted plan uses only a credential of the access file or the file that it names.
func (a *Assembler) PlanLogin(l *Login, f *planfile.File, folder string, role planfile.Role) error {
	access, err := a.Access()
	if err != nil {
		return err
	}
	l.submitted = role != planfile.Local
	if l.PasswordFile != "" && !l.submitted {
		l.Fingerprint = cmp.Or(l.Fingerprint, string(f.Source.Fingerprint))
		return nil
	}
	c, err := access.Source(f, role)
	if err != nil {
		return err
	}
	if c != nil {
		l.bound = string(c.Fingerprint)
		l.PasswordFile, err = a.secretOf(string(f.Source.Credentials.Name), c)
		return err
	}
	l.PasswordFile, err = preflight.PasswordFile(f.Source.Credentials, folder, a.Env)
	l.Fingerprint = cmp.Or(l.Fingerprint, string(f.Source.Fingerprint))
	return err
}

// PlanSSH returns the login by SSH to the hosts of a plan's source. A credential of the access file
// determines user, port, keys and password. Otherwise they are those of the plan. The agent at
// $SSH_AUTH_SOCK is used only for a Local plan without a credential.
func (a *Assembler) PlanSSH(f *planfile.File, folder string, role planfile.Role) (o SSHOptions, err error) {
	s := f.Source.SSH
	access, err := a.Access()
	if err != nil {
		return o, err
	}
	c, err := access.SSH(f, role)
	if err != nil {
		return o, err
	}
	if c != nil {
		o = SSHOptions{
			User: cmp.Or(string(c.SSH.User), "root"), Port: uint16(cmp.Or(c.SSH.Port, 22)), KeyFile: string(c.SSH.Key),
			hostKeys: hostKeysOf(c.SSH.HostKeys), credential: string(s.Credentials.Name), submitted: true, noAgent: true, Enable: s.Enable,
		}
		if c.PasswordFile != "" || c.SSH.Key == "" {
			o.PasswordFile, err = a.secretOf(o.credential, c)
		}
		return o, err
	}
	o = SSHOptions{
		User: string(s.User), Port: uint16(s.Port), hostKeys: hostKeysOf(s.HostKeys), Enable: s.Enable,
		submitted: role != planfile.Local, noAgent: role != planfile.Local,
	}
	if o.PasswordFile, err = preflight.PasswordFile(s.Credentials, folder, a.Env); err != nil {
		return o, err
	}
	o.KeyFile, err = preflight.PasswordFile(planfile.Credentials{File: s.Key}, folder, a.Env)
	return o, err
}

// hostKeysOf returns host keys by the lower-case name of the host; otherwise nil.
func hostKeysOf(keys map[string]planfile.Text) map[string]string {
	if len(keys) == 0 {
		return nil
	}
	all := map[string]string{}
	for host, key := range keys {
		all[strings.ToLower(host)] = string(key)
	}
	return all
}

// secretOf returns the file with the secret of a credential: its password file, or the systemd
// credential of its name.
func (a *Assembler) secretOf(name string, c *planfile.Credential) (string, error) {
	if c.PasswordFile != "" {
		return string(c.PasswordFile), nil
	}
	return preflight.PasswordFile(planfile.Credentials{Name: planfile.Name(name)}, "", a.Env)
}

// InFiles returns a copy of f in which the files of credentials replace their names, for checks of
// files. Names that the access file does not have are unchanged.
func (a *Assembler) InFiles(f *planfile.File) (*planfile.File, error) {
	access, err := a.Access()
	if err != nil {
		return nil, err
	}
	resolved := *f
	for _, c := range []*planfile.Credentials{&resolved.Source.Credentials, &resolved.Source.SSH.Credentials} {
		named, known := access.Credentials[string(c.Name)]
		switch {
		case !known:
		case named.PasswordFile == "" && named.SSH.Key != "":
			*c = planfile.Credentials{File: named.SSH.Key}
		case named.PasswordFile != "":
			*c = planfile.Credentials{File: named.PasswordFile}
		}
	}
	return &resolved, nil
}
