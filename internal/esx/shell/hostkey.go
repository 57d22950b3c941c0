package shell

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/decamp/decamp/internal/fault"
)

// HostKey is a key that a host presents. The user compares it with the output of
// WhereToLook on the host's console.
type HostKey struct {
	Kind        string `json:"kind"`        // algorithm of the key: ssh-ed25519, ssh-rsa, …
	Fingerprint string `json:"fingerprint"` // SHA256:…, as printed by ssh-keygen -l
}

// WhereToLook is the command that prints the fingerprints on the host itself.
const WhereToLook = "for k in /etc/ssh/ssh_host_*_key.pub; do ssh-keygen -lf $k; done"

// keyKinds lists the signature algorithms by kind of key. Each host has an RSA key;
// newer ones have further kinds.
var keyKinds = [][]string{
	{ssh.KeyAlgoED25519},
	{ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521},
	{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256, ssh.KeyAlgoRSA},
}

// showsAny reports whether shown contains a key of one of these kinds.
func showsAny(shown []HostKey, kinds []string) bool {
	return slices.ContainsFunc(shown, func(k HostKey) bool { return slices.Contains(kinds, k.Kind) })
}

// FingerprintOf returns the fingerprint of a public key in the format of
// authorized_keys. Other text is fault.Corrupt.
func FingerprintOf(public []byte) (HostKey, error) {
	key, _, _, _, err := ssh.ParseAuthorizedKey(public)
	if err != nil {
		return HostKey{}, fault.New(fault.Corrupt, "read a public key: %w", err)
	}
	return HostKey{key.Type(), ssh.FingerprintSHA256(key)}, nil
}

// pins are the accepted fingerprints, at least one.
type pins []string

// fingerprintLen is the length of "SHA256:" and of 32 bytes in base64 without padding.
const fingerprintLen = 7 + 43

// parsePins parses fingerprints of the form SHA256:…, separated by white space. It
// removes base64 padding, which some tools print.
func parsePins(text string) (pins, error) {
	var all pins
	for _, word := range strings.Fields(text) {
		word = strings.TrimRight(word, "=")
		if !strings.HasPrefix(word, "SHA256:") || len(word) != fingerprintLen {
			return nil, fault.New(fault.Invalid, "SSH host key %q: want SHA256:… as ssh-keygen -l prints it", word)
		}
		all = append(all, word)
	}
	if len(all) == 0 {
		return nil, fault.New(fault.Invalid, "no SSH host key is known").WithHint("set it: --ssh-host-key SHA256:…")
	}
	return all, nil
}

// mismatchError returns fault.Denied with the pinned and the presented keys.
func (p pins) mismatchError(addr string, shown []HostKey) error {
	return fault.New(fault.Denied, "the SSH host key of %s differs from the known one: known %s, shown %s", addr, strings.Join(p, " "), Describe(shown)).
		WithHint("find the cause (a reinstallation, or an attack on the connection; on the host: %s); if the new one is correct, set it: --ssh-host-key SHA256:…", WhereToLook)
}

// Describe formats keys for messages; "none" for an empty list.
func Describe(keys []HostKey) string {
	var words []string
	for _, k := range keys {
		words = append(words, k.Fingerprint+" ("+k.Kind+")")
	}
	if len(words) == 0 {
		return "none"
	}
	return strings.Join(words, ", ")
}

// errKeySeen ends a handshake after the host key was received.
var errKeySeen = errors.New("only looking")

// HostKeys connects to addr (host:port) and returns the host's keys of all kinds. It
// does not log in and does not verify the keys.
func HostKeys(ctx context.Context, addr string) ([]HostKey, error) {
	var keys []HostKey
	for _, kinds := range append([][]string{nil}, keyKinds...) {
		if showsAny(keys, kinds) {
			continue
		}
		key, err := readHostKey(ctx, addr, kinds)
		if key != nil {
			keys = append(keys, *key)
		} else if kinds == nil {
			return nil, fault.New(fault.KindOf(err), "read the SSH host key of %s: %w", addr, err).WithHint("%s", fault.HintOf(err))
		}
	}
	return keys, nil
}

// readHostKey returns the key that the host presents to a client that supports only
// kinds; nil means all.
func readHostKey(ctx context.Context, addr string, kinds []string) (shown *HostKey, err error) {
	conn, done, err := dialTCP(ctx, addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer done()
	cfg := &ssh.ClientConfig{
		HostKeyAlgorithms: kinds,
		// The callback runs before any authentication.
		HostKeyCallback: func(_ string, _ net.Addr, key ssh.PublicKey) error {
			shown = &HostKey{key.Type(), ssh.FingerprintSHA256(key)}
			return errKeySeen
		},
	}
	if err := conn.SetDeadline(time.Now().Add(handshakeWait)); err != nil {
		return nil, fault.Wrap(fault.Transient, err)
	}
	_, _, _, err = ssh.NewClientConn(conn, addr, cfg)
	if shown != nil {
		return shown, nil
	}
	return nil, fault.Wrap(fault.Transient, err)
}
