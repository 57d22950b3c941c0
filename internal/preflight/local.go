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

// credentialsEnv is the environment variable with the folder of a unit's credentials: systemd.exec(5).
const credentialsEnv = "CREDENTIALS_DIRECTORY"

// PasswordFile returns the file of credentials in a plan whose folder is given. It is empty if they
// name none. A name is a credential of systemd: it requires the environment of a unit. The file may not
// exist.
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
		return "", fault.New(fault.Invalid, "the systemd credential %s is not available: $%s is not set", c.Name, credentialsEnv).
			WithHint("run decamp in a unit with LoadCredential=%s:FILE, or set a file: credentials: {file: FILE}", c.Name)
	}
	return filepath.Join(dir, string(c.Name)), nil
}

// Local checks what a plan requires of this machine: readable files with secrets, and programs for its
// hooks. folder is the folder of the plan, and env returns environment variables.
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

// localCheck collects findings about this machine.
type localCheck struct {
	file     *planfile.File         // the plan
	folder   string                 // folder of the plan, for relative paths
	env      func(string) string    // returns an environment variable
	programs map[planfile.Text]bool // results of earlier checks
	found    planfile.Findings      // findings so far
}

// checkCredentials checks that the file of credentials can be read. path is their key in the plan.
func (l *localCheck) checkCredentials(path string, c planfile.Credentials) {
	name, err := PasswordFile(c, l.folder, l.env)
	if err == nil && name != "" {
		err = openable(name)
	}
	if err != nil {
		l.found = append(l.found, planfile.ErrorFinding("credentials", l.file.At(path), "", err))
	}
}

// openable returns an error if a file cannot be opened for reading: fault.NotFound or fault.Denied.
func openable(name string) error {
	f, err := os.Open(name)
	if err == nil {
		return f.Close()
	}
	kind := fault.Denied
	if errors.Is(err, fs.ErrNotExist) {
		kind = fault.NotFound
	}
	return fault.New(kind, "%w", err).WithHint("write the secret to that file with mode 0600, or set another file")
}

// checkHooks checks that the programs of hooks exist, each program once.
func (l *localCheck) checkHooks(at planfile.Pos, h planfile.Hooks) {
	for _, hook := range []planfile.Hook{h.Pre, h.Post} {
		if len(hook.Command) == 0 || l.programs[hook.Command[0]] {
			continue
		}
		l.programs[hook.Command[0]] = true
		if _, err := exec.LookPath(string(hook.Command[0])); err != nil {
			l.found = append(l.found, planfile.ErrorFinding("hook", at, "", fault.New(fault.NotFound, "hook: %w", err).
				WithHint("set the absolute path of an executable program; hooks run without a shell")))
		}
	}
}
