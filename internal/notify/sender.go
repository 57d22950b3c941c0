package notify

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/secretfile"
)

// A sender delivers messages to one receiver.
type sender interface {
	// send delivers an event once. body is the result of templates.renderBody. An error means that the
	// receiver may not have it. Errors contain no secrets.
	send(ctx context.Context, e Event, body []byte) error
}

// newSender returns the sender of a receiver. It reads the secrets of the receiver.
func newSender(name string, r planfile.Receiver, o Options) (sender, error) {
	switch {
	case len(r.Command.Run) > 0:
		if !o.Commands {
			return nil, fault.New(fault.Denied, "receiver %s is a command, and commands of receivers are not permitted here", name).
				WithHint("add --allow-notify-commands, or remove the receiver from the notification file")
		}
		return newCommandSender(r.Command), nil
	case len(r.Email.To) > 0:
		return newMailSender(name, r.Email, o.Log)
	}
	return newWebhookSender(name, r.Webhook)
}

// maxSecret is the maximum size of a file with a secret, in bytes.
const maxSecret = 8 << 10

// readSecret returns the secret in a file; without a path, the systemd credential of that name. It
// returns fault.NotFound if the file does not exist, or if the path and the credential are missing.
func readSecret(name, path, what string) (string, error) {
	if directory := os.Getenv("CREDENTIALS_DIRECTORY"); path == "" && directory != "" {
		path = filepath.Join(directory, name)
	}
	if path == "" {
		return "", fault.New(fault.NotFound, "receiver %s has no %s", name, what).
			WithHint("name a file of mode 0600 in the notification file, or pass the systemd credential %s", name)
	}
	text, err := secretfile.Read(path, what, maxSecret)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fault.New(fault.NotFound, "%s file %s of receiver %s does not exist", what, path, name).
			WithHint("write the secret to it, with mode 0600")
	}
	if err != nil {
		return "", err
	}
	secret := strings.TrimSpace(string(text))
	if secret == "" || strings.ContainsAny(secret, "\r\n\x00") {
		return "", fault.New(fault.Invalid, "%s file %s of receiver %s does not contain exactly one line", what, path, name).WithHint("write the secret to it, as one line")
	}
	return secret, nil
}

// tlsConfig returns a configuration that verifies the server's certificate: with the CA in caFile, or
// with those of the system.
func tlsConfig(host, caFile string) (*tls.Config, error) {
	c := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	if caFile == "" {
		return c, nil
	}
	text, err := os.ReadFile(caFile)
	if err != nil {
		return nil, fault.New(fault.Invalid, "read the CA of a receiver: %w", err).WithHint("correct caFile in the notification file")
	}
	c.RootCAs = x509.NewCertPool()
	if !c.RootCAs.AppendCertsFromPEM(text) {
		return nil, fault.New(fault.Invalid, "%s contains no certificate", caFile).WithHint("write the CA to it, as PEM")
	}
	return c, nil
}
