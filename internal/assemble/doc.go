// Package assemble opens what the migration of a VM needs: the session, logins to hosts by SSH, transports, and
// destinations. It is the only package that names concrete types of them all.
//
//	Open       a Move, which has planfile.Options -> Parts, for decamp migrate
//	OpenPlan   a plan file                        -> SourceParts, for checks
//	mover      rows of a fleet's plans            -> Parts, for workers
//
// planfile.Options describe the migration of one VM. Commands, checks and workers hand the same Options to the
// same functions: preflight.PermitOf returns what is permitted, and Assembler.NewTransport what moves the disks.
//
// An Assembler has what belongs to this machine: the state directory, the access file, known certificates, refused
// logins, and passwords that were given. It enforces here what a submitted plan may not do: use another password
// or certificate than its own, replace a known certificate, or log in to a host that its credential is not bound to.
// Prompts ask and tell whoever runs decamp; package assemble knows no flags and no terminal.
package assemble
