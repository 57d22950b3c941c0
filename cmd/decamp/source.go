package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleet"
	"github.com/decamp/decamp/internal/inventory"
)

// source is the ESXi or vCenter that a command is logged in to.
type source interface {
	About() inventory.About
	Addr() string
	Hosts(ctx context.Context) ([]inventory.Host, error)
	Datastores(ctx context.Context) ([]inventory.Datastore, error)
	VMs(ctx context.Context) ([]inventory.VM, error)
	VM(ctx context.Context, nameOrRef string) (*inventory.VM, error)
	Close() error
}

// login is how to log in to a source, from flags. The password itself is in none.
type login struct {
	passwordFile string
	fingerprint  string
	submitted    bool                            // for a submitted plan: no password but its own, and no certificate in place of a known one
	bound        string                          // fingerprint that the access file binds to the credential; no other one counts
	logins       *fleet.Logins                   // of a fleet's source; nil: of this command alone
	onHost       func(host string) *fleet.Logins // by SSH at one of its hosts; nil: of this command alone
}

func (l *login) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&l.passwordFile, "password-file", "", "`FILE` that holds the password; else $"+passwordEnv+" names it, else decamp asks")
	f.StringVar(&l.fingerprint, "fingerprint", "", "`SHA-256` of the certificate to accept, also in place of a known one")
	_ = cmd.MarkFlagFilename("password-file") // fails for unknown flags only
}

// sourceHelp is said in the help of each command that takes a URL.
const sourceHelp = `
URL is esxi://USER@HOST[:PORT] or vcenter://USER@HOST[:PORT], without a password: URLs
end up in shell histories and process lists. The password comes from --password-file,
from the file that $DECAMP_PASSWORD_FILE names, or is asked for.

The certificate is pinned. The first time decamp shows its SHA-256 and asks; scripts
state it with --fingerprint. A certificate that changed is refused until the new one is
stated.
`

// sourceExits are the exit codes that logging in adds to a command's.
var sourceExits = []exit{
	{fault.NotFound, "the VM is not there"},
	{fault.Denied, "wrong password, missing privilege, certificate unknown or changed"},
	{fault.Unreachable, "nobody answers at that address"},
}
