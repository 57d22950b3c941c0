package preflight

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/planfile"
)

// credentialsEnv is where systemd puts the credentials of a unit (systemd.exec(5)).
const credentialsEnv = "CREDENTIALS_DIRECTORY"

// PasswordFile returns the file that credentials of a plan in folder name; "" if they name
// none.
func PasswordFile(c planfile.Credentials, folder string, env func(string) string) (string, error) {
	switch {
	case c.File != "" && !filepath.IsAbs(string(c.File)):
		return filepath.Join(folder, string(c.File)), nil
	case c.File != "":
		return string(c.File), nil
	case c.Name == "":
		return "", nil
	}
	dir := env(credentialsEnv)
	if dir == "" {
		return "", fault.New(fault.Invalid, "the credential %s is one of systemd, and $%s is not set", c.Name, credentialsEnv).
			WithHint("run decamp in a unit with LoadCredential=%s:FILE, or name a file: credentials: {file: FILE}", c.Name)
	}
	return filepath.Join(dir, string(c.Name)), nil
}

// Local looks at what a plan in folder needs of this machine: secrets that can be read, and
// programs for its hooks.
func Local(f *planfile.File, folder string, env func(string) string) planfile.Findings {
	l := &localCheck{file: f, folder: folder, env: env, programs: map[planfile.Text]bool{}}
	l.checkCredentials("source.credentials", f.Source.Credentials)
	l.checkCredentials("source.ssh.credentials", f.Source.SSH.Credentials)
	if key := f.Source.SSH.Key; key != "" {
		l.checkCredentials("source.ssh.key", planfile.Credentials{File: key})
	}
	l.checkHooks(f.At("hooks"), f.Hooks)
	l.checkHooks(f.At("defaults.hooks"), f.Defaults.Hooks)
	for _, vm := range f.VMs {
		l.checkHooks(vm.Pos, vm.Hooks)
	}
	return l.found
}

type localCheck struct {
	file     *planfile.File
	folder   string
	env      func(string) string
	programs map[planfile.Text]bool // results of earlier checks
	found    planfile.Findings
}

func (l *localCheck) checkCredentials(path string, c planfile.Credentials) {
	name, err := PasswordFile(c, l.folder, l.env)
	if err == nil && name != "" {
		err = openable(name)
	}
	if err != nil {
		l.found = append(l.found, planfile.Found("credentials", l.file.At(path), "", err))
	}
}

func openable(name string) error {
	f, err := os.Open(name)
	if err == nil {
		return f.Close()
	}
	kind := fault.Denied
	if errors.Is(err, fs.ErrNotExist) {
		kind = fault.NotFound
	}
	return fault.New(kind, "%w", err).WithHint("put the secret there, in a file that only you can read, or name another file")
}

func (l *localCheck) checkHooks(at planfile.Pos, h planfile.Hooks) {
	for _, hook := range []planfile.Hook{h.Pre, h.Post} {
		if len(hook.Command) == 0 || l.programs[hook.Command[0]] {
			continue
		}
		l.programs[hook.Command[0]] = true
		if _, err := exec.LookPath(string(hook.Command[0])); err != nil {
			l.found = append(l.found, planfile.Found("hook", at, "", fault.New(fault.NotFound, "hook: %w", err).
				WithHint("give the whole path of a program that may be run; there is no shell between")))
		}
	}
}
