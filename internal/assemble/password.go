package assemble

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"

	"github.com/decamp/decamp/internal/fault"
)

// PasswordEnv names the environment variable that names a password file. The password
// itself is never taken from the environment: /proc shows it to others.
const PasswordEnv = "DECAMP_PASSWORD_FILE"

// longestPassword bounds what is read from a password file, in bytes.
const longestPassword = 4096

// Password returns what gives the password of who ("root@esx1"): from the file named by
// the flag or the environment, read again each time, or from the terminal, once. A host
// that changes its mind in mid-run must not stop it with a question nobody sees.
func (a *Assembler) Password(who, file string) func(context.Context) (string, error) {
	if file == "" {
		file = a.Env(PasswordEnv)
	}
	if file != "" {
		return func(context.Context) (string, error) { return a.PasswordFrom(file) }
	}
	var asked atomic.Bool
	return func(ctx context.Context) (string, error) {
		if asked.Swap(true) {
			return "", fault.New(fault.Denied, "the password of %s is not accepted any more", who).OfLogin().
				WithHint("run the same command again: it asks for the password and continues")
		}
		return a.askPassword(ctx, who)
	}
}

// remember keeps a password for the rest of this command; account is user@host:port.
func (a *Assembler) remember(account, password string) { a.secrets.Store(account, password) }

// typed returns what was remembered, or nothing.
func (a *Assembler) typed(account string) string {
	text, _ := a.secrets.Load(account)
	password, _ := text.(string)
	return password
}

func (a *Assembler) askPassword(ctx context.Context, who string) (string, error) {
	t, err := a.Terminal()
	if err != nil {
		return "", fault.New(fault.Invalid, "no password for %s: there is no terminal to ask on", who).
			WithHint("put it in a file that only you can read, and name the file with --password-file or %s", PasswordEnv)
	}
	defer t.Close()
	text, err := t.AskSecret(ctx, fmt.Sprintf("Password for %s: ", who))
	if err == nil && text == "" { // a host would count it as a wrong one
		err = fault.New(fault.Invalid, "no password was typed")
	}
	return text, err
}

// PasswordFrom reads the first line's worth: all of the file but one newline at its end.
// Blanks belong to the password.
func (a *Assembler) PasswordFrom(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fault.New(fault.Invalid, "read password file: %w", err)
	}
	if len(text) > longestPassword {
		return "", fault.New(fault.Invalid, "password file %s has %d bytes: that is no password", path, len(text))
	}
	a.warnIfShared(path)
	password := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	if password == "" {
		return "", fault.New(fault.Invalid, "password file %s is empty", path)
	}
	return password, nil
}

func (a *Assembler) warnIfShared(path string) {
	if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() && st.Mode().Perm()&0o077 != 0 {
		a.Warn("others on this machine may read %s; run: chmod 600 %s", path, fault.Quote(path))
	}
}
