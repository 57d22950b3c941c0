package server

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/atomicfile"
	"github.com/decamp/decamp/internal/fault"
)

// Token is the credential of a user, without its secret.
type Token struct {
	Name    string    `json:"name"`             // unique name, chosen by the administrator
	Role    Role      `json:"role"`             // role of its owner
	SHA256  string    `json:"sha256"`           // hash of the secret, in hex
	Created time.Time `json:"created"`          // when it was created
	Expires time.Time `json:"expires,omitzero"` // end of its validity; zero if it does not expire
}

const (
	tokenPrefix = "decamp_" // prefix by which users, and scanners for leaked secrets, recognize it
	tokenBytes  = 32        // random bytes of a secret
	tokenSuffix = ".json"   // extension of the file of a token
)

// tokenName is the syntax of the names of tokens, which are file names.
var tokenName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$`)

// Tokens are the tokens of a state directory: one file each, readable by its owner only. Other
// processes may add and remove files at any time. It is safe for concurrent use.
type Tokens struct {
	dir string           // folder of the files
	now func() time.Time // clock of expiries

	mu     sync.Mutex // guards the fields below
	seen   time.Time  // modification time of the folder when it was read
	read   time.Time  // when the folder was read
	known  []Token    // tokens by name
	broken error      // errors of unreadable files; nil if none exists
}

// NewTokens returns the tokens below the state directory.
func NewTokens(state string) *Tokens {
	return &Tokens{dir: filepath.Join(state, "tokens"), now: time.Now}
}

// Add creates a token and returns its secret, which cannot be read again. A ttl of 0 never expires. An
// existing name is fault.Conflict.
func (t *Tokens) Add(name string, role Role, ttl time.Duration) (secret string, err error) {
	if !tokenName.MatchString(name) {
		return "", fault.New(fault.Invalid, "%q is no name for a token", name).WithHint("letters, digits and . _ @ -, 64 at the most")
	}
	if _, err := RoleOf(string(role)); err != nil {
		return "", err
	}
	token := Token{Name: name, Role: role, Created: t.now().UTC().Truncate(time.Second)}
	if ttl > 0 {
		token.Expires = token.Created.Add(ttl)
	}
	secret = newSecret()
	token.SHA256 = hashOf(secret)
	return secret, t.writeToken(token)
}

// newSecret returns a random secret with its prefix.
func newSecret() string {
	raw := make([]byte, tokenBytes)
	rand.Read(raw)
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(raw)
}

// hashOf returns the SHA-256 hash of a secret, in hex. Secrets have 256 random bits, so no slow hash is
// needed.
func hashOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// writeToken writes the file of a new token.
func (t *Tokens) writeToken(token Token) error {
	if err := os.MkdirAll(t.dir, 0o700); err != nil {
		return err
	}
	path := filepath.Join(t.dir, token.Name+tokenSuffix)
	if _, err := os.Lstat(path); err == nil {
		return fault.New(fault.Conflict, "there is a token %q", token.Name).WithHint("decamp token remove %s", token.Name)
	}
	text, err := json.MarshalIndent(token, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Replace(path, append(text, '\n'), 0o600)
}

// Remove removes a token, which ends its sessions. A missing token is fault.NotFound.
func (t *Tokens) Remove(name string) error {
	if !tokenName.MatchString(name) {
		return noToken(name)
	}
	err := os.Remove(filepath.Join(t.dir, name+tokenSuffix))
	if errors.Is(err, fs.ErrNotExist) {
		return noToken(name)
	}
	return err
}

// noToken returns the fault.NotFound for a token.
func noToken(name string) error {
	return fault.New(fault.NotFound, "token %q does not exist", name).WithHint("list the tokens: decamp token list")
}

// List returns all tokens by name, expired ones included. The error names unreadable files; the tokens
// are valid with it.
func (t *Tokens) List() ([]Token, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.readChanged()
	return slices.Clone(t.known), t.broken
}

// Check returns the token of a secret. It returns false if none exists, or if it has expired. Hashes
// are compared in constant time.
func (t *Tokens) Check(secret string) (Token, bool) {
	hash := []byte(hashOf(secret))
	var found Token
	ok := 0
	all, _ := t.List() // a damaged file permits no login
	for _, token := range all {
		if same := subtle.ConstantTimeCompare(hash, []byte(token.SHA256)); same == 1 {
			found, ok = token, same
		}
	}
	return found, ok == 1 && t.isValid(found)
}

// tokenNamed returns the token of that name whose hash begins with mark, if it is still valid.
func (t *Tokens) tokenNamed(name, mark string) (Token, bool) {
	all, _ := t.List()
	i := slices.IndexFunc(all, func(token Token) bool { return token.Name == name })
	if i < 0 || !strings.HasPrefix(all[i].SHA256, mark) {
		return Token{}, false
	}
	return all[i], t.isValid(all[i])
}

// isValid reports whether a token has not expired.
func (t *Tokens) isValid(token Token) bool {
	return token.Expires.IsZero() || t.now().Before(token.Expires)
}

// minFolderAge is how old the last change of a folder must be for its modification time to differ from
// that of the next change: clocks of file systems tick every 10 ms or less often.
const minFolderAge = 2 * time.Second

// readChanged reads the folder if it has changed since the last call. mu must be held.
func (t *Tokens) readChanged() {
	st, err := os.Stat(t.dir)
	if err != nil {
		t.known, t.broken, t.seen = nil, nil, time.Time{}
		return
	}
	if st.ModTime().Equal(t.seen) && t.read.Sub(t.seen) > minFolderAge {
		return
	}
	t.read, t.seen = time.Now(), st.ModTime()
	t.known, t.broken = readTokens(t.dir)
}

// readTokens returns the tokens of a folder by name, with the errors of unreadable files.
func readTokens(dir string) ([]Token, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all []Token
	var broken []error
	for _, e := range entries {
		if filepath.Ext(e.Name()) != tokenSuffix {
			continue
		}
		token, err := readToken(filepath.Join(dir, e.Name()))
		if err != nil {
			broken = append(broken, err)
			continue
		}
		all = append(all, token)
	}
	slices.SortFunc(all, func(a, b Token) int { return cmp.Compare(a.Name, b.Name) })
	return all, errors.Join(broken...)
}

// readToken reads the file of a token. A file whose name is not the token's is fault.Corrupt: removing
// a token must remove it.
func readToken(path string) (token Token, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return token, err
	}
	if err := json.Unmarshal(text, &token); err != nil {
		return token, fault.New(fault.Corrupt, "%s: %w", path, err)
	}
	hash, err := hex.DecodeString(token.SHA256)
	_, roleErr := RoleOf(string(token.Role))
	if err != nil || len(hash) != sha256.Size || roleErr != nil || filepath.Base(path) != token.Name+tokenSuffix {
		return token, fault.New(fault.Corrupt, "%s: is no token of that name", path).WithHint("remove it, and make another with decamp token add")
	}
	return token, nil
}

// String returns the name and the role, and no secret.
func (t Token) String() string { return fmt.Sprintf("%s (%s)", t.Name, t.Role) }
