package proxmox

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
	"strings"

	"github.com/decamp/decamp/internal/fault"
)

// Token is an API token in the form user@realm!name=secret. Formatting, logging and encoding hide it.
type Token string

// masked replaces the token in output.
const masked = "***"

// String returns a placeholder, so that %v and %s do not print the secret.
func (Token) String() string { return masked }

// GoString returns a placeholder, so that %#v does not print the secret.
func (Token) GoString() string { return masked }

// LogValue implements slog.LogValuer with a placeholder.
func (Token) LogValue() slog.Value { return slog.StringValue(masked) }

// MarshalText returns a placeholder, so that JSON does not contain the secret.
func (Token) MarshalText() ([]byte, error) { return []byte(masked), nil }

// name returns the token without its secret: user@realm!name.
func (t Token) name() string {
	name, _, _ := strings.Cut(string(t), "=")
	return name
}

// tokenForm matches a complete token.
var tokenForm = regexp.MustCompile(`^[^\s@!=/]+@[A-Za-z][A-Za-z0-9.\-_]*![A-Za-z][A-Za-z0-9.\-_]*=[!-~]+$`)

// maxToken is the number of bytes that are read from a token's file.
const maxToken = 1 << 10

// ReadToken reads a token from a file that contains nothing else.
func ReadToken(path string) (Token, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fault.New(fault.NotFound, "read the Proxmox token: %w", err).
			WithHint("create one: pveum user token add root@pam decamp --privsep 0; write USER@REALM!NAME=SECRET to a file that only you can read")
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxToken))
	if err != nil {
		return "", fault.New(fault.Denied, "read the Proxmox token: %w", err)
	}
	t := Token(strings.TrimSpace(string(text)))
	return t, t.validate("the file " + path)
}

// validate returns fault.Invalid if t is malformed. The error names where it was found, and does not
// contain it.
func (t Token) validate(where string) error {
	if tokenForm.MatchString(string(t)) {
		return nil
	}
	return fault.New(fault.Invalid, "%s does not contain a Proxmox token", where).
		WithHint("it is one line: USER@REALM!NAME=SECRET, such as root@pam!decamp=0b6a2d36-…")
}

// grantCommand returns the commands that give the token privileges on a path and below, with a new
// role.
func (t Token) grantCommand(role, path string, privileges []string) string {
	role += strings.NewReplacer("/", "-", ".", "-").Replace(path)
	return fmt.Sprintf("pveum role add %s --privs %s; pveum acl modify %s --tokens %s --roles %s",
		role, fault.Quote(strings.Join(privileges, " ")), path, fault.Quote(t.name()), role)
}
