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

// Token is a token of the API, as user@realm!name=secret. It prints as *** wherever it is
// formatted or logged.
type Token string

const masked = "***"

// String returns ***, so that %v and %s do not tell.
func (Token) String() string { return masked }

// GoString returns ***, so that %#v does not tell.
func (Token) GoString() string { return masked }

// LogValue returns ***.
func (Token) LogValue() slog.Value { return slog.StringValue(masked) }

// MarshalText returns ***, so that JSON does not tell.
func (Token) MarshalText() ([]byte, error) { return []byte(masked), nil }

// name is the token without its secret: user@realm!name.
func (t Token) name() string {
	name, _, _ := strings.Cut(string(t), "=")
	return name
}

var tokenForm = regexp.MustCompile(`^[^\s@!=/]+@[A-Za-z][A-Za-z0-9.\-_]*![A-Za-z][A-Za-z0-9.\-_]*=[!-~]+$`)

// maxToken is more than any token's length, in bytes.
const maxToken = 1 << 10

// ReadToken reads a token from a file that holds nothing else.
func ReadToken(path string) (Token, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fault.New(fault.NotFound, "read the Proxmox token: %w", err).
			WithHint("pveum user token add root@pam decamp --privsep 0 makes one: write USER@REALM!NAME=SECRET into a file that only you can read")
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxToken))
	if err != nil {
		return "", fault.New(fault.Denied, "read the Proxmox token: %w", err)
	}
	t := Token(strings.TrimSpace(string(text)))
	return t, t.check("the file " + path)
}

// check refuses what is no token, without saying what it is.
func (t Token) check(where string) error {
	if tokenForm.MatchString(string(t)) {
		return nil
	}
	return fault.New(fault.Invalid, "%s does not hold a Proxmox token", where).
		WithHint("it is one line: USER@REALM!NAME=SECRET, such as root@pam!decamp=0b6a2d36-…")
}

// grant is what gives the token privileges on a path, and on all below, by a role whose name begins so.
func (t Token) grant(role, path string, privileges []string) string {
	role += strings.NewReplacer("/", "-", ".", "-").Replace(path)
	return fmt.Sprintf("pveum role add %s --privs %s; pveum acl modify %s --tokens %s --roles %s",
		role, fault.Quote(strings.Join(privileges, " ")), path, fault.Quote(t.name()), role)
}
