// Package assemble opens the parts of a VM's migration: the session, SSH logins to hosts, transports,
// and destinations. It is the only package that names all concrete types.
//
//	Open       a Move, which has planfile.Options -> Parts, for decamp migrate
//	OpenPlan   a plan file                        -> SourceParts, for checks
//	mover      rows of a fleet's plans            -> Parts, for workers
//
// planfile.Options describe the migration of one VM. Commands, checks and workers pass the same Options
// to the same functions: preflight.PermitOf returns the permissions, and Assembler.NewTransport the
// transport.
//
// An Assembler has the state of this machine: the state directory, the access file, known certificates,
// refused logins, and entered passwords. It enforces the limits of submitted plans: they cannot use
// another password or certificate, replace a known certificate, or log in to a host that their
// credential is not bound to. Prompts are the connection to the user; package assemble depends on no
// flags and no terminal.
package assemble
