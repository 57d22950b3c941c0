package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/planfile"
)

// registerLogin registers the flags that fill l.
func registerLogin(l *assemble.Login, cmd *cobra.Command) {
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&l.PasswordFile, "password-file", "", "`FILE` with the password; default $"+assemble.PasswordEnv+", else a prompt")
	f.StringVar(&l.Fingerprint, "fingerprint", "", "`SHA-256` of the certificate to accept, also in place of a known one")
	_ = cmd.MarkFlagFilename("password-file") // fails for unknown flags only
}

// sourceHelp is part of the help of each command with a URL.
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
	{fault.Unreachable, "the address does not answer"},
}

// registerSSH registers the flags that fill o.
func registerSSH(o *assemble.SSHOptions, f *pflag.FlagSet) {
	f.BoolVar(&o.Enable, "enable-ssh", false, "start the host's SSH if it is off and needed, and stop it again in the end")
	f.StringVar(&o.HostKey, "ssh-host-key", "", "`SHA256:…` of the host's SSH key to accept, also in place of a known one")
	f.StringVar(&o.KeyFile, "ssh-key", "", "`FILE` with a private key for SSH (default those of the agent at $SSH_AUTH_SOCK, then the password)")
	f.StringVar(&o.User, "ssh-user", "", "`USER` for SSH (default the one of an esxi URL, else root)")
	f.StringVar(&o.PasswordFile, "ssh-password-file", "", "`FILE` that holds the password for SSH (default the one of an esxi URL's user)")
	f.Uint16Var(&o.Port, "ssh-port", 22, "`PORT` of SSH; ESXi has it on 22")
}

// registerAccess registers the flag that names the access file.
func registerAccess(a *assemble.Assembler, f *pflag.FlagSet) {
	f.StringVar(&a.AccessFile, "access", "", "`FILE` that names credentials and places for plans (default $"+assemble.AccessEnv+", else "+planfile.AccessFile+" in the state directory)")
}
