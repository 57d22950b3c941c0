package assemble

import (
	"context"
	"fmt"

	"github.com/decamp/decamp/internal/fault"
)

// ConfirmServer returns nil after the user confirmed the fingerprint that a decamp server shows, at the
// terminal or with the fingerprint given. trusted is true if a CA of this machine signed the certificate.
// Without a terminal it returns fault.Denied with the command that confirms it.
func (p *Prompts) ConfirmServer(ctx context.Context, url, shown string, trusted bool, given string) error {
	refused := fault.New(fault.Denied, "the certificate of %s is not confirmed: it shows %s", url, shown).
		WithHint("compare it with the fingerprint that decamp serve printed when it started, then run: %s", p.Command("--fingerprint", shown))
	switch {
	case given != "" && isSameFingerprint(given, shown):
		return nil
	case given != "":
		return fault.New(fault.Denied, "the certificate of %s differs from the given fingerprint: given %s, shown %s", url, given, shown).
			WithHint("compare both with the fingerprint that decamp serve printed when it started")
	}
	t, err := p.Terminal()
	if err != nil {
		return refused
	}
	defer t.Close()
	signed := "no CA of this machine signed it"
	if trusted {
		signed = "a CA of this machine signed it"
	}
	answer, err := t.Ask(ctx, fmt.Sprintf("%s presents this certificate (%s):\n  SHA-256  %s\nCompare it with the fingerprint that decamp serve printed when it started.\nIs it correct? Type yes to continue: ", url, signed, shown))
	if err == nil && answer != "yes" {
		err = refused
	}
	return err
}
