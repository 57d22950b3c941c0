package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/planfile"
)

// registerLogin registers the flags of a login to a source, which set the fields of l.
func registerLogin(l *assemble.Login, cmd *cobra.Command) {
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&l.PasswordFile, "password-file", "", "`FILE` with the password (default $"+assemble.PasswordEnv+", otherwise a prompt)")
	f.StringVar(&l.Fingerprint, "fingerprint", "", "`SHA-256` of the certificate to accept, also instead of a known one")
	_ = cmd.MarkFlagFilename("password-file") // fails for unknown flags only
}

// sourceHelp is part of the help of each command with a URL.
const sourceHelp = `
URL is esxi://USER@HOST[:PORT] or vcenter://USER@HOST[:PORT], or the name of a source in a
config file. For passwords and certificates see decamp help sources.
`

// sourceExits are the exit codes of a login to a source.
var sourceExits = []exit{
	{fault.NotFound, "the VM does not exist"},
	{fault.Denied, "wrong password, missing privilege, or unknown or changed certificate"},
	{fault.Unreachable, "the address does not answer"},
}

// registerSSH registers the flags of a login by SSH, which set the fields of o.
func registerSSH(o *assemble.SSHOptions, f *pflag.FlagSet) {
	f.BoolVar(&o.Enable, "enable-ssh", false, "start SSH on the host if it is off and required, and stop it at the end")
	f.StringVar(&o.HostKey, "ssh-host-key", "", "`SHA256:HASH` of the SSH host key to accept, also instead of a known one")
	f.StringVar(&o.KeyFile, "ssh-key", "", "`FILE` with a private key for SSH (default the keys of the agent at $SSH_AUTH_SOCK, then the password)")
	f.StringVar(&o.User, "ssh-user", "", "`USER` for SSH (default the user of an esxi URL, otherwise root)")
	f.StringVar(&o.PasswordFile, "ssh-password-file", "", "`FILE` with the password for SSH (default the password of an esxi URL's user)")
	f.Uint16Var(&o.Port, "ssh-port", 22, "`PORT` of SSH; ESXi uses 22")
}

// registerAccess registers the flag of the access file.
func registerAccess(a *assemble.Assembler, f *pflag.FlagSet) {
	f.StringVar(&a.AccessFile, "access", "", "`FILE` with credentials and places for plans (default $"+assemble.AccessEnv+", otherwise "+planfile.AccessFile+" in the state directory)")
}
